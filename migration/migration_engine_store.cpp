// Storing: into the fastest tier where there is room, or can be made, and else below it.
#include "migration/migration_engine.h"

#include "tiers/check.h"
#include "tiers/checksum.h"

#include <algorithm>
#include <utility>

namespace frostline {
namespace {

constexpr std::uint64_t kMostFailures = 64;
constexpr std::uint64_t kWriteChunkBytes = std::uint64_t{4} << 20;

}  // namespace

Result<TensorId> MigrationEngine::put(std::span<const std::byte> bytes) {
    if (bytes.empty()) return Error(Errc::invalid_argument, 0, "there are no bytes to store");
    Error refused = no_room_in_fastest(bytes.size());
    if (bytes.size() <= fastest().info().capacity_bytes) {
        Lock lock(mutex_);
        const auto room =
            find_room(bytes.size(), lock, [&] { return reserve_fastest(bytes.size(), lock); });
        if (room) {
            ++stores_in_progress_;
            lock.unlock();
            const Result<void> written = fastest().write(*room, 0, bytes);
            lock.lock();
            --stores_in_progress_;
            auto id = written ? add(bytes.size(), {*room, std::nullopt}, false, lock)
                              : Result<TensorId>(written.error());
            if (!id) fastest().release(*room);
            changed_.notify_all();  // what was stored can be evicted from now on
            return id;
        }
        // A device that failed is no reason to store nothing.
        const bool closed_tier = room.error().code() == Errc::closed && !closed_;
        if (room.error().code() != Errc::no_space && !closed_tier) return room.error();
        refused = room.error();
    }
    return write_through(
        bytes.size(),
        [&](std::uint64_t offset, std::size_t size) -> Result<std::span<const std::byte>> {
            return bytes.subspan(offset, size);
        },
        refused);
}

Result<TensorId> MigrationEngine::put_below(std::uint64_t size_bytes, const ByteSource& source) {
    if (size_bytes == 0) return Error(Errc::invalid_argument, 0, "there are no bytes to store");
    {
        const Lock lock(mutex_);  // rather than after the bytes have been copied
        if (closed_) return Error(Errc::closed, 0, "the context is closed");
    }
    return write_through(size_bytes, source, no_room(size_bytes, "below the fastest tier"));
}

Result<NewTensor> MigrationEngine::allocate(std::uint64_t size_bytes, PinEnd end) {
    if (size_bytes == 0) return Error(Errc::invalid_argument, 0, "there are no bytes to store");
    if (size_bytes > fastest().info().capacity_bytes) return no_room_in_fastest(size_bytes);
    Lock lock(mutex_);
    const auto room =
        find_room(size_bytes, lock, [&] { return reserve_fastest(size_bytes, lock); });
    if (!room) {
        const bool full = room.error().code() == Errc::no_space;
        return full ? no_room_in_fastest(size_bytes) : room.error();
    }
    // Held, so that what is decided after it was added leaves it alone.
    const auto id = add(size_bytes, {*room, std::nullopt}, true, lock);
    if (!id) {
        fastest().release(*room);
        return id.error();
    }
    TensorRecord& tensor = *table_.find(*id);
    const PinnedBytes pinned = pin_resident(tensor, Access::write);
    --tensor.held_pins;
    FROSTLINE_CHECK(!tensor.residency.unpin(), "a tensor was released under the lock");
    if (end == PinEnd::later) ++later_unpins_;
    return NewTensor{*id, pinned};
}

Result<TensorId> MigrationEngine::adopt(std::span<std::byte> buffer, BufferRelease release,
                                        bool held) {
    if (buffer.empty()) return Error(Errc::invalid_argument, 0, "there are no bytes to store");
    if (release.call == nullptr) {
        return Error(Errc::invalid_argument, 0, "there is nobody to give the buffer back to");
    }
    if (options_.dram == nullptr) {
        auto id = put(buffer);
        if (id) release.call(release.user, buffer.data(), buffer.size());
        return id;
    }
    Error refused = no_room_in_fastest(buffer.size());
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
        refused = room.error();
    }
    auto id = write_through(
        buffer.size(),
        [&](std::uint64_t offset, std::size_t size) -> Result<std::span<const std::byte>> {
            return std::span<const std::byte>(buffer).subspan(offset, size);
        },
        refused);
    if (id) release.call(release.user, buffer.data(), buffer.size());
    return id;
}

