// Where weights lie before the first step. No tier is given more than it holds; what fits nowhere
// below stays on the device, and run() refuses a device that is overfull then.
#include "migration/planning/plan_execution.h"

#include <algorithm>

namespace frostline {

// As a step like this one would leave it to the next.
void PlanExecution::place_weights() {
    const auto route_of = [&](LinkIndex link) {
        return static_cast<std::size_t>(std::find_if(routes_.begin(), routes_.end(),
                                                     [&](const Route& route) {
                                                         return route.out == link ||
                                                                route.in == link;
                                                     }) -
                                        routes_.begin());
    };
    for (const StandingCopy& copy : plan_.standing) {
        const auto route = std::find_if(routes_.begin(), routes_.end(),
                                        [&](const Route& each) { return each.tier == copy.tier; });
        place_below({copy.tensor, 0, trace_.tensors()[copy.tensor].size_bytes},
                    static_cast<std::size_t>(route - routes_.begin()));
    }
    for (LinkIndex link = 0; link < machine_.links.size(); ++link) {
        for (const QueuedCopy& copy : queues_.outs[link]) {
            if (copy.slot >= 0 || copy.void_at <= 0) continue;
            if (trace_.tensors()[copy.range.tensor].is_weight) {
                place_below(copy.range, route_of(link));
            }
        }
        for (const QueuedCopy& copy : queues_.ins[link]) {
            if (copy.step >= 0 || copy.slot < 0) continue;
            if (place_below(copy.range, route_of(link))) drop_whole(copy.range);
        }
        std::erase_if(queues_.outs[link], [](const QueuedCopy& copy) { return copy.slot < 0; });
        std::erase_if(queues_.ins[link], [](const QueuedCopy& copy) { return copy.slot < 0; });
    }
    make_weights_fit();
    for (std::size_t i = 0; i < trace_.tensors().size(); ++i) {
        const auto tensor = static_cast<TensorIndex>(i);
        if (!trace_.tensors()[i].is_weight) continue;
        const Range whole{0, trace_.tensors()[i].size_bytes};
        const auto place = [&](const Range& range, TierIndex tier) {
            result_.schedule.init.push_back({{tensor, range.start, range.size_bytes()}, tier});
        };
        for (Range rest = whole; rest.start < rest.end;) {
            const auto there = first_missing(memory_.absent(tensor), rest);
            if (!there.has_value()) break;
            place(*there, machine_.device);
            rest.start = there->end;
        }
        for (std::size_t route = 0; route < routes_.size(); ++route) {
            for (Range rest = whole; rest.start < rest.end;) {
                const auto copy = memory_.below(tensor, route).first_in(rest);
                if (!copy.has_value()) break;
                place(*copy, routes_[route].tier);
                rest.start = copy->end;
            }
        }
    }
}

// Where the plan leaves too much on the device, what is used last goes below.
void PlanExecution::make_weights_fit() {
    std::vector<TensorIndex> weights;
    for (std::size_t i = 0; i < trace_.tensors().size(); ++i) {
        if (trace_.tensors()[i].is_weight) weights.push_back(static_cast<TensorIndex>(i));
    }
    std::stable_sort(weights.begin(), weights.end(), [&](TensorIndex a, TensorIndex b) {
        const auto first = [&](TensorIndex tensor) {
            const TraceTensor& each = trace_.tensors()[tensor];
            return each.is_used ? std::int64_t{each.first_use} : INT64_MAX;
        };
        return first(a) > first(b);
    });
    for (const TensorIndex tensor : weights) {
        for (std::size_t route = 0; route < routes_.size(); ++route) {
            while (memory_.free_bytes(machine_.device) < 0 && place_part_below(tensor, route)) {
            }
        }
    }
}

// As much of the first part on the device as the device lacks and the tier has; false if nothing.
bool PlanExecution::place_part_below(TensorIndex tensor, std::size_t route) {
    const auto there =
        first_missing(memory_.absent(tensor), {0, trace_.tensors()[tensor].size_bytes});
    if (!there.has_value()) return false;
    const auto copied = memory_.below(tensor, route).first_in(*there);
    std::int64_t most = -memory_.free_bytes(machine_.device);
    if (!copied.has_value()) most = std::min(most, memory_.free_bytes(routes_[route].tier));
    if (most <= 0) return false;
    const Range from = copied.value_or(*there);
    const TensorRange part{tensor, from.start,
                           std::min(from.size_bytes(), static_cast<std::uint64_t>(most))};
    memory_.place_below(part, route);
    memory_.drop_from_device(part);
    return true;
}

// False, and nothing placed, where the tier has no room for it.
bool PlanExecution::place_below(const TensorRange& range, std::size_t route) {
    const std::uint64_t there = memory_.below(range.tensor, route).size_bytes_in(range_of(range));
    const auto lacking = static_cast<std::int64_t>(range.size_bytes - there);
    if (memory_.free_bytes(routes_[route].tier) < lacking) return false;
    memory_.place_below(range, route);
    return true;
}

void PlanExecution::drop_whole(const TensorRange& range) {
    while (const auto there = first_missing(memory_.absent(range.tensor), range_of(range))) {
        memory_.drop_from_device({range.tensor, there->start, there->size_bytes()});
    }
}

}  // namespace frostline
