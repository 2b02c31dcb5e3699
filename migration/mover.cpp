// The protocol of a move, and its rollback.
#include "migration/mover.h"

#include "tiers/check.h"

#include <new>
#include <optional>
#include <utility>

namespace frostline {

Mover::Mover(Options options) : options_(std::move(options)) {}

Mover::~Mover() {
    FROSTLINE_CHECK(busy() == 0, "a mover was destroyed while tensors were moving");
}

Result<void> Mover::start(TensorRecord& tensor, TierId to, CopyPriority priority,
                          std::unique_lock<std::mutex>& lock) {
    Discards discards;
    const ResidencyState state = tensor.residency.load();
    if (state.released) return Error(Errc::not_found, 0, "the tensor was dropped");
    if (state.home == to) return ok();
    std::optional<Extent> room;
    if (state.written) {
        if (!tensor.residency.clear_written()) return Error(Errc::busy, 0, "the tensor is in use");
        // The room of a void copy is taken again: reserving more first might find none.
        if (tensor.copy_in(to) != nullptr && options_.tiers[index_of(to)]->usage().open) {
            room = std::exchange(tensor.copies[index_of(to)], std::nullopt)->extent;
        }
        for (std::size_t i = 0; i < kMaxTiers; ++i) {
            if (i != index_of(state.home)) discard_copy(tensor, static_cast<TierId>(i), discards);
        }
    }
    Result<void> result = ok();
    if (tensor.copy_in(to) != nullptr) {
        if (tensor.residency.begin_move(to)) {
            take_existing_copy(tensor, state.home, to, discards);
        } else {
            result = Error(Errc::busy, 0, "the tensor is in use");
        }
    } else {
        result = start_copy(tensor, state.home, to, priority, room);
    }
    release(discards, lock);
    return result;
}

Result<void> Mover::start_copy(TensorRecord& tensor, TierId from, TierId to, CopyPriority priority,
                               std::optional<Extent> room) {
    Tier& target_tier = *options_.tiers[index_of(to)];
    const bool back_target = !room;
    if (!room) {
        FROSTLINE_TRY(room, target_tier.reserve_room(tensor.size_bytes));
    }
    const Extent target = *room;
    Result<void> started = Error(Errc::busy, 0, "the tensor is in use");
    if (tensor.residency.begin_move(to)) {
        started = submit(tensor, from, target, back_target, priority);
        if (started) return started;
        FROSTLINE_CHECK(!tensor.residency.end_move(), "a tensor was released under the lock");
    }
    target_tier.release(target);
    return started;
}

Result<void> Mover::submit(TensorRecord& tensor, TierId from, const Extent& target,
                           bool back_target, CopyPriority priority) {
    CopyRequest request;
    request.source_tier = options_.tiers[index_of(from)];
    request.source = tensor.copy_in(from)->extent;
    request.target_tier = options_.tiers[index_of(target.tier)];
    request.target = target;
    request.back_target = back_target;
    request.checksum = options_.verify;
    request.priority = priority;
    // The entry must stand before the copy can finish; finish() waits for the lock we hold.
    Move* move = nullptr;
    try {
        request.done = [this, &tensor](const CopyOutcome& outcome) { finish(tensor, outcome); };
        move = &moves_[&tensor];
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "no memory to note a move");
    }
    *move = {{}, from, target.tier, target};
    auto ticket = options_.copies->submit(std::move(request));
    if (!ticket) {
        moves_.erase(&tensor);
        return ticket.error();
    }
    move->ticket = *ticket;
    leaving_[index_of(from)] += charged_in(from, tensor.size_bytes);
    return ok();
}

// A clean copy makes the move free.
void Mover::take_existing_copy(TensorRecord& tensor, TierId from, TierId to, Discards& discards) {
    if (tensor.residency.publish() == Residency::PublishResult::published) {
        settle_home(tensor, from, to, discards);
        options_.report({tensor.id(), from, to, tensor.size_bytes, false, nullptr});
    } else {
        // Pinned in the meantime. It cannot have been released: that takes the lock.
        FROSTLINE_CHECK(!tensor.residency.end_move(), "a tensor was released under the lock");
    }
}

std::uint64_t Mover::charged_in(TierId tier, std::uint64_t size_bytes) const noexcept {
    const TierInfo& info = options_.tiers[index_of(tier)]->info();
    return charged_bytes(info.kind, info.granularity_bytes, size_bytes);
}

