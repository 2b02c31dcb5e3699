// A tier without bytes, whose transfers take as long as its script says on a clock of its own, and
// whose n-th call can fail. It checks what it is asked to do: room is given back as it was taken,
// and nothing is read that was never written.
#pragma once

#include "tiers/page.h"
#include "tiers/tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <vector>

namespace frostline {

struct TierScript {
    TierKind kind = TierKind::swap;
    std::uint64_t capacity_bytes = std::uint64_t{1} << 30;
    std::uint64_t medium_bytes = UINT64_MAX;  ///< what can really be reserved
    double write_ns_per_byte = 1, read_ns_per_byte = 1;
    std::uint64_t write_ns = 0, read_ns = 0, fence_ns = 0;  ///< each call, besides
    std::size_t queue_depth = 0;                            ///< 0: no queue
    std::uint64_t block_bytes = std::uint64_t{1} << 20;
    bool takes_memory = true;
    /// Which call fails: the n-th (from 1) of reserve, open_queue, write, read, fence, staging and
    /// transfers, counted together; 0: none.
    std::uint64_t failing_call = 0;
};

/// For one thread.
class ScriptedTier final : public Tier {
   public:
    explicit ScriptedTier(const TierScript& script) : script_(script) {
        info_.kind = script.kind;
        info_.capacity_bytes = script.capacity_bytes;
    }
    ~ScriptedTier() override { EXPECT_TRUE(written_.empty()) << "room leaked"; }

    std::uint64_t now_ns() const { return now_ns_; }
    std::uint64_t calls() const { return calls_; }
    std::size_t reservations() const { return written_.size(); }
    std::uint64_t most_in_flight() const { return most_in_flight_; }
    std::uint64_t largest_transfer_bytes() const { return largest_transfer_bytes_; }

    const TierInfo& info() const noexcept override { return info_; }
    TierUsage usage() const noexcept override { return {used_bytes_, peak_bytes_, true}; }
    Result<Extent> reserve(std::uint64_t size_bytes) noexcept override {
        if (failing()) return failure();
        if (used_bytes_ + size_bytes > std::min(script_.capacity_bytes, script_.medium_bytes)) {
            return Error(Errc::no_space, 0, "scripted: full");
        }
        const Extent extent{TierId{}, next_offset_, size_bytes};
        next_offset_ += size_bytes;
        used_bytes_ += size_bytes;
        peak_bytes_ = std::max(peak_bytes_, used_bytes_);
        written_[extent.offset] = 0;
        return extent;
    }
    void release(const Extent& extent) noexcept override {
        EXPECT_EQ(written_.erase(extent.offset), 1U) << "given back twice";
        used_bytes_ -= extent.length_bytes;
    }
    Result<void> write(const Extent& extent, std::uint64_t offset,
                       std::span<const std::byte> bytes) noexcept override {
        if (failing()) return failure();
        note_write(extent, offset, bytes.size());
        pass_time(script_.write_ns + time_of(bytes.size(), script_.write_ns_per_byte));
        return ok();
    }
    Result<void> read(const Extent& extent, std::uint64_t offset,
                      std::span<std::byte> bytes) noexcept override {
        if (failing()) return failure();
        note_read(extent, offset, bytes.size());
        pass_time(script_.read_ns + time_of(bytes.size(), script_.read_ns_per_byte));
        return ok();
    }
    using Tier::fence;
    Result<void> fence(std::span<const Extent>) noexcept override {
        if (failing()) return failure();
        pass_time(script_.fence_ns);
        return ok();
    }
    std::byte* address(const Extent&) const noexcept override { return nullptr; }
    Result<std::unique_ptr<TransferQueue>> open_queue() noexcept override {
        if (failing()) return failure();
        if (script_.queue_depth == 0) return std::unique_ptr<TransferQueue>();
        return std::unique_ptr<TransferQueue>(new (std::nothrow) Queue(*this));
    }
    void calibrated(const TierSpeed& speed) noexcept override { info_.speed = speed; }

