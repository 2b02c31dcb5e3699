// Only one queue can be waited for at a time. The device's transfers end in order, one soon after
// the other; a file's end many at once after a while. So whatever the file has ended is taken
// first, and then the device is waited for as long as it has anything to do: neither waits for the
// other's buffers, and the file has its own many to work on meanwhile.
#include "tiers/relayed_copies.h"

#include "tiers/check.h"

#include <algorithm>
#include <new>
#include <utility>

namespace frostline {
RelayedCopies::RelayedCopies(CopyQueue& queue, Tier& source, Tier& target,
                             const std::atomic<bool>& stopping)
    : queue_(queue),
      source_(source),
      device_(source.info().kind == TierKind::device ? source : target),
      file_(source.info().kind == TierKind::device ? target : source),
      stopping_(stopping) {}

void RelayedCopies::run() {
    while (true) {
        while (buffers_.empty() || busy_buffers_ < buffers_.size()) {
            CopyRef copy = queue_.take(!busy());
            if (copy == nullptr) break;
            start_piece(std::move(copy));
        }
        if (!busy()) return;
        progress();
    }
}

bool RelayedCopies::step() {
    if (buffers_.empty() || busy_buffers_ < buffers_.size()) {
        if (CopyRef copy = queue_.take(false)) {
            start_piece(std::move(copy));
            return true;
        }
    }
    if (!busy()) return false;
    progress();
    return true;
}

const Extent& RelayedCopies::device_extent(const Copy& copy) const noexcept {
    return down() ? copy.request.source : copy.request.target;
}

const Extent& RelayedCopies::file_extent(const Copy& copy) const noexcept {
    return down() ? copy.request.target : copy.request.source;
}

Result<void> RelayedCopies::open() {
    if (!buffers_.empty()) return ok();
    try {
        FROSTLINE_TRY(auto device_queue, device_.open_queue());
        FROSTLINE_TRY(auto file_queue, file_.open_queue());
        std::vector<Buffer> buffers(device_queue->depth());
        for (std::size_t i = 0; i < buffers.size(); ++i) {
            FROSTLINE_TRY(buffers[i].memory, device_queue->staging(i));
        }
        device_queue_ = std::move(device_queue);
        file_queue_ = std::move(file_queue);
        buffers_ = std::move(buffers);
        return ok();
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "copy engine: no memory for a queue");
    }
}

// A copy stays at the front of its list until all of it is started.
void RelayedCopies::start_piece(CopyRef copy) {
    if (copy->may_go_on(stopping_) && !copy->all_started()) {
        Result<void> started = open();
        if (started) started = start_buffer(*copy);
        if (!started) copy->fail(started.error());
    }
    if (copy->all_started()) {
        copy->end_if_complete();
    } else {
        queue_.put_back(std::move(copy));
    }
}

Result<void> RelayedCopies::start_buffer(Copy& copy) {
    const auto free = std::find_if(buffers_.begin(), buffers_.end(), [](const Buffer& each) {
        return each.stage == Buffer::Stage::free;
    });
    FROSTLINE_CHECK(free != buffers_.end(), "a piece was started without a buffer");
    Buffer& buffer = *free;
    const std::uint64_t left = copy.length_bytes() - copy.started_bytes;
    buffer.bytes = buffer.memory.first(std::min<std::uint64_t>(left, buffer.memory.size()));
    buffer.offset = copy.started_bytes;
    buffer.status = ok();
    buffer.copy = CopyRef(&copy).detach();
    copy.started_bytes += buffer.bytes.size();
    ++copy.in_flight;
    ++busy_buffers_;
    if (down()) {
        begin_device(buffer);
    } else {
        begin_file(buffer);
    }
    return ok();
}

void RelayedCopies::begin_device(Buffer& buffer) {
    buffer.stage = Buffer::Stage::device;
    ++device_in_flight_;
    device_queue_->push({down() ? Transfer::Direction::read : Transfer::Direction::write,
                         device_extent(*buffer.copy), buffer.offset, buffer.bytes,
                         static_cast<std::uint64_t>(&buffer - buffers_.data())});
}

void RelayedCopies::begin_file(Buffer& buffer) {
    buffer.stage = Buffer::Stage::file;
    buffer.pushed_bytes = 0;
    push_file_transfers();
}

void RelayedCopies::push_file_transfers() {
    for (Buffer& buffer : buffers_) {
        if (buffer.stage == Buffer::Stage::file) push_file_transfers_of(buffer);
    }
}

// As many as the queue takes. What it cannot take in place is the last part of a page.
void RelayedCopies::push_file_transfers_of(Buffer& buffer) {
    const Extent& extent = file_extent(*buffer.copy);
    while (buffer.pushed_bytes < buffer.bytes.size() && file_in_flight_ < file_queue_->depth()) {
        const std::uint64_t at = buffer.offset + buffer.pushed_bytes;
        const auto rest = buffer.bytes.subspan(buffer.pushed_bytes);
        const TransferPiece piece = file_queue_->next_piece(extent, at, rest.data());
        const auto bytes = rest.first(std::min<std::uint64_t>(piece.size_bytes, rest.size()));
        buffer.pushed_bytes += bytes.size();
        if (piece.in_place) {
            ++buffer.in_flight;
            ++file_in_flight_;
            file_queue_->push({down() ? Transfer::Direction::write : Transfer::Direction::read,
                               extent, at, bytes,
                               static_cast<std::uint64_t>(&buffer - buffers_.data())});
        } else {
            const Result<void> moved =
                down() ? file_.write(extent, at, bytes) : file_.read(extent, at, bytes);
            if (!moved && buffer.status) buffer.status = moved.error();
        }
    }
    end_file_stage_if_complete(buffer);
}

void RelayedCopies::progress() {
    if (const auto ended = file_queue_->poll()) {
        end_file(*ended);
    } else if (device_in_flight_ > 0) {
        end_device(device_queue_->wait());
    } else {
        end_file(file_queue_->wait());
    }
    push_file_transfers();
}

void RelayedCopies::end_device(const TransferEnd& end) {
    --device_in_flight_;
    Buffer& buffer = buffers_[end.tag];
    buffer.status = end.status;
    if (!down() || !end.status) {
        finish(buffer);
        return;
    }
    if (buffer.copy->checksum) buffer.copy->checksum->add(buffer.offset, buffer.bytes);
    begin_file(buffer);
}

void RelayedCopies::end_file(const TransferEnd& end) {
    --file_in_flight_;
    Buffer& buffer = buffers_[end.tag];
    --buffer.in_flight;
    if (!end.status && buffer.status) buffer.status = end.status.error();
    end_file_stage_if_complete(buffer);
}

void RelayedCopies::end_file_stage_if_complete(Buffer& buffer) {
    if (buffer.stage != Buffer::Stage::file || buffer.in_flight > 0 ||
        buffer.pushed_bytes < buffer.bytes.size()) {
        return;
    }
    if (down() || !buffer.status) {
        finish(buffer);
        return;
    }
    if (buffer.copy->checksum) buffer.copy->checksum->add(buffer.offset, buffer.bytes);
    begin_device(buffer);
}

void RelayedCopies::finish(Buffer& buffer) {
    const CopyRef copy(std::exchange(buffer.copy, nullptr), false);
    buffer.stage = Buffer::Stage::free;
    --busy_buffers_;
    --copy->in_flight;
    if (!buffer.status && copy->outcome.status) copy->outcome.status = buffer.status.error();
    if (copy->all_started()) copy->end_if_complete();
}

}  // namespace frostline