// Without the lock while memory is put behind the room; whoever needs room waits for that.
Result<Extent> MigrationEngine::reserve_fastest(std::uint64_t size_bytes, Lock& lock) {
    FROSTLINE_TRY(const Extent room, fastest().reserve_room(size_bytes));
    ++stores_in_progress_;
    lock.unlock();
    const Result<void> backed = fastest().back(room);
    if (!backed) fastest().release(room);
    lock.lock();
    --stores_in_progress_;
    changed_.notify_all();
    if (backed) return room;
    ++room_failures_;
    room_error_ = backed.error();
    return backed.error();
}

// Asks until there is room, or until nothing is under way that could make some. An attempt may
// release the lock.
template <class Attempt>
Result<Extent> MigrationEngine::find_room(std::uint64_t size_bytes, Lock& lock, Attempt attempt) {
    std::uint64_t waiting_since_ns = 0;
    std::uint64_t progress = evictions_ended_;
    std::uint64_t failures = room_failures_;
    while (true) {
        if (closed_) return Error(Errc::closed, 0, "the context is closed");
        // A medium that fails without closing would be tried for ever.
        if (evictions_ended_ != progress) {
            progress = evictions_ended_;
            failures = room_failures_;
        } else if (room_failures_ - failures > kMostFailures) {
            return *room_error_;
        }
        Result<Extent> room = attempt();
        bool hopeless = false;
        if (!room && room.error().code() == Errc::no_space) {
            decide({PolicyEvent::Kind::pressure, nullptr, size_bytes}, lock);
            hopeless = !busy();  // asked before the attempt: what is under way may end meanwhile
            room = attempt();    // copies that lay below already made room at once
        }
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
        if (busy()) changed_.wait(lock);
    }
}

// For what the fastest tier cannot hold: the first lower tier that takes it.
Result<TensorId> MigrationEngine::write_through(std::uint64_t size_bytes, const ByteSource& source,
                                                Error last) {
    for (Tier* const tier : options_.tiers.subspan(1)) {
        std::optional<std::uint64_t> checksum;
        const auto extent = write_to(*tier, size_bytes, source, checksum);
        if (!extent) {
            last = extent.error();
            continue;
        }
        Lock lock(mutex_);
        auto id = add(size_bytes, {*extent, checksum}, false, lock);
        if (id) {
            stats_.moved_in_bytes[index_of(tier->info().id)] += size_bytes;
        } else {
            tier->release(*extent);
        }
        return id;
    }
    return last.code() == Errc::no_space ? no_room(size_bytes, "in any tier") : last;
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

Result<Extent> MigrationEngine::write_to(Tier& tier, std::uint64_t size_bytes,
                                         const ByteSource& source,
                                         std::optional<std::uint64_t>& sum) {
    FROSTLINE_TRY(const Extent extent, reserve_below(tier, size_bytes));
    std::optional<Checksum> checksum;
    if (options_.verify) checksum.emplace(size_bytes);
    Result<void> written = ok();
    for (std::uint64_t done = 0; written && done < size_bytes; done += kWriteChunkBytes) {
        const auto bytes =
            source(done, std::min<std::uint64_t>(kWriteChunkBytes, size_bytes - done));
        written = bytes ? tier.write(extent, done, *bytes) : Result<void>(bytes.error());
        if (written && checksum) checksum->add(done, *bytes);
    }
    if (written) written = tier.fence(extent);
    if (!written) {
        tier.release(extent);
        return written.error();
    }
    if (checksum) sum = checksum->value();
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

}  // namespace frostline
