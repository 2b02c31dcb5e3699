// Sums follow the sets: what enters or leaves a set is added or taken in the same call.
#include "migration/planning/plan_memory.h"

#include <utility>

namespace frostline {

std::optional<Range> first_missing(const RangeSet& set, const Range& window) noexcept {
    Range rest = window;
    while (rest.start < rest.end) {
        const std::optional<Range> in = set.first_in(rest);
        if (!in.has_value()) return rest;
        if (in->start > rest.start) return Range{rest.start, in->start};
        rest.start = in->end;
    }
    return std::nullopt;
}

Range range_of(const TensorRange& range) noexcept {
    return {range.offset_bytes, range.offset_bytes + range.size_bytes};
}

PlanMemory::PlanMemory(const Trace& trace, const Machine& machine, std::span<const Route> routes)
    : trace_(&trace),
      machine_(&machine),
      routes_(routes),
      tensors_(trace.tensors().size()),
      below_(trace.tensors().size() * routes.size()),
      used_(machine.tiers.size()),
      void_bytes_(routes.size()) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        if (trace.tensors()[i].is_weight) bear(static_cast<TensorIndex>(i));
    }
}

void PlanMemory::bear(TensorIndex tensor) {
    tensors_[tensor].is_alive = true;
    take_room(machine_->device, trace_->tensors()[tensor].size_bytes);
}

void PlanMemory::end(TensorIndex tensor) {
    Tensor& each = tensors_[tensor];
    const std::uint64_t held = trace_->tensors()[tensor].size_bytes - each.absent.size_bytes();
    used_[machine_->device] -= static_cast<std::int64_t>(held);
    each = {};
    for (std::size_t route = 0; route < routes_.size(); ++route) {
        used_[routes_[route].tier] -= take_copies(tensor, route);
    }
}

void PlanMemory::write(TensorIndex tensor) {
    for (std::size_t route = 0; route < routes_.size(); ++route) {
        void_bytes_[route] += take_copies(tensor, route);
    }
}

void PlanMemory::free_void_copies() noexcept {
    for (std::size_t route = 0; route < routes_.size(); ++route) {
        used_[routes_[route].tier] -= std::exchange(void_bytes_[route], 0);
    }
}

// Says how many bytes they had.
std::int64_t PlanMemory::take_copies(TensorIndex tensor, std::size_t route) noexcept {
    return static_cast<std::int64_t>(std::exchange(copies(tensor, route), {}).size_bytes());
}

void PlanMemory::take_room(TierIndex tier, std::uint64_t bytes) noexcept {
    used_[tier] += static_cast<std::int64_t>(bytes);
}

void PlanMemory::arrive_on_device(const TensorRange& range) {
    tensors_[range.tensor].absent.remove(range_of(range));
}

void PlanMemory::arrive_below(const TensorRange& range, std::size_t route) {
    copies(range.tensor, route).add(range_of(range));
}

void PlanMemory::drop_from_device(const TensorRange& range) {
    tensors_[range.tensor].absent.add(range_of(range));
    used_[machine_->device] -= static_cast<std::int64_t>(range.size_bytes);
}

void PlanMemory::drop_below(const TensorRange& range, std::size_t route) {
    copies(range.tensor, route).remove(range_of(range));
    used_[routes_[route].tier] -= static_cast<std::int64_t>(range.size_bytes);
}

void PlanMemory::place_below(const TensorRange& range, std::size_t route) {
    for (Range rest = range_of(range);;) {
        const std::optional<Range> missing = first_missing(below(range.tensor, route), rest);
        if (!missing.has_value()) return;
        copies(range.tensor, route).add(*missing);
        take_room(routes_[route].tier, missing->size_bytes());
    }
}

}  // namespace frostline
