// Reading and writing of extents by the calling thread, and the queues for it. With O_DIRECT a page
// is the least that moves: a part of one is written by reading the page first.
#include "tiers/page.h"
#include "tiers/swap_tier.h"
#include "tiers/transfer_pump.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace frostline {

Result<std::unique_ptr<SwapQueue>> SwapTier::new_queue(bool register_staging) noexcept {
    return SwapQueue::create({.files = &files_,
                              .meter = &meter_,
                              .calls = options_.calls,
                              .depth = options_.queue_depth,
                              .block_bytes = options_.block_bytes,
                              .ring = ring_,
                              .register_staging = register_staging});
}

Result<std::unique_ptr<TransferQueue>> SwapTier::open_queue() noexcept {
    FROSTLINE_TRY(std::unique_ptr<SwapQueue> queue, new_queue(true));
    return std::unique_ptr<TransferQueue>(std::move(queue));
}

Result<std::unique_ptr<SwapQueue>> SwapTier::take_queue() noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (!idle_queues_.empty()) {
            std::unique_ptr<SwapQueue> queue = std::move(idle_queues_.back());
            idle_queues_.pop_back();
            return queue;
        }
    }
    return new_queue(false);
}

void SwapTier::put_back(std::unique_ptr<SwapQueue> queue) noexcept {
    constexpr std::size_t kMostIdle = 4;  // each may have staging
    const std::lock_guard lock(mutex_);
    try {
        if (idle_queues_.size() < kMostIdle) idle_queues_.push_back(std::move(queue));
    } catch (const std::bad_alloc&) {
        // Then it is made anew when it is needed.
    }
}

namespace {

// Moves whole pages, and what is left at the end of an extent. Bytes in memory that does not lie
// well, or not in whole pages, go through staging.
class ExtentTransfer {
   public:
    ExtentTransfer(TransferQueue& queue, Transfer::Direction direction)
        : pump_(queue), direction_(direction) {}

    /// `bytes` from `offset` of the extent on.
    Result<void> run(const Extent& extent, std::uint64_t offset, std::span<std::byte> bytes) {
        const Extent part{extent.tier, extent.offset, offset + bytes.size()};
        std::uint64_t at = offset;
        while (at < part.length_bytes && status_) {
            if (pump_.full()) finish_one();
            std::byte* const memory = bytes.data() + (at - offset);
            auto slot = pump_.open(part, at, memory);
            if (!slot) {
                status_ = slot.error();
                break;
            }
            (*slot)->owner = memory;
            at += (*slot)->bytes.size();
            if (!(*slot)->in_place && direction_ == Transfer::Direction::write) {
                std::memcpy((*slot)->bytes.data(), memory, (*slot)->bytes.size());
            }
            pump_.launch(**slot, direction_);
        }
        while (!pump_.idle()) finish_one();
        return status_;
    }

   private:
    void finish_one() {
        const TransferPump::End end = pump_.wait();
        if (!end.status) {
            if (status_) status_ = end.status;
        } else if (!end.slot.in_place && direction_ == Transfer::Direction::read) {
            std::memcpy(end.slot.owner, end.slot.bytes.data(), end.slot.bytes.size());
        }
    }

    TransferPump pump_;
    Transfer::Direction direction_;
    Result<void> status_ = ok();
};

struct Page {
    alignas(kPageBytes) std::byte bytes[kPageBytes];
};

}  // namespace

Result<void> SwapTier::run(Transfer::Direction direction, const Extent& extent,
                           std::uint64_t offset, std::span<std::byte> bytes) noexcept {
    if (bytes.empty()) return ok();
    FROSTLINE_TRY(std::unique_ptr<SwapQueue> queue, take_queue());
    Result<void> status = ok();
    try {
        const auto transfer = [&](Transfer::Direction way, std::uint64_t from,
                                  std::span<std::byte> part) {
            if (status) status = ExtentTransfer(*queue, way).run(extent, from, part);
        };
        // Some bytes of one page, in the middle of what the extent holds.
        const auto within_page = [&](std::span<std::byte> part) {
            Page page;
            const std::uint64_t start = offset / kPageBytes * kPageBytes;
            const std::uint64_t size = std::min(kPageBytes, extent.length_bytes - start);
            transfer(Transfer::Direction::read, start, {page.bytes, size});
            if (direction == Transfer::Direction::read) {
                std::memcpy(part.data(), page.bytes + (offset - start), part.size());
                return;
            }
            std::memcpy(page.bytes + (offset - start), part.data(), part.size());
            transfer(Transfer::Direction::write, start, {page.bytes, size});
        };
        const auto advance = [&](std::uint64_t size) {
            offset += size;
            bytes = bytes.subspan(size);
        };
        if (files_.direct() && offset % kPageBytes != 0) {
            const auto head =
                std::min<std::uint64_t>(kPageBytes - offset % kPageBytes, bytes.size());
            within_page(bytes.first(head));
            advance(head);
        }
        const bool to_the_end = offset + bytes.size() == extent.length_bytes;
        const std::uint64_t tail = files_.direct() && !to_the_end ? bytes.size() % kPageBytes : 0;
        const std::uint64_t body = bytes.size() - tail;
        if (body > 0) {
            transfer(direction, offset, bytes.first(body));
            advance(body);
        }
        if (tail > 0) within_page(bytes);
    } catch (const std::bad_alloc&) {
        status = Error(Errc::out_of_memory, 0, "swap tier: no memory for a transfer");
    }
    put_back(std::move(queue));
    return status;
}

Result<void> SwapTier::write(const Extent& extent, std::uint64_t offset,
                             std::span<const std::byte> bytes) noexcept {
    // The queue takes one kind of span; a write reads from it only.
    return run(Transfer::Direction::write, extent, offset,
               {const_cast<std::byte*>(bytes.data()), bytes.size()});
}

Result<void> SwapTier::read(const Extent& extent, std::uint64_t offset,
                            std::span<std::byte> bytes) noexcept {
    return run(Transfer::Direction::read, extent, offset, bytes);
}

Result<void> SwapTier::fence(std::span<const Extent>) noexcept {
    return ok();
}

std::byte* SwapTier::address(const Extent&) const noexcept {
    return nullptr;
}

}  // namespace frostline
