// What happens when nothing under way will let the next kernel start: what it lacks is fetched, and
// what is used again last makes room.
#include "migration/planning/plan_execution.h"

#include <algorithm>

namespace frostline {

bool PlanExecution::rescue() {
    for (const TensorIndex tensor : uses_.tensors(kernel_)) {
        if (memory_.is_alive(tensor) && memory_.absent(tensor).size_bytes() > 0) {
            return fetch_missing(tensor);
        }
    }
    return make_room(born_bytes_[kernel_]);
}

bool PlanExecution::fetch_missing(TensorIndex tensor) {
    const std::uint64_t size = trace_.tensors()[tensor].size_bytes;
    const auto absent = memory_.absent(tensor).first_in({0, size});
    for (std::size_t route = 0; absent.has_value() && route < routes_.size(); ++route) {
        const auto copy = memory_.below(tensor, route).first_in(*absent);
        if (!copy.has_value()) continue;
        const std::uint64_t bytes = std::min(copy->size_bytes(), settings_.largest_copy_bytes);
        if (memory_.free_bytes(machine_.device) < static_cast<std::int64_t>(bytes)) {
            return make_room(bytes);
        }
        return start_copy({tensor, copy->start, bytes}, route, true);
    }
    return false;
}

// One step towards it. What lies below, too, goes at once; else a part of it is copied out.
bool PlanExecution::make_room(std::uint64_t bytes) {
    const std::int64_t lacking =
        static_cast<std::int64_t>(bytes) - memory_.free_bytes(machine_.device);
    if (lacking <= 0) return false;
    makes_room_ = true;
    TensorIndex victim = 0;
    SlotIndex latest = -1;
    for (std::size_t i = 0; i < trace_.tensors().size(); ++i) {
        const auto tensor = static_cast<TensorIndex>(i);
        if (!memory_.is_alive(tensor) ||
            memory_.absent(tensor).size_bytes() == trace_.tensors()[i].size_bytes ||
            uses_.uses(kernel_, tensor)) {
            continue;
        }
        const SlotIndex use = next_use(tensor);
        if (use > latest) {
            latest = use;
            victim = tensor;
        }
    }
    if (latest < 0) return false;
    const auto there =
        first_missing(memory_.absent(victim), {0, trace_.tensors()[victim].size_bytes});
    const std::uint64_t most = std::min(
        {there->size_bytes(), settings_.largest_copy_bytes, static_cast<std::uint64_t>(lacking)});
    const TensorRange range{victim, there->start, most};
    if (drop_copied_part(range)) return true;
    if (is_being_copied(victim)) return false;
    for (std::size_t route = 0; route < routes_.size(); ++route) {
        if (memory_.free_bytes(routes_[route].tier) < static_cast<std::int64_t>(most)) continue;
        if (!start_copy(range, route, false)) continue;
        due_.push_back({range, 0, latest});
        return true;
    }
    return false;
}

// From here on; far beyond all others if there is none.
SlotIndex PlanExecution::next_use(TensorIndex tensor) const noexcept {
    const auto uses = uses_.of(tensor);
    if (uses.empty()) return INT64_MAX;
    const auto next = std::lower_bound(
        uses.begin(), uses.end(), kernel_,
        [](const TensorUse& use, KernelIndex kernel) { return use.kernel < kernel; });
    return next != uses.end()
               ? step_ * timeline_.size() + timeline_.kernel_slot(next->kernel)
               : (step_ + 1) * timeline_.size() + timeline_.kernel_slot(uses[0].kernel);
}

Error PlanExecution::stuck() const {
    return Error(Errc::no_space, 0,
                 "kernel {} ({}) of step {} cannot run: the tiers below the device are full",
                 kernel_, trace_.name(kernel_), step_);
}

}  // namespace frostline
