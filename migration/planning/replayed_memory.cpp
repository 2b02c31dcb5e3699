// A copy under way holds room and is not valid; a tensor has either none, or is neither written nor
// dies. So what is void or dead has no copies under way, and whole sets can be given up.
#include "migration/planning/replayed_memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace frostline {

namespace {

Range range_of(const TensorRange& range) noexcept {
    return {range.offset_bytes, range.offset_bytes + range.size_bytes};
}

bool holds_all(const RangeSet& set, const Range& range) noexcept {
    // Touching ranges are one, so all of it lies in the first or not at all.
    return set.first_in(range) == range;
}

bool holds_any(const RangeSet& set, const Range& range) noexcept {
    return set.first_in(range).has_value();
}

}  // namespace

ReplayedMemory::ReplayedMemory(const Trace& trace, const Machine& machine)
    : trace_(&trace),
      machine_(&machine),
      tensors_(trace.tensors().size()),
      valid_(trace.tensors().size() * machine.tiers.size()),
      used_bytes_(machine.tiers.size(), 0),
      peak_bytes_(machine.tiers.size(), 0) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        tensors_[i].is_alive = trace.tensors()[i].is_weight;
    }
}

Objection ReplayedMemory::place(const ScheduledPlacement& placement) {
    const auto& [part, tier] = placement;
    if (!trace_->tensors()[part.tensor].is_weight) {
        return fmt::format("tensor {} is no weight, and lies nowhere before the first step",
                           id(part.tensor));
    }
    RangeSet& here = valid(part.tensor, tier);
    const std::uint64_t before = here.size_bytes();
    here.add(range_of(part));
    return take_room(part.tensor, tier, here.size_bytes() - before);
}

Objection ReplayedMemory::check_weights() const {
    for (TensorIndex i = 0; i < tensors_.size(); ++i) {
        const TraceTensor& each = trace_->tensors()[i];
        if (each.is_weight && !is_covered(i, {0, each.size_bytes}, std::nullopt)) {
            return fmt::format("weight {} is not whole before the first step", each.id);
        }
    }
    return std::nullopt;
}

Objection ReplayedMemory::start_move(const ScheduledMove& move, std::size_t link) {
    const TensorIndex index = move.range.tensor;
    const Range range = range_of(move.range);
    Tensor& tensor = tensors_[index];
    if (!tensor.is_alive) {
        return fmt::format("tensor {} moves while it does not exist", id(index));
    }
    if (move.from == machine_->device && tensor.use == Use::written) {
        return fmt::format("tensor {} is copied from {} while a kernel writes it", id(index),
                           tier_name(move.from));
    }
    if (!holds_all(valid(index, move.from), range)) {
        return fmt::format("tensor {} moves from {}, where its bytes {} to {} are not all valid",
                           id(index), tier_name(move.from), range.start, range.end);
    }
    if (holds_any(valid(index, move.to), range) || is_arriving(index, move.to, range)) {
        return fmt::format("tensor {} moves to {}, where its bytes {} to {} are in part already",
                           id(index), tier_name(move.to), range.start, range.end);
    }
    under_way_[route(index, link)].add(range);
    ++tensor.moves_under_way;
    return take_room(index, move.to, range.size_bytes());
}

void ReplayedMemory::end_move(const ScheduledMove& move, std::size_t link) {
    const TensorIndex index = move.range.tensor;
    const auto found = under_way_.find(route(index, link));
    found->second.remove(range_of(move.range));
    if (found->second.size_bytes() == 0) under_way_.erase(found);
    --tensors_[index].moves_under_way;
    valid(index, move.to).add(range_of(move.range));
}

Objection ReplayedMemory::drop(const ScheduledDrop& drop) {
    const TensorIndex index = drop.range.tensor;
    const Range range = range_of(drop.range);
    RangeSet& here = valid(index, drop.tier);
    const auto object = [&](std::string_view why) {
        return fmt::format("bytes {} to {} of tensor {} are dropped from {}, {}", range.start,
                           range.end, id(index), tier_name(drop.tier), why);
    };
    if (!holds_all(here, range)) return object("where they are not all valid");
    if (is_being_read(index, drop.tier, range)) return object("where a move reads them");
    if (drop.tier == machine_->device && tensors_[index].use != Use::none) {
        return object("where a kernel uses the tensor");
    }
    if (!is_covered(index, range, drop.tier)) return object("the last copy of some");
    here.remove(range);
    used_bytes_[drop.tier] -= range.size_bytes();
    return std::nullopt;
}

Objection ReplayedMemory::start_kernel(KernelIndex kernel) {
    for (const TensorIndex each : trace_->uses(kernel)) {
        if (Objection objection = use(kernel, each)) return objection;
    }
    for (const TensorIndex each : trace_->writes(kernel)) {
        if (Objection objection = write(kernel, each)) return objection;
    }
    return std::nullopt;
}

