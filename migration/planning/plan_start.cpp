// Where weights lie before the first step.
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
        memory_.place_below({copy.tensor, 0, trace_.tensors()[copy.tensor].size_bytes},
                            static_cast<std::size_t>(route - routes_.begin()));
    }
    for (LinkIndex link = 0; link < machine_.links.size(); ++link) {
        for (const QueuedCopy& copy : queues_.outs[link]) {
            if (copy.slot >= 0 || copy.void_at <= 0) continue;
            if (trace_.tensors()[copy.range.tensor].is_weight) {
                memory_.place_below(copy.range, route_of(link));
            }
        }
        for (const QueuedCopy& copy : queues_.ins[link]) {
            if (copy.step >= 0 || copy.slot < 0) continue;
            memory_.place_below(copy.range, route_of(link));
            for (Range rest = range_of(copy.range);;) {
                const auto there = first_missing(memory_.absent(copy.range.tensor), rest);
                if (!there.has_value()) break;
                memory_.drop_from_device({copy.range.tensor, there->start, there->size_bytes()});
            }
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
        const std::uint64_t size = trace_.tensors()[tensor].size_bytes;
        for (std::size_t route = 0; route < routes_.size(); ++route) {
            if (memory_.free_bytes(machine_.device) >= 0) return;
            const auto lacking =
                static_cast<std::int64_t>(size - memory_.below(tensor, route).size_bytes());
            if (memory_.free_bytes(routes_[route].tier) < lacking) continue;
            memory_.place_below({tensor, 0, size}, route);
            while (const auto there = first_missing(memory_.absent(tensor), {0, size})) {
                memory_.drop_from_device({tensor, there->start, there->size_bytes()});
            }
        }
    }
}

}  // namespace frostline
