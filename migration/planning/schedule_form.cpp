// What passes here has indices that exist and times that add up, so a replay need not ask.
#include "migration/planning/schedule_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <tuple>

namespace frostline {

namespace {

/// The step time is measured from the end of the first step to that of the last, and two steps
/// could still borrow from each other.
constexpr std::uint32_t kFewestSteps = 3;

Objection check_range(const Trace& trace, const TensorRange& range, std::string_view what) {
    if (range.tensor >= trace.tensors().size()) {
        return fmt::format("{} names tensor number {} of {}", what, range.tensor,
                           trace.tensors().size());
    }
    const TraceTensor& tensor = trace.tensors()[range.tensor];
    if (range.size_bytes == 0 || range.offset_bytes > tensor.size_bytes ||
        range.size_bytes > tensor.size_bytes - range.offset_bytes) {
        return fmt::format("{} names {} bytes from {} on of tensor {}, which has {}", what,
                           range.size_bytes, range.offset_bytes, tensor.id, tensor.size_bytes);
    }
    return std::nullopt;
}

Objection check_tier(const Machine& machine, TierIndex tier, std::string_view what) {
    if (tier < machine.tiers.size()) return std::nullopt;
    return fmt::format("{} names tier number {} of {}", what, tier, machine.tiers.size());
}

bool runs_before(const ScheduledKernel& a, const ScheduledKernel& b) noexcept {
    return std::tie(a.step, a.kernel) < std::tie(b.step, b.kernel);
}

/// Kernels in the order of steps: those of the schedule, or a sorted copy.
const std::vector<ScheduledKernel>& sorted_kernels(const Schedule& schedule,
                                                   std::vector<ScheduledKernel>& copy) {
    if (std::is_sorted(schedule.kernels.begin(), schedule.kernels.end(), runs_before)) {
        return schedule.kernels;
    }
    copy = schedule.kernels;
    std::stable_sort(copy.begin(), copy.end(), runs_before);
    return copy;
}

/// `found`, the next kernel in order, is not the expected one.
Objection object_to_order(const ScheduledKernel& found, std::uint64_t step, std::uint64_t kernel,
                          std::size_t kernels) {
    if (found.kernel >= kernels) {
        return fmt::format("{} ns: kernel {} of step {} starts, and the trace has {} kernels",
                           found.start_ns, found.kernel, found.step, kernels);
    }
    // Kernels are sorted, so one that is behind what is expected was there before.
    if (std::tuple(std::uint64_t{found.step}, std::uint64_t{found.kernel}) <
        std::tuple(step, kernel)) {
        return fmt::format("{} ns: kernel {} of step {} starts a second time", found.start_ns,
                           found.kernel, found.step);
    }
    return fmt::format("kernel {} of step {} is missing", kernel, step);
}

}  // namespace

Objection check_lines(const Trace& trace, const Machine& machine, const Schedule& schedule) {
    for (const ScheduledPlacement& each : schedule.init) {
        if (Objection why = check_range(trace, each.range, "an initial placement")) return why;
        if (Objection why = check_tier(machine, each.tier, "an initial placement")) return why;
    }
    for (const ScheduledMove& each : schedule.moves) {
        if (Objection why = check_range(trace, each.range, "a move")) return why;
        if (Objection why = check_tier(machine, each.from, "a move")) return why;
        if (Objection why = check_tier(machine, each.to, "a move")) return why;
    }
    for (const ScheduledDrop& each : schedule.drops) {
        if (Objection why = check_range(trace, each.range, "a drop")) return why;
        if (Objection why = check_tier(machine, each.tier, "a drop")) return why;
    }
    return std::nullopt;
}

Objection order_kernels(const Trace& trace, const Schedule& schedule, KernelStarts& starts) {
    const std::size_t kernels = trace.kernels().size();
    std::vector<ScheduledKernel> copy;
    const std::vector<ScheduledKernel>& runs = sorted_kernels(schedule, copy);
    starts.start_ns.reserve(runs.size());
    std::uint64_t previous_end_ns = 0;
    for (const ScheduledKernel& each : runs) {
        const std::uint64_t step = starts.start_ns.size() / kernels;
        const std::uint64_t kernel = starts.start_ns.size() % kernels;
        if (each.step != step || each.kernel != kernel) {
            return object_to_order(each, step, kernel, kernels);
        }
        if (each.start_ns < previous_end_ns) {
            return fmt::format(
                "{} ns: kernel {} of step {} starts, and the one before ends at {} ns",
                each.start_ns, kernel, step, previous_end_ns);
        }
        const std::uint64_t duration_ns = trace.kernels()[kernel].duration_ns;
        if (duration_ns > std::numeric_limits<std::uint64_t>::max() - each.start_ns) {
            return fmt::format("{} ns: kernel {} of step {} ends after the end of time",
                               each.start_ns, kernel, step);
        }
        previous_end_ns = each.start_ns + duration_ns;
        starts.start_ns.push_back(each.start_ns);
    }
    if (runs.size() % kernels != 0) {
        return fmt::format("kernel {} of step {} is missing", runs.size() % kernels,
                           runs.size() / kernels);
    }
    starts.steps = static_cast<std::uint32_t>(runs.size() / kernels);
    if (starts.steps < kFewestSteps) {
        return fmt::format("the schedule has {} steps, and needs at least {}", starts.steps,
                           kFewestSteps);
    }
    return std::nullopt;
}

}  // namespace frostline
