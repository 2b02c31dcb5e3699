// How many bytes a tier would hold in each slot of a plan: a segment tree with additions to ranges.
// Each call costs O(log n).
#pragma once

#include "migration/planning/plan_timeline.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace frostline {

/// Not thread-safe.
class Occupancy {
   public:
    /// May throw std::bad_alloc.
    explicit Occupancy(std::span<const std::int64_t> bytes_by_slot);

    /// To all slots in [from, to), which lie within; nothing if it is empty.
    void add(SlotIndex from, SlotIndex to, std::int64_t bytes) noexcept;
    /// The most in [from, to); INT64_MIN / 4 if it is empty.
    std::int64_t most(SlotIndex from, SlotIndex to) const noexcept;
    /// The first slot at or after `from`, and the last one before `to`, that holds more than
    /// `limit`; -1 if there is none.
    SlotIndex first_above(SlotIndex from, std::int64_t limit) const noexcept;
    SlotIndex last_above(SlotIndex to, std::int64_t limit) const noexcept;

   private:
    struct Node {
        std::size_t index;
        SlotIndex from;
        SlotIndex to;

        SlotIndex middle() const noexcept { return (from + to) / 2; }
        Node left() const noexcept { return {2 * index, from, middle()}; }
        Node right() const noexcept { return {2 * index + 1, middle(), to}; }
        bool is_leaf() const noexcept { return to - from == 1; }
    };
    Node root() const noexcept { return {1, 0, leaves_}; }
    void add(Node node, SlotIndex from, SlotIndex to, std::int64_t bytes) noexcept;
    std::int64_t most(Node node, SlotIndex from, SlotIndex to) const noexcept;
    SlotIndex first_above(Node node, SlotIndex from, std::int64_t limit) const noexcept;
    SlotIndex last_above(Node node, SlotIndex to, std::int64_t limit) const noexcept;

    SlotIndex leaves_ = 1;
    // Of each node: the most below it, `added_` included; what was added to all below it.
    std::vector<std::int64_t> most_;
    std::vector<std::int64_t> added_;
};

}  // namespace frostline
