// Least recently used eviction with reverse-birth-order prefetch.
#include "migration/lru_policy.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace frostline {
namespace {

constexpr TierId kTop{0};

// What the tiers will have left once the decisions made so far are carried out.
class Room {
   public:
    explicit Room(std::span<const TierView> tiers) : tiers_(tiers) {
        for (std::size_t i = 0; i < tiers.size(); ++i) free_bytes_[i] = tiers[i].free_bytes();
    }
    bool fits(std::size_t tier, std::uint64_t bytes) const {
        return tiers_[tier].open && free_bytes_[tier] >= bytes;
    }
    void take(std::size_t tier, std::uint64_t bytes) { free_bytes_[tier] -= bytes; }
    void give(std::size_t tier, std::uint64_t bytes) { free_bytes_[tier] += bytes; }
    std::size_t tiers() const { return tiers_.size(); }
    bool open(std::size_t tier) const { return tiers_[tier].open; }

   private:
    std::span<const TierView> tiers_;
    std::array<std::uint64_t, kMaxTiers> free_bytes_{};
};

bool movable(const ResidencyState& state) {
    return state.pins == 0 && !state.moving && !state.released;
}

// Whether that copy is still there after the decisions made so far.
bool has_copy(const TensorRecord& tensor, TierId tier, const std::vector<Decision>& decisions) {
    return tensor.copy_in(tier) != nullptr &&
           std::find(decisions.begin(), decisions.end(),
                     Decision{Decision::Action::drop_copy, tensor.id(), tier}) == decisions.end();
}

// A second copy that only saves a later eviction gives way to data that has no other place; if all
// of them together would not do, none does.
bool drop_spare_copies(const PolicyView& view, std::size_t tier, std::uint64_t bytes, Room& room,
                       std::vector<Decision>& decisions) {
    const std::size_t decisions_before = decisions.size();
    const Room room_before = room;
    const auto id = static_cast<TierId>(tier);
    // From the most recently used, whose eviction is furthest away. C++20 has views::reverse for
    // this, which clang 14 cannot compile with GCC's library.
    for (auto each = view.by_use.rbegin(); each != view.by_use.rend(); ++each) {  // NOLINT
        if (room.fits(tier, bytes)) return true;
        const ResidencyState state = each->residency.load();
        if (state.home == id || state.moving || state.released) continue;
        if (!has_copy(*each, id, decisions)) continue;
        decisions.push_back({Decision::Action::drop_copy, each->id(), id});
        room.give(tier, each->size_bytes);
    }
    if (room.fits(tier, bytes)) return true;
    decisions.resize(decisions_before);
    room = room_before;
    return false;
}

// How long the bytes would take to come back, or nothing if that was not measured.
std::optional<double> return_ns(const TierView& tier, std::uint64_t bytes) {
    const TierSpeed& speed = tier.speed;
    if (speed.read_bytes_per_s == 0) return std::nullopt;
    return static_cast<double>(speed.read_latency_ns) +
           static_cast<double>(bytes) * 1e9 / static_cast<double>(speed.read_bytes_per_s);
}

// Of the lower tiers with room, the one that will bring the bytes back soonest. Measurements vary:
// a later tier must be clearly faster to be preferred, and where one is not measured the order of
// the tiers decides.
std::optional<std::size_t> soonest_back(const PolicyView& view, std::uint64_t bytes,
                                        const Room& room) {
    constexpr double kClearly = 0.9;
    std::optional<std::size_t> best;
    for (std::size_t tier = 1; tier < room.tiers(); ++tier) {
        if (!room.fits(tier, bytes)) continue;
        if (!best) {
            best = tier;
            continue;
        }
        const auto best_ns = return_ns(view.tiers[*best], bytes);
        const auto tier_ns = return_ns(view.tiers[tier], bytes);
        if (best_ns && tier_ns && *tier_ns < kClearly * *best_ns) best = tier;
    }
    return best;
}

std::optional<std::size_t> place_below(const PolicyView& view, const TensorRecord& tensor,
                                       Room& room, std::vector<Decision>& decisions) {
    const bool written = tensor.residency.load().written;
    for (std::size_t tier = 1; tier < room.tiers(); ++tier) {
        // A copy that a write made void still has the room for a new one, in an open tier.
        if ((!written || room.open(tier)) &&
            has_copy(tensor, static_cast<TierId>(tier), decisions)) {
            return tier;
        }
    }
    if (const auto tier = soonest_back(view, tensor.size_bytes, room)) {
        room.take(*tier, tensor.size_bytes);
        return tier;
    }
    for (std::size_t tier = 1; tier < room.tiers(); ++tier) {
        if (!room.open(tier) || view.tiers[tier].capacity_bytes < tensor.size_bytes) continue;
        if (drop_spare_copies(view, tier, tensor.size_bytes, room, decisions)) {
            room.take(tier, tensor.size_bytes);
            return tier;
        }
    }
    return std::nullopt;
}

void evict(const PolicyView& view, std::uint64_t wanted_bytes, std::vector<Decision>& decisions) {
    const TierView& top = view.tiers[0];
    const std::uint64_t goal = std::min(
        top.capacity_bytes, wanted_bytes + top.capacity_bytes / LruPolicy::kHeadroomDivisor);
    std::uint64_t free = top.free_bytes() + top.leaving_bytes;
    Room room(view.tiers);
    for (const TensorRecord& tensor : view.by_use) {
        if (free >= goal) return;
        const ResidencyState state = tensor.residency.load();
        if (!movable(state)) continue;
        const auto tier = place_below(view, tensor, room, decisions);
        if (!tier) continue;  // a smaller one may still fit
        decisions.push_back({Decision::Action::move, tensor.id(), static_cast<TierId>(*tier)});
        free += top.charged_bytes(tensor.size_bytes);
    }
}

// Never evicts to make room: what is resident was born later and is needed sooner.
void prefetch(const PolicyView& view, const TensorRecord& used, std::vector<Decision>& decisions) {
    std::uint64_t ahead = 0;
    std::uint64_t free = view.tiers[0].free_bytes();
    auto each = view.by_birth.iterator_to(used);
    while (each != view.by_birth.begin() && ahead < view.prefetch_bytes) {
        --each;
        const ResidencyState state = each->residency.load();
        if (state.released) continue;
        ahead += each->size_bytes;
        if (state.home == kTop || state.moving) continue;
        const std::uint64_t charged = view.tiers[0].charged_bytes(each->size_bytes);
        if (charged > free) return;
        free -= charged;
        decisions.push_back({Decision::Action::move, each->id(), kTop});
    }
}

}  // namespace

void LruPolicy::decide(const PolicyView& view, const PolicyEvent& event,
                       std::vector<Decision>& decisions) const {
    switch (event.kind) {
        case PolicyEvent::Kind::settled:
            evict(view, 0, decisions);
            break;
        case PolicyEvent::Kind::pressure:
            evict(view, event.bytes, decisions);
            break;
        case PolicyEvent::Kind::used:
            prefetch(view, *event.tensor, decisions);
            break;
    }
}

}  // namespace frostline
