// Using a tensor: pinning it in the fastest tier, fetching it ahead of time, or reading it where it
// is.
#include "migration/migration_engine.h"

#include "tiers/check.h"
#include "tiers/checksum.h"

#include <algorithm>
#include <new>
#include <optional>

namespace frostline {
namespace {

constexpr std::uint64_t kReadChunkBytes = std::uint64_t{4} << 20;
constexpr int kMostAttempts = 256;

}  // namespace

Result<PinnedBytes> MigrationEngine::pin(TensorId id, Access access, PinEnd end) {
    Lock lock(mutex_);
    std::uint64_t waiting_since_ns = 0;
    int attempts = 0;
    failures_.erase(id.packed());  // of an earlier attempt: this one may succeed
    while (true) {
        TensorRecord* const tensor = table_.find(id);
        if (tensor == nullptr) return no_such_tensor(id);
        if (const auto lost = lost_.find(id.packed()); lost != lost_.end()) return lost->second;
        table_.touch(*tensor);
        const ResidencyState state = tensor->residency.load();
        // Under the lock the home stays what it is.
        if (state.home == kFastest) {
            if (state.pins == Residency::kMaxPins) {
                return Error(Errc::busy, 0, "tensor {}: pinned {} times", id.packed(), state.pins);
            }
            const PinnedBytes pinned = pin_resident(*tensor, access);
            if (end == PinEnd::later) ++later_unpins_;
            count_use(*tensor, waiting_since_ns == 0 ? 0 : options_.now_ns() - waiting_since_ns);
            decide({PolicyEvent::Kind::used, tensor, 0}, lock);
            return pinned;
        }
        if (closed_) return Error(Errc::closed, 0, "the context is closed");
        if (const auto failure = failures_.extract(id.packed()); !failure.empty()) {
            // Others may be about to give back what the device had no more of.
            if (failure.mapped().code() != Errc::no_space || !busy()) return failure.mapped();
            changed_.wait(lock);
            continue;
        }
        if (waiting_since_ns == 0) waiting_since_ns = std::max<std::uint64_t>(options_.now_ns(), 1);
        if (!state.moving) {
            // Others who pin may evict it each time before its turn comes: that must end.
            if (++attempts > kMostAttempts) {
                return Error(Errc::no_space, 0,
                             "tensor {}: others' pins leave it no room in the {} tier", id.packed(),
                             name(fastest().info().kind));
            }
            FROSTLINE_TRY_VOID(bring_up(*tensor, lock));
        } else {
            mover_.demand(*tensor);
            changed_.wait(lock);
        }
    }
}

// Starts the move, or waits for room for it. The caller looks again in either case.
Result<void> MigrationEngine::bring_up(TensorRecord& tensor, Lock& lock) {
    const TensorId id = tensor.id();
    const std::uint64_t size_bytes = tensor.size_bytes;
    Result<void> started = mover_.start(tensor, kFastest, CopyPriority::demand, lock);
    if (!started && started.error().code() == Errc::no_space &&
        size_bytes <= fastest().info().capacity_bytes) {
        decide({PolicyEvent::Kind::pressure, nullptr, size_bytes}, lock);
        TensorRecord* const again = table_.find(id);
        if (again == nullptr) return ok();
        started = mover_.start(*again, kFastest, CopyPriority::demand, lock);
        if (!started && started.error().code() == Errc::no_space && busy()) {
            changed_.wait(lock);
            return ok();
        }
    }
    // Somebody reads it where it is, or as many moves as may wait do; either notifies when done.
    if (!started && started.error().code() == Errc::busy) {
        changed_.wait(lock);
        return ok();
    }
    if (!started && started.error().code() == Errc::no_space) return no_room_in_fastest(size_bytes);
    return started;
}

PinnedBytes MigrationEngine::pin_resident(TensorRecord& tensor, Access access) {
    FROSTLINE_CHECK(
        tensor.residency.pin(tensor.id().generation, access) == Residency::PinResult::pinned,
        "a living tensor could not be pinned");
    const Extent& extent = tensor.copy_in(kFastest)->extent;
    return {&tensor, {fastest().address(extent), tensor.size_bytes}, access};
}

void MigrationEngine::count_use(const TensorRecord& tensor, std::uint64_t stall_ns) {
    recorder_.used(tensor.id(), tensor.size_bytes, options_.now_ns());
    if (stall_ns == 0) {
        ++stats_.hits;
        window_.hit();
    } else {
        ++stats_.use_stalls;
        stats_.use_stall_ns += stall_ns;
        window_.stalled();
    }
}

void MigrationEngine::unpin(const PinnedBytes& pinned) noexcept {
    if (!pinned.tensor->residency.unpin()) return;
    Lock lock(mutex_);
    mover_.retire(*pinned.tensor, lock);
}

void MigrationEngine::unpin_later() noexcept {
    const Lock lock(mutex_);
    ++later_unpins_;
}

void MigrationEngine::unpin_now(const PinnedBytes& pinned, const Error* failed) noexcept {
    Lock lock(mutex_);
    --later_unpins_;
    if (failed != nullptr && pinned.access == Access::write) {
        try {
            lost_.insert_or_assign(pinned.tensor->id().packed(), *failed);
        } catch (const std::bad_alloc&) {
            FROSTLINE_CHECK(false, "no memory to note that a tensor's bytes were lost");
        }
    }
    if (pinned.tensor->residency.unpin()) {
        mover_.retire(*pinned.tensor, lock);
    } else {
        decide({PolicyEvent::Kind::settled, pinned.tensor, 0}, lock);
    }
    changed_.notify_all();
}

void MigrationEngine::keep_pin() noexcept {
    const Lock lock(mutex_);
    ++kept_pins_;
}

void MigrationEngine::unpin_kept(const PinnedBytes& pinned) noexcept {
    Lock lock(mutex_);
    --kept_pins_;
    if (pinned.tensor->residency.unpin()) mover_.retire(*pinned.tensor, lock);
}

Result<void> MigrationEngine::prefetch(TensorId id) {
    Lock lock(mutex_);
    TensorRecord* const tensor = table_.find(id);
    if (tensor == nullptr) return no_such_tensor(id);
    if (closed_) return Error(Errc::closed, 0, "the context is closed");
    const Result<void> started = mover_.start(*tensor, kFastest, CopyPriority::prefetch, lock);
    // Busy: it is being moved, or used where it is, or others are to come first. None is a failure
    // of a hint.
    if (!started && started.error().code() != Errc::busy) return started;
    return ok();
}

Result<void> MigrationEngine::read(TensorId id, std::span<std::byte> out) {
    return read(
        id, out.size(),
        {.room = [&](std::uint64_t offset, std::size_t size) { return out.subspan(offset, size); },
         .full = [](std::uint64_t, std::span<std::byte>) { return ok(); }});
}

Result<void> MigrationEngine::read(TensorId id, std::uint64_t size_bytes, const ByteSink& sink) {
    Lock lock(mutex_);
    TensorRecord* const tensor = table_.find(id);
    if (tensor == nullptr) return no_such_tensor(id);
    FROSTLINE_TRY_VOID(check_size(*tensor, size_bytes));
    if (const auto lost = lost_.find(id.packed()); lost != lost_.end()) return lost->second;
    if (tensor->residency.pin(id.generation, Access::read) != Residency::PinResult::pinned) {
        return Error(Errc::busy, 0, "tensor {}: pinned {} times", id.packed(), Residency::kMaxPins);
    }
    table_.touch(*tensor);
    const TierId home = tensor->residency.load().home;
    const TensorCopy copy = *tensor->copy_in(home);
    const std::uint64_t start_ns = options_.now_ns();
    decide({PolicyEvent::Kind::used, tensor, 0}, lock);
    lock.unlock();
    const Result<void> result = read_pinned(*tensor, copy, sink);
    lock.lock();
    if (home == kFastest) {
        count_use(*tensor, 0);
    } else {
        ++stats_.direct_reads;
        stats_.moved_out_bytes[index_of(home)] += size_bytes;
        count_use(*tensor, std::max<std::uint64_t>(options_.now_ns() - start_ns, 1));
    }
    if (tensor->residency.unpin()) mover_.retire(*tensor, lock);
    changed_.notify_all();  // whoever wants to move it waits for this
    return result;
}

Result<void> MigrationEngine::read_pinned(const TensorRecord& tensor, const TensorCopy& copy,
                                          const ByteSink& sink) {
    Tier& tier = *options_.tiers[index_of(copy.extent.tier)];
    const std::uint64_t size_bytes = tensor.size_bytes;
    std::optional<Checksum> sum;
    if (copy.checksum) sum.emplace(size_bytes);
    for (std::uint64_t done = 0; done < size_bytes; done += kReadChunkBytes) {
        const auto bytes =
            sink.room(done, std::min<std::uint64_t>(kReadChunkBytes, size_bytes - done));
        FROSTLINE_TRY_VOID(tier.read(copy.extent, done, bytes));
        if (sum) sum->add(done, bytes);
        FROSTLINE_TRY_VOID(sink.full(done, bytes));
    }
    if (sum && sum->value() != *copy.checksum) {
        return Error(Errc::corrupt, 0, "tensor {}: {} bytes came back changed from {}",
                     tensor.id().packed(), size_bytes, name(tier.info().kind));
    }
    return ok();
}

Result<std::uint64_t> MigrationEngine::size_bytes(TensorId id) const {
    const Lock lock(mutex_);
    const TensorRecord* const tensor = table_.find(id);
    if (tensor == nullptr) return no_such_tensor(id);
    return tensor->size_bytes;
}

Result<void> MigrationEngine::check_size(TensorId id, std::uint64_t size_bytes) const {
    const Lock lock(mutex_);
    const TensorRecord* const tensor = table_.find(id);
    if (tensor == nullptr) return no_such_tensor(id);
    return check_size(*tensor, size_bytes);
}

Result<void> MigrationEngine::check_size(const TensorRecord& tensor, std::uint64_t size_bytes) {
    if (size_bytes == tensor.size_bytes) return ok();
    return Error(Errc::invalid_argument, 0, "tensor {} has {} bytes, room was given for {}",
                 tensor.id().packed(), tensor.size_bytes, size_bytes);
}

}  // namespace frostline
