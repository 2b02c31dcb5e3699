// At one instant: what ends, then what is given up, then copies and kernels that start, as often as
// any of these makes way for another.
#include "migration/planning/plan_execution.h"

#include <algorithm>
#include <cmath>

namespace frostline {
namespace {

// A copy that would get less of its link than this waits for the others to end.
constexpr double kLeastShare = 0.2;

}  // namespace

PlanExecution::PlanExecution(const Trace& trace, const Machine& machine, const TensorUses& uses,
                             std::span<const Route> routes, const PlanTimeline& timeline,
                             const TransferPlan& plan, const ExecutionSettings& settings)
    : trace_(trace),
      machine_(machine),
      uses_(uses),
      routes_(routes),
      timeline_(timeline),
      plan_(plan),
      settings_(settings),
      queues_(
          queue_transfers(plan, machine, timeline, settings.steps, settings.largest_copy_bytes)),
      memory_(trace, machine, routes),
      born_bytes_(trace.kernels().size()),
      next_out_(machine.links.size()),
      next_in_(machine.links.size()),
      active_(machine.links.size()),
      load_(machine.resources.size()),
      waits_(machine.links.size()) {
    for (const TraceTensor& tensor : trace.tensors()) {
        if (!tensor.is_weight && tensor.is_used) born_bytes_[tensor.first_use] += tensor.size_bytes;
    }
    result_.stall_ns.resize(trace.kernels().size());
}

Result<Execution> PlanExecution::run() {
    place_weights();
    if (memory_.free_bytes(machine_.device) < 0) {
        return Error(Errc::no_space, 0,
                     "the weights do not fit: {} and the tiers that it has links to and from lack "
                     "{} bytes for them",
                     machine_.tiers[machine_.device].name, -memory_.free_bytes(machine_.device));
    }
    while (step_ < settings_.steps) {
        start_all();
        std::uint64_t next_ns = std::min(next_gate_ns_, is_running_ ? kernel_end_ns_ : kNever);
        for (const auto& copy : active_) {
            if (copy.has_value()) next_ns = std::min(next_ns, copy->end_ns);
        }
        if (next_ns == kNever) {
            ++result_.rescues;
            if (!rescue()) return stuck();
            continue;
        }
        now_ns_ = next_ns;
        finish();
    }
    const double judged_ns =
        static_cast<double>(step_ends_ns_.back()) - static_cast<double>(step_ends_ns_.front());
    result_.step_ns = judged_ns / std::max<double>(1, settings_.steps - 1);
    return std::move(result_);
}

void PlanExecution::start_all() {
    for (bool goes_on = true; goes_on;) {
        next_gate_ns_ = kNever;
        goes_on = drop_what_is_due();
        for (std::size_t route = 0; route < routes_.size(); ++route) {
            goes_on |= start_outs(route);
            goes_on |= start_ins(route);
        }
        goes_on |= start_kernel();
    }
}

bool PlanExecution::changes(KernelIndex kernel, TensorIndex tensor) const noexcept {
    const TraceTensor& each = trace_.tensors()[tensor];
    if (!each.is_weight && each.last_use == kernel) return true;
    const auto writes = trace_.writes(kernel);
    return std::find(writes.begin(), writes.end(), tensor) != writes.end();
}

bool PlanExecution::start_kernel() {
    if (is_running_ || step_ >= settings_.steps) return false;
    if (memory_.free_bytes(machine_.device) < static_cast<std::int64_t>(born_bytes_[kernel_])) {
        return false;
    }
    for (const TensorIndex tensor : uses_.tensors(kernel_)) {
        if (!memory_.is_alive(tensor)) continue;
        if (memory_.absent(tensor).size_bytes() > 0) return false;
        if (is_being_copied(tensor) && changes(kernel_, tensor)) return false;
    }
    for (const TensorIndex tensor : uses_.tensors(kernel_)) {
        if (!memory_.is_alive(tensor)) memory_.bear(tensor);
    }
    for (const TensorIndex tensor : trace_.writes(kernel_)) memory_.write(tensor);
    if (step_ + 2 == settings_.steps) result_.stall_ns[kernel_] = now_ns_ - kernel_end_ns_;
    is_running_ = true;
    makes_room_ = false;
    kernel_start_ns_ = now_ns_;
    kernel_end_ns_ = now_ns_ + trace_.kernels()[kernel_].duration_ns;
    result_.schedule.kernels.push_back({static_cast<std::uint32_t>(step_), kernel_, now_ns_});
    return true;
}

bool PlanExecution::start_outs(std::size_t route) {
    const LinkIndex link = routes_[route].out;
    const std::vector<QueuedCopy>& queue = queues_.outs[link];
    for (std::size_t& next = next_out_[link]; !active_[link].has_value() && next < queue.size();
         ++next) {
        const QueuedCopy& copy = queue[next];
        if (!has_opened(copy.slot)) return false;
        const TensorIndex tensor = copy.range.tensor;
        if (has_begun(copy.needed_by) || !memory_.is_alive(tensor) ||
            (is_in_use(tensor) && changes(kernel_, tensor))) {
            continue;
        }
        const auto part = only_on_device(copy.range);
        if (!part.has_value()) continue;
        const TensorRange range{tensor, part->start, part->size_bytes()};
        if (memory_.free_bytes(routes_[route].tier) < static_cast<std::int64_t>(range.size_bytes)) {
            return false;
        }
        return start_copy(range, route, false);
    }
    return false;
}

// The first part of the range that is on the device, and neither below nor on its way there.
std::optional<Range> PlanExecution::only_on_device(const TensorRange& range) const {
    RangeSet elsewhere;
    const Range window = range_of(range);
    const auto note = [&](const RangeSet& set) {
        for (Range rest = window; rest.start < rest.end;) {
            const auto part = set.first_in(rest);
            if (!part.has_value()) break;
            elsewhere.add(*part);
            rest.start = part->end;
        }
    };
    note(memory_.absent(range.tensor));
    for (std::size_t route = 0; route < routes_.size(); ++route) {
        note(memory_.below(range.tensor, route));
    }
    for (const auto& copy : active_) {
        if (copy.has_value() && !copy->is_in && copy->range.tensor == range.tensor) {
            elsewhere.add(range_of(copy->range));
        }
    }
    return first_missing(elsewhere, window);
}

bool PlanExecution::start_ins(std::size_t route) {
    const LinkIndex link = routes_[route].in;
    std::vector<QueuedCopy>& queue = queues_.ins[link];
    for (std::size_t& next = next_in_[link]; !active_[link].has_value() && next < queue.size();
         ++next) {
        QueuedCopy& copy = queue[next];
        const std::uint64_t opens_ns = opens_at(copy.slot);
        if (opens_ns > now_ns_) {
            next_gate_ns_ = std::min(next_gate_ns_, opens_ns);
            return false;
        }
        const TensorIndex tensor = copy.range.tensor;
        if (has_begun(copy.needed_by) || !memory_.is_alive(tensor)) continue;
        const auto absent = memory_.absent(tensor).first_in(range_of(copy.range));
        if (is_being_copied(tensor, true)) return false;
        if (!absent.has_value()) {
            if (is_due(tensor)) return false;
            continue;
        }
        if (makes_room_ && !uses_.uses(kernel_, tensor)) return false;
        const auto part = memory_.below(tensor, route).first_in(*absent);
        if (!part.has_value()) continue;
        const TensorRange range{tensor, part->start, part->size_bytes()};
        if (memory_.free_bytes(machine_.device) < static_cast<std::int64_t>(range.size_bytes)) {
            return false;
        }
        if (!start_copy(range, route, true)) return false;
        const std::uint64_t end = copy.range.offset_bytes + copy.range.size_bytes;
        copy.range.offset_bytes = part->end;
        copy.range.size_bytes = end - part->end;
        if (copy.range.size_bytes == 0) ++next;
        return true;
    }
    return false;
}

// Leaves to copies on other links what those have or are about to take of shared resources.
double PlanExecution::rate_for(LinkIndex link) const {
    double rate = machine_.bytes_per_second(machine_.links[link]);
    const double alone = rate;
    for (const ResourceIndex resource : machine_.links[link].resources) {
        const double left = machine_.resources[resource].bytes_per_second - load_[resource];
        double awaited = 0;
        for (LinkIndex other = 0; other < machine_.links.size(); ++other) {
            const std::vector<ResourceIndex>& theirs = machine_.links[other].resources;
            if (other == link || waits_[other] == 0 ||
                std::find(theirs.begin(), theirs.end(), resource) == theirs.end()) {
                continue;
            }
            awaited += machine_.bytes_per_second(machine_.links[other]);
        }
        // Half is for whoever asks: so those that wait do not wait for each other, however many.
        rate = std::min(rate, std::max(left / 2, left - awaited));
    }
    return rate < kLeastShare * alone ? 0 : std::floor(rate);
}

bool PlanExecution::start_copy(const TensorRange& range, std::size_t route, bool is_in) {
    const LinkIndex link = is_in ? routes_[route].in : routes_[route].out;
    if (active_[link].has_value()) return false;
    const double rate = rate_for(link);
    waits_[link] = rate <= 0 ? 1 : 0;
    if (rate <= 0) return false;
    memory_.take_room(is_in ? machine_.device : routes_[route].tier, range.size_bytes);
    for (const ResourceIndex resource : machine_.links[link].resources) load_[resource] += rate;
    const double busy_ns = std::ceil(static_cast<double>(range.size_bytes) / rate * 1e9);
    const std::uint64_t end_ns = now_ns_ + machine_.links[link].latency_ns +
                                 std::max<std::uint64_t>(1, static_cast<std::uint64_t>(busy_ns));
    active_[link] = Copy{range, route, is_in, end_ns, rate};
    result_.schedule.moves.push_back(
        {range, machine_.links[link].from, machine_.links[link].to, now_ns_, end_ns});
    return true;
}

// What is used again meanwhile stays; what is not copied yet is given up when it is.
bool PlanExecution::drop_what_is_due() {
    while (next_drop_ < queues_.drops.size() && has_opened(queues_.drops[next_drop_].slot)) {
        due_.push_back(queues_.drops[next_drop_++]);
    }
    bool dropped = false;
    std::erase_if(due_, [&](const QueuedDrop& drop) {
        if (has_begun(drop.needed_by) || !memory_.is_alive(drop.range.tensor) ||
            uses_.uses(kernel_, drop.range.tensor)) {
            return true;
        }
        dropped |= drop_copied_part(drop.range);
        return memory_.absent(drop.range.tensor).size_bytes_in(range_of(drop.range)) ==
               drop.range.size_bytes;
    });
    return dropped;
}

bool PlanExecution::drop_copied_part(const TensorRange& range) {
    bool dropped = false;
    for (std::size_t route = 0; route < routes_.size(); ++route) {
        for (Range rest = range_of(range); rest.start < rest.end;) {
            const auto copy = memory_.below(range.tensor, route).first_in(rest);
            if (!copy.has_value()) break;
            rest.start = copy->end;
            while (const auto part = first_missing(memory_.absent(range.tensor), *copy)) {
                const TensorRange gone{range.tensor, part->start, part->size_bytes()};
                memory_.drop_from_device(gone);
                result_.schedule.drops.push_back({gone, machine_.device, now_ns_});
                dropped = true;
            }
        }
    }
    return dropped;
}

void PlanExecution::finish() {
    memory_.free_void_copies();
    if (is_running_ && kernel_end_ns_ == now_ns_) end_kernel();
    for (auto& copy : active_) {
        if (!copy.has_value() || copy->end_ns != now_ns_) continue;
        const Copy ended = *copy;
        copy.reset();
        end_copy(ended);
    }
}

void PlanExecution::end_copy(const Copy& copy) {
    const Route& route = routes_[copy.route];
    const LinkIndex link = copy.is_in ? route.in : route.out;
    for (const ResourceIndex resource : machine_.links[link].resources) {
        load_[resource] -= copy.bytes_per_second;
    }
    if (!copy.is_in) {
        memory_.arrive_below(copy.range, copy.route);
        return;
    }
    memory_.arrive_on_device(copy.range);
    if (plan_.keeps_copies) return;
    memory_.drop_below(copy.range, copy.route);
    result_.schedule.drops.push_back({copy.range, route.tier, now_ns_});
}

void PlanExecution::end_kernel() {
    is_running_ = false;
    for (const TensorIndex tensor : uses_.tensors(kernel_)) {
        const TraceTensor& each = trace_.tensors()[tensor];
        if (!each.is_weight && each.last_use == kernel_) memory_.end(tensor);
    }
    if (++kernel_ < trace_.kernels().size()) return;
    kernel_ = 0;
    ++step_;
    step_ends_ns_.push_back(kernel_end_ns_);
}

// A slot opens when its kernel has come that far; one of a stall, so long after the kernel before.
std::uint64_t PlanExecution::opens_at(SlotIndex slot) const noexcept {
    const PlanSlot& each = timeline_.at(slot % timeline_.size());
    const std::int64_t step = slot / timeline_.size();
    if (step != step_) return step < step_ ? 0 : kNever;
    if (each.kernel != kernel_) return each.kernel < kernel_ ? 0 : kNever;
    if (each.is_stall) return is_running_ ? 0 : kernel_end_ns_ + each.offset_ns;
    return is_running_ ? kernel_start_ns_ + each.offset_ns : kNever;
}

// For what need not wait for its kernel: as soon as the kernel before has ended.
bool PlanExecution::has_opened(SlotIndex slot) const noexcept {
    const PlanSlot& each = timeline_.at(slot % timeline_.size());
    const std::int64_t step = slot / timeline_.size();
    if (step != step_) return step < step_;
    if (each.kernel != kernel_) return each.kernel < kernel_;
    return each.is_stall || is_running_ ||
           timeline_.first_slot(each.kernel) == slot % timeline_.size();
}

bool PlanExecution::has_begun(SlotIndex use) const noexcept {
    const std::int64_t step = use / timeline_.size();
    if (step != step_) return step < step_;
    const KernelIndex kernel = timeline_.at(use % timeline_.size()).kernel;
    return kernel != kernel_ ? kernel < kernel_ : is_running_;
}

bool PlanExecution::is_in_use(TensorIndex tensor) const noexcept {
    return is_running_ && uses_.uses(kernel_, tensor);
}

// Whether some of it is still to be given up.
bool PlanExecution::is_due(TensorIndex tensor) const noexcept {
    return std::any_of(due_.begin(), due_.end(),
                       [&](const QueuedDrop& drop) { return drop.range.tensor == tensor; });
}

bool PlanExecution::is_being_copied(TensorIndex tensor, bool in_only) const noexcept {
    return std::any_of(active_.begin(), active_.end(), [&](const std::optional<Copy>& copy) {
        return copy.has_value() && copy->range.tensor == tensor && (copy->is_in || !in_only);
    });
}

}  // namespace frostline
