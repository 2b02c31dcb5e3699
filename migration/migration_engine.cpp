// Storing, forgetting, and what happens after each event. Using a tensor is in
// migration_engine_use.cpp.
#include "migration/migration_engine.h"

#include "tiers/check.h"
#include "tiers/checksum.h"

#include <algorithm>
#include <new>
#include <utility>

namespace frostline {
namespace {

constexpr TierId kDram{0};
constexpr std::uint64_t kMostFailures = 64;
constexpr std::size_t kWriteChunkBytes = std::size_t{4} << 20;

}  // namespace

Error MigrationEngine::no_such_tensor(TensorId id) {
    return Error(Errc::not_found, 0, "no tensor {}: it was dropped or never stored", id.packed());
}

MigrationEngine::MigrationEngine(Options options)
    : options_(std::move(options)),
      mover_({.tiers = options_.tiers,
              .copies = options_.copies,
              .table = &table_,
              .mutex = &mutex_,
              .changed = &changed_,
              .verify = options_.verify,
              .report = [this](const MoveReport& report) { on_move(report); }}),
      window_(options_.tiers[0]->info().capacity_bytes) {}

MigrationEngine::~MigrationEngine() {
    Lock lock(mutex_);
    quiesce(lock);
    while (table_.size() > 0) {
        // The list is const to everybody but its owner; the record is ours to retire.
        auto& tensor = const_cast<TensorRecord&>(table_.by_birth().front());
        for (; tensor.held_pins > 0; --tensor.held_pins) (void)tensor.residency.unpin();
        FROSTLINE_CHECK(tensor.residency.release() != Residency::ReleaseResult::retired_later,
                        "the engine was destroyed while a tensor was pinned");
        mover_.retire(tensor, lock);
    }
}

Result<TensorId> MigrationEngine::put(std::span<const std::byte> bytes) {
    if (bytes.empty()) return Error(Errc::invalid_argument, 0, "there are no bytes to store");
    if (bytes.size() <= options_.dram->info().capacity_bytes) {
        Lock lock(mutex_);
        const auto room =
            find_room(bytes.size(), lock, [&] { return options_.dram->reserve(bytes.size()); });
        if (room) {
            ++stores_in_progress_;
            lock.unlock();
            const Result<void> written = options_.dram->write(*room, 0, bytes);
            lock.lock();
            --stores_in_progress_;
            auto id = written ? add(bytes.size(), {*room, std::nullopt}, false, lock)
                              : Result<TensorId>(written.error());
            if (!id) options_.dram->release(*room);
            changed_.notify_all();  // what was stored can be evicted from now on
            return id;
        }
        if (room.error().code() != Errc::no_space) return room.error();
        lock.unlock();
        return write_through(bytes, room.error());
    }
    return write_through(bytes, exceeds_dram(bytes.size()));
}

Result<TensorId> MigrationEngine::adopt(std::span<std::byte> buffer, BufferRelease release,
                                        bool held) {
    if (buffer.empty()) return Error(Errc::invalid_argument, 0, "there are no bytes to store");
    if (release.call == nullptr) {
        return Error(Errc::invalid_argument, 0, "there is nobody to give the buffer back to");
    }
    Error no_room = exceeds_dram(buffer.size());
    if (buffer.size() <= options_.dram->info().capacity_bytes) {
        Lock lock(mutex_);
        const auto room =
            find_room(buffer.size(), lock, [&] { return options_.dram->adopt(buffer, release); });
        if (room) {
            auto id = add(buffer.size(), {*room, std::nullopt}, held, lock);
            if (!id) options_.dram->cancel_adoption(*room);
            return id;
        }
        if (room.error().code() != Errc::no_space) return room.error();
        no_room = room.error();
    }
    auto id = write_through(buffer, no_room);
    if (id) release.call(release.user, buffer.data(), buffer.size());
    return id;
}

Error MigrationEngine::exceeds_dram(std::uint64_t size_bytes) const {
    return Error(Errc::no_space, 0,
                 "{} bytes exceed the DRAM budget of {}, and there is no lower tier", size_bytes,
                 options_.dram->info().capacity_bytes);
}

// Asks until there is room, or until nothing is under way that could make some.
template <class Attempt>
Result<Extent> MigrationEngine::find_room(std::uint64_t size_bytes, Lock& lock, Attempt attempt) {
    std::uint64_t waiting_since_ns = 0;
    std::uint64_t progress = evictions_ended_;
    std::uint64_t failures = failed_evictions_;
    while (true) {
        if (closed_) return Error(Errc::closed, 0, "the context is closed");
        // A medium that fails without closing would be tried for ever.
        if (evictions_ended_ != progress) {
            progress = evictions_ended_;
            failures = failed_evictions_;
        } else if (failed_evictions_ - failures > kMostFailures) {
            return *eviction_error_;
        }
        Result<Extent> room = attempt();
        if (!room && room.error().code() == Errc::no_space) {
            decide({PolicyEvent::Kind::pressure, nullptr, size_bytes}, lock);
            room = attempt();  // copies that lay below already made room at once
        }
        const bool hopeless = !busy();
        if (room || room.error().code() != Errc::no_space || hopeless) {
            if (waiting_since_ns != 0) {
                stats_.store_stall_ns += options_.now_ns() - waiting_since_ns;
            }
            return room;
        }
        if (waiting_since_ns == 0) {
            waiting_since_ns = options_.now_ns();
            ++stats_.store_stalls;
        }
        changed_.wait(lock);
    }
}

// For what DRAM cannot hold: the first lower tier that takes it.
Result<TensorId> MigrationEngine::write_through(std::span<const std::byte> bytes, Error last) {
    for (Tier* const tier : options_.tiers.subspan(1)) {
        std::optional<std::uint64_t> checksum;
        const auto extent = write_to(*tier, bytes, checksum);
        if (!extent) {
            last = extent.error();
            continue;
        }
        Lock lock(mutex_);
        auto id = add(bytes.size(), {*extent, checksum}, false, lock);
        if (id) {
            stats_.moved_in_bytes[index_of(tier->info().id)] += bytes.size();
        } else {
            tier->release(*extent);
        }
        return id;
    }
    return last;
}

// Copies that only save a later eviction give way, if together they free enough.
Result<Extent> MigrationEngine::reserve_below(Tier& tier, std::uint64_t size_bytes) {
    Result<Extent> room = tier.reserve(size_bytes);
    if (room || room.error().code() != Errc::no_space) return room;
    const TierId id = tier.info().id;
    Lock lock(mutex_);
    std::vector<TensorId> spares;
    std::uint64_t free_bytes = tier.info().capacity_bytes - tier.usage().used_bytes;
    for (const TensorRecord& tensor : table_.by_birth()) {
        const ResidencyState state = tensor.residency.load();
        if (tensor.copy_in(id) == nullptr || state.home == id || state.moving) continue;
        spares.push_back(tensor.id());
        free_bytes += tensor.size_bytes;
    }
    if (free_bytes < size_bytes) return room;
    for (const TensorId spare : spares) {
        TensorRecord* const tensor = table_.find(spare);
        if (tensor == nullptr || !mover_.drop_copy(*tensor, id, lock)) continue;
        room = tier.reserve(size_bytes);
        if (room || room.error().code() != Errc::no_space) break;
    }
    return room;
}

Result<Extent> MigrationEngine::write_to(Tier& tier, std::span<const std::byte> bytes,
                                         std::optional<std::uint64_t>& sum) {
    FROSTLINE_TRY(const Extent extent, reserve_below(tier, bytes.size()));
    Result<void> written = ok();
    for (std::size_t done = 0; written && done < bytes.size(); done += kWriteChunkBytes) {
        written = tier.write(extent, done,
                             bytes.subspan(done, std::min(kWriteChunkBytes, bytes.size() - done)));
    }
    if (written) written = tier.fence(extent);
    if (!written) {
        tier.release(extent);
        return written.error();
    }
    if (options_.verify) sum = checksum(bytes);
    return extent;
}

Result<TensorId> MigrationEngine::add(std::uint64_t size_bytes, const TensorCopy& copy, bool held,
                                      Lock& lock) {
    // It may have been closed while the bytes were copied, or while room was made.
    if (closed_) return Error(Errc::closed, 0, "the context is closed");
    FROSTLINE_TRY(TensorRecord* const tensor, table_.create(size_bytes, copy));
    const TensorId id = tensor->id();
    if (held) {
        FROSTLINE_CHECK(
            tensor->residency.pin(id.generation, Access::read) == Residency::PinResult::pinned,
            "a new tensor could not be pinned");
        ++tensor->held_pins;
    }
    ++stats_.stored;
    stats_.stored_bytes += size_bytes;
    recorder_.stored(id, size_bytes, options_.now_ns());
    decide({PolicyEvent::Kind::settled, tensor, 0}, lock);
    return id;
}

Result<void> MigrationEngine::settle(TensorId id) {
    Lock lock(mutex_);
    TensorRecord* const tensor = table_.find(id);
    if (tensor == nullptr) return no_such_tensor(id);
    if (tensor->held_pins > 0) {
        --tensor->held_pins;
        FROSTLINE_CHECK(!tensor->residency.unpin(), "a tensor was released under the lock");
        decide({PolicyEvent::Kind::settled, tensor, 0}, lock);
    }
    return ok();
}

Result<void> MigrationEngine::drop(TensorId id) {
    Lock lock(mutex_);
    TensorRecord* const tensor = table_.find(id);
    if (tensor == nullptr) return no_such_tensor(id);
    ++stats_.dropped;
    failures_.erase(id.packed());
    for (; tensor->held_pins > 0; --tensor->held_pins) {
        FROSTLINE_CHECK(!tensor->residency.unpin(), "a tensor was released under the lock");
    }
    if (tensor->residency.release() == Residency::ReleaseResult::retire) {
        mover_.retire(*tensor, lock);
    } else {
        mover_.cancel(*tensor);
    }
    sample();
    return ok();
}

void MigrationEngine::end_step() {
    const Lock lock(mutex_);
    recorder_.end_step(options_.now_ns());
}

void MigrationEngine::stop() {
    Lock lock(mutex_);
    quiesce(lock);
}

std::size_t MigrationEngine::pins() const {
    const Lock lock(mutex_);
    std::size_t pins = 0;
    for (const TensorRecord& tensor : table_.by_birth()) {
        pins += tensor.residency.load().pins - tensor.held_pins;
    }
    return pins;
}

void MigrationEngine::quiesce(Lock& lock) {
    closed_ = true;
    for (const TensorRecord& tensor : table_.by_birth()) mover_.cancel(tensor);
    changed_.notify_all();
    changed_.wait(lock, [this] { return !busy(); });
}

void MigrationEngine::decide(const PolicyEvent& event, Lock& lock) {
    std::array<TierView, kMaxTiers> tiers;
    for (std::size_t i = 0; i < options_.tiers.size(); ++i) {
        const TierInfo& info = options_.tiers[i]->info();
        const TierUsage usage = options_.tiers[i]->usage();
        tiers[i] = {info.id,
                    info.kind,
                    info.capacity_bytes,
                    usage.used_bytes,
                    mover_.leaving_bytes(info.id),
                    usage.open,
                    info.speed};
    }
    std::vector<Decision> decisions;
    try {
        options_.policy->decide({table_.by_birth(),
                                 table_.by_use(),
                                 {tiers.data(), options_.tiers.size()},
                                 window_.bytes()},
                                event, decisions);
    } catch (const std::bad_alloc&) {
        // What was decided so far is carried out; the rest is harmless to miss.
    }
    for (const Decision& decision : decisions) {
        if (closed_) return;  // maybe since the last one, which may have released the lock
        carry_out(decision, lock);
    }
    sample();
}

// Decisions are by id, because carrying one out releases the lock for moments.
void MigrationEngine::carry_out(const Decision& decision, Lock& lock) {
    TensorRecord* const tensor = table_.find(decision.tensor);
    if (tensor == nullptr) return;
    if (decision.action == Decision::Action::drop_copy) {
        (void)mover_.drop_copy(*tensor, decision.tier, lock);
        return;
    }
    const CopyPriority priority =
        decision.tier == kDram ? CopyPriority::prefetch : CopyPriority::eviction;
    Result<void> started = mover_.start(*tensor, decision.tier, priority, lock);
    if (decision.tier == kDram) return;  // a prefetch that finds no room is merely late
    // The tier that was chosen is full or closed after all: another one takes over.
    for (std::size_t other = 1; !started && other < options_.tiers.size(); ++other) {
        const Errc code = started.error().code();
        if (code != Errc::no_space && code != Errc::closed) return;
        if (other == index_of(decision.tier)) continue;
        TensorRecord* const again = table_.find(decision.tensor);
        if (again == nullptr) return;
        started = mover_.start(*again, static_cast<TierId>(other), priority, lock);
    }
}

void MigrationEngine::on_move(const MoveReport& report) {
    if (report.error != nullptr) {
        if (report.error->code() == Errc::cancelled) return;
        ++stats_.failed_moves;
        if (report.to != kDram) {
            ++failed_evictions_;
            eviction_error_ = *report.error;
        }
        // Nobody will ask any more for one that was dropped meanwhile.
        if (report.to == kDram && table_.find(report.tensor) != nullptr) {
            try {
                failures_.insert_or_assign(report.tensor.packed(), *report.error);
            } catch (const std::bad_alloc&) {
                // Whoever wants the tensor then tries again by itself, and meets the error again.
            }
        }
        return;
    }
    if (report.to != kDram) ++evictions_ended_;
    if (!report.copied) {
        ++stats_.free_moves;
    } else {
        ++stats_.moves;
        stats_.moved_out_bytes[index_of(report.from)] += report.size_bytes;
        stats_.moved_in_bytes[index_of(report.to)] += report.size_bytes;
    }
    sample();
}

void MigrationEngine::sample() {
    const std::uint64_t now_ns = options_.now_ns();
    if (!timeline_.due(now_ns)) return;
    UsageTimeline::Sample sample{now_ns, {}};
    for (std::size_t i = 0; i < options_.tiers.size(); ++i) {
        sample.used_bytes[i] = options_.tiers[i]->usage().used_bytes;
    }
    timeline_.add(sample);
}

EngineStats MigrationEngine::stats() const {
    const Lock lock(mutex_);
    EngineStats stats = stats_;
    stats.prefetch_bytes = window_.bytes();
    return stats;
}

std::vector<UsageTimeline::Sample> MigrationEngine::timeline() const {
    const Lock lock(mutex_);
    return timeline_.samples();
}

std::string MigrationEngine::trace() const {
    const Lock lock(mutex_);
    return recorder_.text();
}

}  // namespace frostline
