// Additions stay at the nodes whose ranges they cover; limits shrink by them on the way down.
#include "migration/planning/occupancy.h"

#include <algorithm>

namespace frostline {
namespace {

constexpr std::int64_t kNothing = INT64_MIN / 4;

}  // namespace

Occupancy::Occupancy(std::span<const std::int64_t> bytes_by_slot) {
    while (leaves_ < static_cast<SlotIndex>(bytes_by_slot.size())) leaves_ *= 2;
    const auto leaves = static_cast<std::size_t>(leaves_);
    most_.assign(2 * leaves, kNothing);
    added_.assign(2 * leaves, 0);
    std::copy(bytes_by_slot.begin(), bytes_by_slot.end(),
              most_.begin() + static_cast<std::ptrdiff_t>(leaves));
    for (std::size_t i = leaves - 1; i > 0; --i)
        most_[i] = std::max(most_[2 * i], most_[2 * i + 1]);
}

void Occupancy::add(SlotIndex from, SlotIndex to, std::int64_t bytes) noexcept {
    if (from < to) add(root(), from, to, bytes);
}

void Occupancy::add(Node node, SlotIndex from, SlotIndex to, std::int64_t bytes) noexcept {
    if (to <= node.from || node.to <= from) return;
    if (from <= node.from && node.to <= to) {
        most_[node.index] += bytes;
        added_[node.index] += bytes;
        return;
    }
    add(node.left(), from, to, bytes);
    add(node.right(), from, to, bytes);
    most_[node.index] =
        std::max(most_[2 * node.index], most_[2 * node.index + 1]) + added_[node.index];
}

std::int64_t Occupancy::most(SlotIndex from, SlotIndex to) const noexcept {
    return from < to ? most(root(), from, to) : kNothing;
}

std::int64_t Occupancy::most(Node node, SlotIndex from, SlotIndex to) const noexcept {
    if (to <= node.from || node.to <= from) return kNothing;
    if (from <= node.from && node.to <= to) return most_[node.index];
    return std::max(most(node.left(), from, to), most(node.right(), from, to)) + added_[node.index];
}

SlotIndex Occupancy::first_above(SlotIndex from, std::int64_t limit) const noexcept {
    return first_above(root(), from, limit);
}

SlotIndex Occupancy::first_above(Node node, SlotIndex from, std::int64_t limit) const noexcept {
    if (node.to <= from || most_[node.index] <= limit) return -1;
    if (node.is_leaf()) return node.from;
    const std::int64_t below = limit - added_[node.index];
    const SlotIndex found = first_above(node.left(), from, below);
    return found >= 0 ? found : first_above(node.right(), from, below);
}

SlotIndex Occupancy::last_above(SlotIndex to, std::int64_t limit) const noexcept {
    return last_above(root(), to, limit);
}

SlotIndex Occupancy::last_above(Node node, SlotIndex to, std::int64_t limit) const noexcept {
    if (to <= node.from || most_[node.index] <= limit) return -1;
    if (node.is_leaf()) return node.from;
    const std::int64_t below = limit - added_[node.index];
    const SlotIndex found = last_above(node.right(), to, below);
    return found >= 0 ? found : last_above(node.left(), to, below);
}

}  // namespace frostline
