// Two pools, of small blocks and of large ones, whose free blocks are ordered by size and address.
#include "bench/caching_model.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

namespace frostline::bench {
namespace {

constexpr std::uint64_t kMib = std::uint64_t{1} << 20;
constexpr std::uint64_t kUnit = 512;
constexpr std::uint64_t kMostSmall = kMib;
constexpr std::uint64_t kSmallSegment = 2 * kMib;
constexpr std::uint64_t kLargeSegment = 20 * kMib;
constexpr std::uint64_t kOwnSegmentFrom = 10 * kMib;
constexpr std::uint64_t kOwnSegmentUnit = 2 * kMib;

constexpr std::uint64_t round_up(std::uint64_t size, std::uint64_t unit) {
    return (size + unit - 1) / unit * unit;
}

class Pool {
   public:
    explicit Pool(bool small) : small_(small) {}

    // The address of `size` bytes; adds to `reserved` what a new segment takes.
    std::uint64_t take(std::uint64_t size, std::uint64_t& reserved) {
        auto best = free_.lower_bound({size, 0});
        if (best == free_.end()) {
            const std::uint64_t segment = segment_for(size);
            reserved += segment;
            best = add_free(next_, segment);
            next_ += segment + kUnit;  // segments never touch
        }
        const auto [block, address] = *best;
        remove_free(best);
        const bool split = small_ ? block - size >= kUnit : block - size > kMostSmall;
        if (split) add_free(address + size, block - size);
        held_[address] = split ? size : block;
        return address;
    }

    void give(std::uint64_t address) {
        const auto held = held_.find(address);
        std::uint64_t size = held->second;
        held_.erase(held);
        auto after = by_address_.find(address + size);
        if (after != by_address_.end()) {
            size += after->second;
            remove_free(free_.find({after->second, after->first}));
        }
        const auto before = by_address_.lower_bound(address);
        if (before != by_address_.begin()) {
            const auto [start, length] = *std::prev(before);
            if (start + length == address) {
                remove_free(free_.find({length, start}));
                address = start;
                size += length;
            }
        }
        add_free(address, size);
    }

   private:
    using Free = std::set<std::pair<std::uint64_t, std::uint64_t>>;  // size, address

    std::uint64_t segment_for(std::uint64_t size) const {
        if (small_) return kSmallSegment;
        return size < kOwnSegmentFrom ? kLargeSegment : round_up(size, kOwnSegmentUnit);
    }
    Free::iterator add_free(std::uint64_t address, std::uint64_t size) {
        by_address_[address] = size;
        return free_.emplace(size, address).first;
    }
    void remove_free(Free::iterator block) {
        by_address_.erase(block->second);
        free_.erase(block);
    }

    const bool small_;
    std::uint64_t next_ = kUnit;
    Free free_;
    std::map<std::uint64_t, std::uint64_t> by_address_;  // the same
    std::map<std::uint64_t, std::uint64_t> held_;
};

}  // namespace

std::uint64_t caching_model_peak_bytes(const AllocationStream& stream) {
    struct Place {
        Pool* pool = nullptr;
        std::uint64_t address = 0;
    };
    Pool small(true);
    Pool large(false);
    std::vector<Place> places(stream.blocks);
    std::uint64_t reserved = 0;  // never falls
    for (const AllocationEvent& event : stream.events) {
        Place& place = places[event.block];
        if (event.size_bytes == 0) {
            place.pool->give(place.address);
            continue;
        }
        const std::uint64_t size = round_up(event.size_bytes, kUnit);
        place.pool = size <= kMostSmall ? &small : &large;
        place.address = place.pool->take(size, reserved);
    }
    return reserved;
}

}  // namespace frostline::bench
