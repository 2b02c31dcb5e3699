// Time goes on from slot to slot. Tensors are idle from the kernel that used them to the next one
// that does; only what is idle may be away.
#include "migration/planning/transfer_planner.h"

#include <algorithm>

namespace frostline {
namespace {

// How many tensors are tried for one need: those that are used again last are best, and where none
// of many fits, links have no time.
constexpr int kMostTries = 64;
constexpr int kMostLooks = 2048;  // at tensors that cannot be away at all

std::vector<Occupancy> empty_tiers(std::size_t tiers, SlotIndex slots) {
    return {tiers, Occupancy(std::vector<std::int64_t>(static_cast<std::size_t>(slots)))};
}

}  // namespace

TransferPlanner::TransferPlanner(const Trace& trace, const Machine& machine, const TensorUses& uses,
                                 std::span<const Route> routes, const PlanTimeline& timeline,
                                 const TransferSettings& settings)
    : trace_(trace),
      machine_(machine),
      uses_(uses),
      routes_(routes),
      timeline_(timeline),
      settings_(settings),
      device_bytes_(static_cast<std::int64_t>(settings.device_bytes)),
      tensors_(trace.tensors().size()),
      device_(living_bytes()),
      below_(empty_tiers(routes.size(), timeline.size() * kSteps)),
      links_(machine, timeline, kSteps) {}

// What would be on the device in each slot if nothing ever left.
std::vector<std::int64_t> TransferPlanner::living_bytes() const {
    const SlotIndex size = timeline_.size();
    std::vector<std::int64_t> changes(static_cast<std::size_t>(size) + 1, 0);
    for (const TraceTensor& tensor : trace_.tensors()) {
        const auto bytes = static_cast<std::int64_t>(tensor.size_bytes);
        if (tensor.is_weight) {
            changes[0] += bytes;
        } else if (tensor.is_used) {
            changes[static_cast<std::size_t>(timeline_.kernel_slot(tensor.first_use))] += bytes;
            changes[static_cast<std::size_t>(timeline_.end_slot(tensor.last_use))] -= bytes;
        }
    }
    std::vector<std::int64_t> living;
    living.reserve(static_cast<std::size_t>(size) * kSteps);
    std::int64_t now = 0;
    for (SlotIndex slot = 0; slot < size; ++slot) {
        now += changes[static_cast<std::size_t>(slot)];
        living.push_back(now);
    }
    for (std::uint32_t step = 1; step < kSteps; ++step) {
        for (SlotIndex slot = 0; slot < size; ++slot) {
            living.push_back(living[static_cast<std::size_t>(slot)]);
        }
    }
    return living;
}

// Weights are whole on the device at first; those that nobody writes have copies below, too.
void TransferPlanner::place_weights() {
    const SlotIndex end = timeline_.size() * kSteps;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const TraceTensor& traced = trace_.tensors()[i];
        const auto tensor = static_cast<TensorIndex>(i);
        Tensor& each = tensors_[i];
        each.resident = static_cast<std::int64_t>(traced.size_bytes);
        if (!traced.is_weight) continue;
        if (traced.is_used) each.next_use = timeline_.kernel_slot(uses_.of(tensor)[0].kernel);
        idle_.emplace(each.next_use, tensor);
        if (uses_.is_ever_written(tensor) || !settings_.keeps_copies) continue;
        for (std::uint32_t route = 0; route < routes_.size(); ++route) {
            if (room(route, 0, end) < each.resident) continue;
            below_[route].add(0, end, each.resident);
            each.clean.push_back({each.resident, route});
            standing_.push_back({tensor, routes_[route].tier});
            break;
        }
    }
}

TransferPlan TransferPlanner::plan() {
    place_weights();
    const SlotIndex size = timeline_.size();
    for (SlotIndex slot = 0; slot < 2 * size; ++slot) {
        const PlanSlot& each = timeline_.at(slot % size);
        const std::int64_t step = slot / size;
        if (!each.is_stall && each.offset_ns == 0) begin_kernel(each.kernel, slot);
        if (timeline_.begins_gap(slot % size)) {
            if (each.kernel > 0) {
                end_kernel(each.kernel - 1, step, slot);
            } else if (step > 0) {
                end_kernel(static_cast<KernelIndex>(trace_.kernels().size() - 1), step - 1, slot);
            }
        }
        relieve_now(slot);
        relieve_ahead(slot);
    }
    advance_ins();
    return {of_second_step(outs_),  of_second_step(ins_), of_second_step(drops_), standing_,
            settings_.keeps_copies, lacked_room_};
}

void TransferPlanner::begin_kernel(KernelIndex kernel, SlotIndex slot) {
    for (const TensorIndex tensor : uses_.tensors(kernel)) {
        Tensor& each = tensors_[tensor];
        idle_.erase({each.next_use, tensor});
        const auto size = static_cast<std::int64_t>(trace_.tensors()[tensor].size_bytes);
        if (!settings_.keeps_copies && each.resident < size) {
            each.clean.clear();
            each.writable_from = slot;  // what is copied out before is not there any longer
        }
        each.resident = size;
    }
}

