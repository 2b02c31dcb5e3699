// How bytes of one tensor leave for one gap: links' time is found for the way out and the way back
// before either is taken.
#include "migration/planning/transfer_planner.h"

#include <algorithm>
#include <cmath>

namespace frostline {
namespace {

constexpr std::int64_t kLeastPart = 16384;  // of the device, for one to leave by itself

}  // namespace

std::int64_t TransferPlanner::offset(TensorIndex tensor) const noexcept {
    return static_cast<std::int64_t>(trace_.tensors()[tensor].size_bytes) -
           tensors_[tensor].resident;
}

// Whether some route has time for the way out (since it was written) and for the way back.
bool TransferPlanner::can_be_away(TensorIndex tensor, SlotIndex slot,
                                  SlotIndex needed_at) noexcept {
    const Tensor& each = tensors_[tensor];
    const bool is_clean = offset(tensor) < each.clean_end();
    const SlotIndex next_use = std::min(each.next_use, links_.size());
    return std::any_of(routes_.begin(), routes_.end(), [&](const Route& route) {
        return (is_clean || links_.first_free(route.out, each.writable_from) <= slot) &&
               links_.last_free(route.in, next_use - 1) > needed_at;
    });
}

// Takes at most `bytes`, and says how many.
std::int64_t TransferPlanner::evict(const Eviction& eviction, std::int64_t bytes) {
    Tensor& each = tensors_[eviction.tensor];
    bytes = std::min(bytes, each.resident);
    std::int64_t done = 0;
    while (done < bytes) {
        const std::int64_t at = offset(eviction.tensor);
        std::int64_t taken = 0;
        if (at < each.clean_end()) {
            const auto copy = std::upper_bound(
                each.clean.begin(), each.clean.end(), at,
                [](std::int64_t position, const CleanCopy& copy) { return position < copy.end; });
            taken =
                evict_over(eviction, copy->route, std::min(bytes - done, copy->end - at), false);
        } else {
            taken = evict_dirty(eviction, bytes - done);
        }
        if (taken == 0) break;
        done += taken;
    }
    if (each.resident == 0) idle_.erase({each.next_use, eviction.tensor});
    return done;
}

bool TransferPlanner::goes_slow_first(const Eviction& eviction) const noexcept {
    return tensors_[eviction.tensor].next_use - eviction.slot >= settings_.slow_from_slots;
}

std::int64_t TransferPlanner::evict_dirty(const Eviction& eviction, std::int64_t bytes) {
    const auto routes = static_cast<std::uint32_t>(routes_.size());
    const bool slow_first = goes_slow_first(eviction);
    for (std::uint32_t i = 0; i < routes; ++i) {
        const std::uint32_t route = slow_first ? routes - 1 - i : i;
        // A slow way is not forced while a faster one may be.
        Eviction attempt = eviction;
        if (slow_first && i + 1 < routes) attempt.forced = false;
        const std::int64_t taken = evict_over(attempt, route, bytes, true);
        if (taken > 0) return taken;
    }
    return 0;
}

std::int64_t TransferPlanner::evict_over(const Eviction& eviction, std::uint32_t route,
                                         std::int64_t bytes, bool dirty) {
    const Tensor& each = tensors_[eviction.tensor];
    const auto limit_to_room = [&](SlotIndex from) {
        const std::int64_t fits = room(route, from, copies_until(each));
        lacked_room_ |= fits < bytes;
        bytes = std::min(bytes, fits);
    };
    if (dirty) {
        limit_to_room(eviction.slot);  // asked first, because it costs least
        if (bytes <= 0) return 0;
    }
    bytes = find_ins(eviction, routes_[route].in, bytes);
    if (bytes > 0 && dirty) {
        const std::int64_t worth = std::min(bytes, device_bytes_ / kLeastPart);
        bytes = find_outs(eviction, routes_[route].out, bytes);
        if (bytes == 0 || bytes < worth)
            return 0;  // the next slots' time will be worth more at once
        limit_to_room(found_outs_.front().slot);
    }
    if (bytes <= 0) return 0;
    if (dirty) book_outs(eviction, route, bytes);
    book_ins(eviction, route, bytes);
    const auto at = static_cast<std::uint64_t>(offset(eviction.tensor));
    drops_.emplace_back(eviction.slot,
                        PlannedDrop{{eviction.tensor, at, static_cast<std::uint64_t>(bytes)},
                                    each.gap,
                                    eviction.away_from(),
                                    each.next_use});
    tensors_[eviction.tensor].resident -= bytes;
    return bytes;
}

// From when the content was written last; what a forced eviction finds no time for takes the time
// of the slot before.
std::int64_t TransferPlanner::find_outs(const Eviction& eviction, LinkIndex link,
                                        std::int64_t bytes) {
    found_outs_.clear();
    const SlotIndex last = eviction.away_from() - 1;
    std::int64_t found = 0;
    SlotIndex slot = links_.first_free(link, tensors_[eviction.tensor].writable_from);
    while (found < bytes && slot <= last && slot < links_.size()) {
        const std::int64_t part = std::min(bytes - found, links_.free_bytes(link, slot));
        found_outs_.push_back({slot, part});
        found += part;
        slot = links_.first_free(link, slot + 1);
    }
    if (eviction.forced && found < bytes) {
        const SlotIndex latest = std::max(last, tensors_[eviction.tensor].writable_from);
        found_outs_.push_back({latest, bytes - found});
        found = bytes;
    }
    return found;
}

// As late as there is time, but behind where the bytes must be away.
std::int64_t TransferPlanner::find_ins(const Eviction& eviction, LinkIndex link,
                                       std::int64_t bytes) {
    found_ins_.clear();
    const SlotIndex next_use = std::min(tensors_[eviction.tensor].next_use, links_.size());
    const SlotIndex away =
        eviction.forced ? eviction.slot : std::max(eviction.needed_at, eviction.slot);
    std::int64_t found = 0;
    SlotIndex slot = links_.last_free(link, next_use - 1);
    while (found < bytes && slot > away) {
        const std::int64_t part = std::min(bytes - found, links_.free_bytes(link, slot));
        found_ins_.push_back({slot, part});
        found += part;
        slot = slot == 0 ? -1 : links_.last_free(link, slot - 1);
    }
    if (eviction.forced && found < bytes) {
        found_ins_.push_back({next_use - 1, bytes - found});
        found = bytes;
    }
    return found;
}

// How long a copy below takes its room.
SlotIndex TransferPlanner::copies_until(const Tensor& tensor) const noexcept {
    return settings_.keeps_copies ? tensor.void_at : tensor.next_use;
}

std::int64_t TransferPlanner::room(std::uint32_t route, SlotIndex from,
                                   SlotIndex to) const noexcept {
    const auto size = static_cast<std::int64_t>(machine_.tiers[routes_[route].tier].size_bytes);
    return size - std::max<std::int64_t>(0, below_[route].most(from, std::min(to, links_.size())));
}

// A copy takes its link for the latency, too. Parts of one gap are joined, so that one of them
// counts.
std::int64_t TransferPlanner::latency_bytes(LinkIndex link) const noexcept {
    const MachineLink& each = machine_.links[link];
    return static_cast<std::int64_t>(static_cast<double>(each.latency_ns) *
                                     machine_.bytes_per_second(each) / 1e9);
}

void TransferPlanner::book_outs(const Eviction& eviction, std::uint32_t route, std::int64_t bytes) {
    Tensor& each = tensors_[eviction.tensor];
    each.clean.push_back({offset(eviction.tensor) + bytes, route});
    below_[route].add(found_outs_.front().slot, std::min(copies_until(each), links_.size()), bytes);
    book(eviction, {routes_[route].out, found_outs_, outs_, each.out_gap}, bytes);
}

void TransferPlanner::book_ins(const Eviction& eviction, std::uint32_t route, std::int64_t bytes) {
    std::int64_t rest = bytes;
    for (const Booking& booking : found_ins_) {
        const std::int64_t part = std::min(booking.bytes, rest);
        device_.add(eviction.away_from(), std::max(eviction.away_from(), booking.slot), -part);
        rest -= part;
    }
    book(eviction, {routes_[route].in, found_ins_, ins_, tensors_[eviction.tensor].in_gap}, bytes);
}

void TransferPlanner::book(const Eviction& eviction, const Way& way, std::int64_t bytes) {
    const Tensor& each = tensors_[eviction.tensor];
    std::int64_t at = offset(eviction.tensor);
    std::int64_t overhead = way.booked_gap == each.gap ? 0 : latency_bytes(way.link);
    way.booked_gap = each.gap;
    for (const Booking& booking : way.found) {
        const std::int64_t part = std::min(booking.bytes, bytes);
        if (part == 0) break;
        links_.take(way.link, booking.slot, part + overhead);
        overhead = 0;
        const TensorRange range{eviction.tensor, static_cast<std::uint64_t>(at),
                                static_cast<std::uint64_t>(part)};
        way.copies.emplace_back(eviction.slot, PlannedCopy{range, way.link, each.gap, booking.slot,
                                                           each.next_use, each.void_at});
        at += part;
        bytes -= part;
    }
}

std::vector<Route> routes_of(const Machine& machine) {
    std::vector<Route> routes;
    for (LinkIndex out = 0; out < machine.links.size(); ++out) {
        if (machine.links[out].from != machine.device) continue;
        for (LinkIndex in = 0; in < machine.links.size(); ++in) {
            if (machine.links[in].to == machine.device &&
                machine.links[in].from == machine.links[out].to) {
                routes.push_back({machine.links[out].to, out, in});
            }
        }
    }
    std::stable_sort(routes.begin(), routes.end(), [&](const Route& a, const Route& b) {
        return machine.bytes_per_second(machine.links[a.in]) >
               machine.bytes_per_second(machine.links[b.in]);
    });
    return routes;
}

}  // namespace frostline