void Mover::finish(TensorRecord& tensor, const CopyOutcome& outcome) {
    std::unique_lock lock(*options_.mutex);
    const auto entry = moves_.find(&tensor);
    const Move move = entry->second;
    const std::uint64_t size_bytes = tensor.size_bytes;
    Discards discards;
    settle(tensor, move, outcome, discards);
    moves_.erase(entry);  // before the lock is released: the slot may get a new tenant then
    release(discards, lock);
    leaving_[index_of(move.from)] -= charged_in(move.from, size_bytes);  // only now is it free
    options_.changed->notify_all();
}

void Mover::settle(TensorRecord& tensor, const Move& move, const CopyOutcome& outcome,
                   Discards& discards) {
    std::optional<Error> error;
    if (!outcome.status) {
        error = outcome.status.error();
    } else if (const auto& expected = tensor.copy_in(move.from)->checksum;
               options_.verify && expected && *expected != outcome.checksum) {
        error = Error(
            Errc::corrupt, 0,
            "tensor {}: {} bytes came back changed from {} (checksum {:016x}, not {:016x})",
            tensor.id().packed(), tensor.size_bytes,
            name(options_.tiers[index_of(move.from)]->info().kind), outcome.checksum, *expected);
    }
    bool last_use = false;
    if (error) {
        discards.add(move.target);
        last_use = tensor.residency.end_move();
    } else {
        auto& copy = tensor.copies[index_of(move.to)];
        copy = TensorCopy{move.target, std::nullopt};
        // In DRAM the bytes are the program's to change, and a checksum could only keep them from
        // leaving, with nobody there to be told.
        if (options_.verify && index_of(move.to) > 0) {
            copy->checksum = outcome.checksum;
        }
        const Residency::PublishResult result = tensor.residency.publish();
        if (result == Residency::PublishResult::published) {
            settle_home(tensor, move.from, move.to, discards);
        } else {
            // A copy of what was there before a write is worthless. One that a pin kept from
            // becoming home makes the next eviction free if it lies below; above, it would fill
            // the room of tensors in use.
            if (result != Residency::PublishResult::pinned ||
                index_of(move.to) < index_of(move.from)) {
                discard_copy(tensor, move.to, discards);
            }
            last_use = tensor.residency.end_move();
        }
    }
    options_.report(
        {tensor.id(), move.from, move.to, tensor.size_bytes, true, error ? &*error : nullptr});
    if (last_use) {
        discard_all(tensor, discards);
        options_.table->erase(tensor);
    }
}

// After a change of home. Upwards the slower copy is kept: evicting it again then costs nothing.
void Mover::settle_home(TensorRecord& tensor, TierId from, TierId to, Discards& discards) {
    options_.table->touch(tensor);
    if (index_of(from) < index_of(to)) discard_copy(tensor, from, discards);
}

void Mover::demand(const TensorRecord& tensor) {
    if (const auto entry = moves_.find(&tensor); entry != moves_.end()) {
        options_.copies->raise(entry->second.ticket, CopyPriority::demand);
    }
}

void Mover::cancel(const TensorRecord& tensor) {
    if (const auto entry = moves_.find(&tensor); entry != moves_.end()) {
        entry->second.ticket.cancel();
    }
}

bool Mover::drop_copy(TensorRecord& tensor, TierId tier, std::unique_lock<std::mutex>& lock) {
    const ResidencyState state = tensor.residency.load();
    // While it moves, either end may be what is being read or about to be home.
    if (tensor.copy_in(tier) == nullptr || state.home == tier || state.moving) return false;
    Discards discards;
    discard_copy(tensor, tier, discards);
    release(discards, lock);
    return true;
}

void Mover::retire(TensorRecord& tensor, std::unique_lock<std::mutex>& lock) {
    Discards discards;
    discard_all(tensor, discards);
    options_.table->erase(tensor);
    release(discards, lock);
}

void Mover::discard_copy(TensorRecord& tensor, TierId tier, Discards& discards) {
    auto& copy = tensor.copies[index_of(tier)];
    if (!copy) return;
    discards.add(copy->extent);
    copy.reset();
}

void Mover::discard_all(TensorRecord& tensor, Discards& discards) {
    for (std::size_t i = 0; i < kMaxTiers; ++i) {
        discard_copy(tensor, static_cast<TierId>(i), discards);
    }
}

void Mover::release(const Discards& discards, std::unique_lock<std::mutex>& lock) {
    if (discards.all().empty()) return;
    ++releasing_;
    lock.unlock();
    for (const Extent& extent : discards.all()) {
        options_.tiers[index_of(extent.tier)]->release(extent);
    }
    lock.lock();
    --releasing_;
    options_.changed->notify_all();
}

}  // namespace frostline