   private:
    class Queue final : public TransferQueue {
       public:
        explicit Queue(ScriptedTier& tier) : tier_(tier), staging_(tier.script_.queue_depth) {}
        ~Queue() override { EXPECT_TRUE(in_flight_.empty()) << "transfers were left in flight"; }
        std::size_t depth() const noexcept override { return tier_.script_.queue_depth; }
        TransferPiece next_piece(const Extent& extent, std::uint64_t offset,
                                 const std::byte* memory) const noexcept override {
            const std::uint64_t block = tier_.script_.block_bytes;
            return {std::min(block - offset % block, extent.length_bytes - offset),
                    memory != nullptr && tier_.script_.takes_memory};
        }
        Result<std::span<std::byte>> staging(std::size_t slot) noexcept override {
            if (tier_.failing()) return failure();
            staging_.at(slot).resize(tier_.script_.block_bytes);
            return std::span<std::byte>(staging_.at(slot));
        }
        // All latencies run at once, but there is one medium to carry the bytes.
        void push(const Transfer& transfer) noexcept override {
            const bool is_write = transfer.direction == Transfer::Direction::write;
            const TierScript& script = tier_.script_;
            EXPECT_LT(in_flight_.size(), depth());
            EXPECT_EQ(transfer.bytes.size(),
                      next_piece(transfer.extent, transfer.offset, nullptr).size_bytes);
            Pending pending{transfer.tag, 0, tier_.failing()};
            if (is_write) {
                tier_.note_write(transfer.extent, transfer.offset, transfer.bytes.size());
            } else {
                tier_.note_read(transfer.extent, transfer.offset, transfer.bytes.size());
            }
            free_at_ns_ = std::max(free_at_ns_, tier_.now_ns_.load()) +
                          time_of(transfer.bytes.size(),
                                  is_write ? script.write_ns_per_byte : script.read_ns_per_byte);
            pending.done_at_ns = std::max(
                free_at_ns_, tier_.now_ns_ + (is_write ? script.write_ns : script.read_ns));
            in_flight_.push_back(pending);
            tier_.most_in_flight_ =
                std::max<std::uint64_t>(tier_.most_in_flight_, in_flight_.size());
        }
        TransferEnd wait() noexcept override {
            EXPECT_FALSE(in_flight_.empty());
            const Pending first = in_flight_.front();
            in_flight_.pop_front();
            tier_.now_ns_ = std::max(tier_.now_ns_.load(), first.done_at_ns);
            return {first.tag, first.fails ? Result<void>(failure()) : ok()};
        }

       private:
        struct Pending {
            std::uint64_t tag, done_at_ns;
            bool fails;
        };
        ScriptedTier& tier_;
        std::vector<std::vector<std::byte>> staging_;
        std::deque<Pending> in_flight_;
        std::uint64_t free_at_ns_ = 0;
    };

    static std::uint64_t time_of(std::uint64_t bytes, double ns_per_byte) {
        return static_cast<std::uint64_t>(static_cast<double>(bytes) * ns_per_byte);
    }
    void pass_time(std::uint64_t ns) { now_ns_ += ns; }
    bool failing() { return ++calls_ == script_.failing_call; }
    static Error failure() { return Error(Errc::io, 0, "scripted failure"); }
    void note_write(const Extent& extent, std::uint64_t offset, std::uint64_t size_bytes) {
        ASSERT_LE(offset + size_bytes, extent.length_bytes) << "outside of the extent";
        std::uint64_t& written = written_.at(extent.offset);
        written = std::max(written, offset + size_bytes);
        largest_transfer_bytes_ = std::max(largest_transfer_bytes_, size_bytes);
    }
    void note_read(const Extent& extent, std::uint64_t offset, std::uint64_t size_bytes) {
        EXPECT_LE(offset + size_bytes, written_.at(extent.offset)) << "this was never written";
    }

    TierScript script_;
    TierInfo info_;
    std::atomic<std::uint64_t> now_ns_{0};
    std::uint64_t calls_ = 0, used_bytes_ = 0, peak_bytes_ = 0, next_offset_ = 0;
    std::uint64_t most_in_flight_ = 0, largest_transfer_bytes_ = 0;
    std::map<std::uint64_t, std::uint64_t> written_;  // how far, by the extent's offset
};

}  // namespace frostline