void TransferPlanner::end_kernel(KernelIndex kernel, std::int64_t step, SlotIndex slot) {
    for (const TensorIndex tensor : uses_.tensors(kernel)) {
        Tensor& each = tensors_[tensor];
        const TraceTensor& traced = trace_.tensors()[tensor];
        const bool is_born = each.use == 0 && !traced.is_weight;
        if (is_born || uses_.of(tensor)[each.use].writes) {
            each.clean.clear();
            each.writable_from = slot;
        }
        if (!traced.is_weight && kernel == traced.last_use) {
            each.use = 0;
            each.clean.clear();
        } else {
            go_idle(tensor, step, slot);
        }
    }
}

void TransferPlanner::go_idle(TensorIndex tensor, std::int64_t step, SlotIndex slot) {
    Tensor& each = tensors_[tensor];
    const std::span<const TensorUse> uses = uses_.of(tensor);
    const SlotIndex size = timeline_.size();
    const auto count = static_cast<std::uint32_t>(uses.size());
    const std::int64_t next_step = step + (each.use + 1 == count ? 1 : 0);
    each.use = (each.use + 1) % count;
    each.next_use = next_step * size + timeline_.kernel_slot(uses[each.use].kernel);
    each.gap = ++gaps_;
    each.void_at = kNever;
    if (!trace_.tensors()[tensor].is_weight) {
        each.void_at = step * size + timeline_.end_slot(uses.back().kernel);
    }
    for (std::uint32_t i = each.use, seen = 0; seen < count; ++seen) {
        if (uses[i].writes) {
            const std::int64_t at = next_step + (i < each.use ? 1 : 0);
            each.void_at =
                std::min(each.void_at, at * size + timeline_.kernel_slot(uses[i].kernel));
            break;
        }
        i = (i + 1) % count;
    }
    if (each.next_use > slot) idle_.emplace(each.next_use, tensor);
}

// Too late for what is needed now: it costs a stall.
void TransferPlanner::relieve_now(SlotIndex slot) {
    for (;;) {
        const std::int64_t over = device_.most(slot, slot + 1) - device_bytes_;
        if (over <= 0) return;
        bool relieved = false;
        for (auto next = idle_.rbegin(); next != idle_.rend() && !relieved; ++next) {
            if (next->first <= slot) return;
            relieved = evict({next->second, slot, slot, true}, over) > 0;
            if (relieved) break;  // what it iterated over may be gone
        }
        if (!relieved) return;
    }
}

void TransferPlanner::relieve_ahead(SlotIndex slot) {
    for (;;) {
        const SlotIndex needed_at = device_.first_above(slot + 1, device_bytes_);
        if (needed_at < 0 || !relieve(slot, needed_at)) return;
    }
}

// False: nothing that is idle now can be away then.
bool TransferPlanner::relieve(SlotIndex slot, SlotIndex needed_at) {
    int tries = 0;
    int looks = 0;
    for (auto next = idle_.rbegin();
         next != idle_.rend() && tries < kMostTries && looks < kMostLooks; ++next) {
        const auto [next_use, tensor] = *next;
        if (next_use <= needed_at) return false;
        ++looks;
        if (!can_be_away(tensor, slot, needed_at)) continue;
        ++tries;
        const SlotIndex end = std::min(next_use, timeline_.size() * kSteps);
        const std::int64_t over = device_.most(needed_at, end) - device_bytes_;
        if (evict({tensor, slot, needed_at, false}, over) > 0) return true;
    }
    return false;
}

// Before it must: where the device has room, a copy that is late for any reason stalls nobody.
void TransferPlanner::advance_ins() {
    std::vector<SlotIndex> away_from(gaps_ + 1, 0);
    for (const auto& [decided, drop] : drops_) {
        away_from[drop.gap] = std::max(away_from[drop.gap], drop.slot);
    }
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < ins_.size(); ++i) {
        if (ins_[i].first >= timeline_.size()) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return ins_[a].second.slot < ins_[b].second.slot;
    });
    const std::int64_t limit = device_bytes_ - static_cast<std::int64_t>(settings_.reserve_bytes);
    for (const std::size_t i : order) {
        PlannedCopy& copy = ins_[i].second;
        const auto bytes = static_cast<std::int64_t>(copy.range.size_bytes);
        const SlotIndex earliest =
            std::max(device_.last_above(copy.slot, limit - bytes) + 1, away_from[copy.gap] + 1);
        if (earliest >= copy.slot) continue;
        device_.add(earliest, copy.slot, bytes);
        copy.slot = earliest;
    }
}

template <class Planned>
std::vector<Planned> TransferPlanner::of_second_step(
    std::vector<std::pair<SlotIndex, Planned>>& planned) const {
    std::vector<Planned> chosen;
    for (auto& entry : planned) {
        if (entry.first < timeline_.size()) continue;
        Planned& each = entry.second;
        each.slot -= timeline_.size();
        each.needed_by -= timeline_.size();
        if constexpr (requires { each.void_at; }) each.void_at -= timeline_.size();
        chosen.push_back(each);
    }
    return chosen;
}

TransferPlan plan_transfers(const Trace& trace, const Machine& machine, const TensorUses& uses,
                            std::span<const Route> routes, const PlanTimeline& timeline,
                            const TransferSettings& settings) {
    return TransferPlanner(trace, machine, uses, routes, timeline, settings).plan();
}

}  // namespace frostline