Objection ReplayedMemory::end_kernel(KernelIndex kernel) {
    for (const TensorIndex each : trace_->uses(kernel)) {
        tensors_[each].use = Use::none;
        const TraceTensor& tensor = trace_->tensors()[each];
        if (tensor.is_weight || tensor.last_use != kernel) continue;
        if (Objection objection = die(kernel, each)) return objection;
    }
    return std::nullopt;
}

Objection ReplayedMemory::use(KernelIndex kernel, TensorIndex index) {
    Tensor& tensor = tensors_[index];
    tensor.use = Use::read;
    const std::uint64_t size_bytes = trace_->tensors()[index].size_bytes;
    RangeSet& on_device = valid(index, machine_->device);
    if (!tensor.is_alive) {
        tensor.is_alive = true;
        on_device.add({0, size_bytes});
        return take_room(index, machine_->device, size_bytes);
    }
    if (on_device.size_bytes() == size_bytes) return std::nullopt;
    return fmt::format("kernel {} ({}) needs tensor {}, of which {} of {} bytes are valid in {}",
                       kernel, trace_->name(kernel), id(index), on_device.size_bytes(), size_bytes,
                       tier_name(machine_->device));
}

Objection ReplayedMemory::write(KernelIndex kernel, TensorIndex index) {
    Tensor& tensor = tensors_[index];
    tensor.use = Use::written;
    if (tensor.moves_under_way != 0) {
        return fmt::format("kernel {} ({}) writes tensor {} while it moves", kernel,
                           trace_->name(kernel), id(index));
    }
    for (TierIndex tier = 0; tier < machine_->tiers.size(); ++tier) {
        if (tier != machine_->device) give_up(index, tier);
    }
    return std::nullopt;
}

Objection ReplayedMemory::die(KernelIndex kernel, TensorIndex index) {
    Tensor& tensor = tensors_[index];
    if (tensor.moves_under_way != 0) {
        return fmt::format("tensor {} dies with kernel {} ({}) while it moves", id(index), kernel,
                           trace_->name(kernel));
    }
    for (TierIndex tier = 0; tier < machine_->tiers.size(); ++tier) give_up(index, tier);
    tensor.is_alive = false;
    return std::nullopt;
}

void ReplayedMemory::give_up(TensorIndex tensor, TierIndex tier) noexcept {
    RangeSet& here = valid(tensor, tier);
    if (here.size_bytes() == 0) return;
    used_bytes_[tier] -= here.size_bytes();
    here = RangeSet();
}

Objection ReplayedMemory::take_room(TensorIndex tensor, TierIndex tier, std::uint64_t bytes) {
    const std::uint64_t capacity = machine_->tiers[tier].size_bytes;
    if (bytes > capacity - used_bytes_[tier]) {
        return fmt::format("{} holds {} of {} bytes and has no room for {} of tensor {}",
                           tier_name(tier), used_bytes_[tier], capacity, bytes, id(tensor));
    }
    used_bytes_[tier] += bytes;
    peak_bytes_[tier] = std::max(peak_bytes_[tier], used_bytes_[tier]);
    return std::nullopt;
}

bool ReplayedMemory::is_under_way(TensorIndex tensor, std::size_t link,
                                  const Range& range) const noexcept {
    const auto found = under_way_.find(route(tensor, link));
    return found != under_way_.end() && holds_any(found->second, range);
}

bool ReplayedMemory::is_arriving(TensorIndex tensor, TierIndex tier,
                                 const Range& range) const noexcept {
    if (tensors_[tensor].moves_under_way == 0) return false;
    for (std::size_t i = 0; i < machine_->links.size(); ++i) {
        if (machine_->links[i].to == tier && is_under_way(tensor, i, range)) return true;
    }
    return false;
}

bool ReplayedMemory::is_being_read(TensorIndex tensor, TierIndex tier,
                                   const Range& range) const noexcept {
    if (tensors_[tensor].moves_under_way == 0) return false;
    for (std::size_t i = 0; i < machine_->links.size(); ++i) {
        if (machine_->links[i].from == tier && is_under_way(tensor, i, range)) return true;
    }
    return false;
}

bool ReplayedMemory::is_covered(TensorIndex tensor, const Range& range,
                                std::optional<TierIndex> except) const noexcept {
    for (std::uint64_t position = range.start; position < range.end;) {
        const Range rest{position, range.end};
        for (TierIndex tier = 0; tier < machine_->tiers.size(); ++tier) {
            if (tier == except) continue;
            const auto found = valid(tensor, tier).first_in(rest);
            if (found && found->start == rest.start) position = std::max(position, found->end);
        }
        if (position == rest.start) return false;
    }
    return true;
}

}  // namespace frostline
