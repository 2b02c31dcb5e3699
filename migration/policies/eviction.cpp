// Where an evicted tensor goes.
#include "migration/policies/eviction.h"

#include <algorithm>

namespace frostline {
namespace {

constexpr TierId kFastest{0};

bool movable(const ResidencyState& state) {
    return state.home == kFastest && state.pins == 0 && !state.moving && !state.released;
}

// How long the bytes would take to come back, or nothing if that was not measured.
std::optional<double> return_ns(const TierView& tier, std::uint64_t bytes) {
    const TierSpeed& speed = tier.speed;
    if (speed.read_bytes_per_s == 0) return std::nullopt;
    return static_cast<double>(speed.read_latency_ns) +
           static_cast<double>(bytes) * 1e9 / static_cast<double>(speed.read_bytes_per_s);
}

}  // namespace

Eviction::Eviction(const PolicyView& view, std::vector<Decision>& decisions)
    : view_(view),
      decisions_(decisions),
      free_bytes_(view.tiers[0].free_bytes() + view.tiers[0].leaving_bytes) {
    for (std::size_t i = 0; i < view.tiers.size(); ++i) {
        room_bytes_[i] = view.tiers[i].free_bytes();
    }
}

bool Eviction::evict(const TensorRecord& tensor) {
    if (!movable(tensor.residency.load())) return false;
    const auto tier = place(tensor);
    if (!tier) return false;
    decide_move(tensor, *tier);
    return true;
}

bool Eviction::evict_to(const TensorRecord& tensor, TierId tier) {
    if (!movable(tensor.residency.load())) return false;
    if (!can_take(tensor, index_of(tier))) {
        if (!fits(index_of(tier), tensor.size_bytes)) return false;
        room_bytes_[index_of(tier)] -= tensor.size_bytes;
    }
    decide_move(tensor, index_of(tier));
    return true;
}

void Eviction::decide_move(const TensorRecord& tensor, std::size_t tier) {
    decisions_.push_back({Decision::Action::move, tensor.id(), static_cast<TierId>(tier)});
    free_bytes_ += view_.tiers[0].charged_bytes(tensor.size_bytes);
}

bool Eviction::fits(std::size_t tier, std::uint64_t bytes) const {
    return view_.tiers[tier].open && room_bytes_[tier] >= bytes;
}

// Whether that copy is still there after the decisions made so far.
bool Eviction::has_copy(const TensorRecord& tensor, TierId tier) const {
    return tensor.copy_in(tier) != nullptr &&
           std::find(decisions_.begin(), decisions_.end(),
                     Decision{Decision::Action::drop_copy, tensor.id(), tier}) == decisions_.end();
}

// A copy that a write made void still has the room for a new one, in an open tier.
bool Eviction::can_take(const TensorRecord& tensor, std::size_t tier) const {
    const bool written = tensor.residency.load().written;
    return (!written || view_.tiers[tier].open) && has_copy(tensor, static_cast<TierId>(tier));
}

std::optional<std::size_t> Eviction::place(const TensorRecord& tensor) {
    const std::size_t tiers = view_.tiers.size();
    for (std::size_t tier = 1; tier < tiers; ++tier) {
        if (can_take(tensor, tier)) return tier;
    }
    if (const auto tier = soonest_back(tensor.size_bytes)) {
        room_bytes_[*tier] -= tensor.size_bytes;
        return tier;
    }
    for (std::size_t tier = 1; tier < tiers; ++tier) {
        const TierView& view = view_.tiers[tier];
        if (!view.open || view.capacity_bytes < tensor.size_bytes) continue;
        if (drop_spare_copies(tier, tensor.size_bytes)) {
            room_bytes_[tier] -= tensor.size_bytes;
            return tier;
        }
    }
    return std::nullopt;
}

// Of the lower tiers with room, the one that will bring the bytes back soonest. Measurements vary:
// a later tier must be clearly faster to be preferred, and where one is not measured the order of
// the tiers decides.
std::optional<std::size_t> Eviction::soonest_back(std::uint64_t bytes) const {
    constexpr double kClearly = 0.9;
    std::optional<std::size_t> best;
    for (std::size_t tier = 1; tier < view_.tiers.size(); ++tier) {
        if (!fits(tier, bytes)) continue;
        if (!best) {
            best = tier;
            continue;
        }
        const auto best_ns = return_ns(view_.tiers[*best], bytes);
        const auto tier_ns = return_ns(view_.tiers[tier], bytes);
        if (best_ns && tier_ns && *tier_ns < kClearly * *best_ns) best = tier;
    }
    return best;
}

// A second copy that only saves a later eviction gives way to data that has no other place; if all
// of them together would not do, none does.
bool Eviction::drop_spare_copies(std::size_t tier, std::uint64_t bytes) {
    const std::size_t decisions_before = decisions_.size();
    const std::uint64_t room_before = room_bytes_[tier];
    const auto id = static_cast<TierId>(tier);
    // From the most recently used, whose eviction is furthest away. C++20 has views::reverse for
    // this, which clang 14 cannot compile with GCC's library.
    for (auto each = view_.by_use.rbegin(); each != view_.by_use.rend(); ++each) {  // NOLINT
        if (fits(tier, bytes)) return true;
        const ResidencyState state = each->residency.load();
        if (state.home == id || state.moving || state.released) continue;
        if (!has_copy(*each, id)) continue;
        decisions_.push_back({Decision::Action::drop_copy, each->id(), id});
        room_bytes_[tier] += each->size_bytes;
    }
    if (fits(tier, bytes)) return true;
    decisions_.resize(decisions_before);
    room_bytes_[tier] = room_before;
    return false;
}

}  // namespace frostline
