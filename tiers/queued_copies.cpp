// From copies to pieces and back.
#include "tiers/queued_copies.h"

#include <new>
#include <utility>

namespace frostline {

void QueuedCopies::run() {
    while (true) {
        while (!pump_ || !pump_->full()) {
            CopyRef copy = queue_.take(!busy());
            if (copy == nullptr) break;
            start_piece(std::move(copy));
        }
        if (!busy()) return;
        complete(pump_->wait());
    }
}

bool QueuedCopies::step() {
    if (!pump_ || !pump_->full()) {
        if (CopyRef copy = queue_.take(false)) {
            start_piece(std::move(copy));
            return true;
        }
    }
    if (!busy()) return false;
    complete(pump_->wait());
    return true;
}

Result<void> QueuedCopies::open() {
    if (pump_) return ok();
    FROSTLINE_TRY(transfers_, tier_.open_queue());
    if (transfers_ == nullptr) {
        return Error(Errc::unsupported, 0, "copy engine: the {} tier has no queue",
                     name(tier_.info().kind));
    }
    try {
        pump_.emplace(*transfers_);
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "copy engine: no memory for a queue");
    }
    return ok();
}

// A copy stays at the front of its list until all of it is started.
void QueuedCopies::start_piece(CopyRef copy) {
    // One of no bytes is started from the start.
    if (copy->may_go_on(stopping_) && !copy->all_started()) {
        if (const Result<void> opened = open(); opened) {
            start_transfer(*copy);
        } else {
            copy->fail(opened.error());
        }
    }
    if (copy->all_started()) {
        copy->end_if_complete();
    } else {
        queue_.put_back(std::move(copy));
    }
}

// Whether the other end's memory may be an end of the transfer. Of what is otherwise staged that is
// persistent memory which the GPU's driver took.
bool QueuedCopies::can_be_in_place(CopyMethod method, const Tier& other) const noexcept {
    if (method == CopyMethod::queued_write || method == CopyMethod::queued_read) return true;
    return tier_.info().kind == TierKind::device && other.info().gpu_addressable;
}

void QueuedCopies::start_transfer(Copy& copy) {
    const CopyRequest& request = copy.request;
    const bool writes = uses_target_queue(copy.method);
    const Extent& extent = writes ? request.target : request.source;
    Tier& other = writes ? *request.source_tier : *request.target_tier;
    std::byte* memory = nullptr;
    // What is to be summed must come by where the CPU can read it.
    const bool readable = other.info().host_addressable || !copy.checksum;
    if (readable && can_be_in_place(copy.method, other)) {
        memory = other.address(writes ? request.source : request.target) + copy.started_bytes;
    }
    const auto opened = pump_->open(extent, copy.started_bytes, memory);
    if (!opened) {
        copy.fail(opened.error());
        return;
    }
    TransferPump::Slot& slot = **opened;
    if (writes && !slot.in_place) {
        const Result<void> filled =
            request.source_tier->read(request.source, copy.started_bytes, slot.bytes);
        if (!filled) {
            pump_->abandon(slot);
            copy.fail(filled.error());
            return;
        }
    }
    if (writes && copy.checksum) copy.checksum->add(copy.started_bytes, slot.bytes);
    copy.started_bytes += slot.bytes.size();
    ++copy.in_flight;
    slot.owner = CopyRef(&copy).detach();
    pump_->launch(slot, writes ? Transfer::Direction::write : Transfer::Direction::read);
}

void QueuedCopies::complete(const TransferPump::End& end) {
    const CopyRef copy(static_cast<Copy*>(end.slot.owner), false);
    const CopyRequest& request = copy->request;
    --copy->in_flight;
    Result<void> status = end.status;
    if (status && !uses_target_queue(copy->method)) {
        if (end.slot.in_place) {
            request.target_tier->flush_in_place(end.slot.bytes);
        } else {
            status = request.target_tier->write(request.target, end.slot.offset, end.slot.bytes);
        }
        if (copy->checksum) copy->checksum->add(end.slot.offset, end.slot.bytes);
    }
    if (!status && copy->outcome.status) copy->outcome.status = status.error();
    if (copy->all_started()) copy->end_if_complete();
}

}  // namespace frostline
