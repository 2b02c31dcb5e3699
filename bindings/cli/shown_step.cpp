// Moves reach into the step from the one before it, and out of it; only what lies within counts.
#include "bindings/cli/shown_step.h"

#include <algorithm>

namespace frostline::cli {
namespace {

/// By step and kernel.
std::vector<std::uint64_t> kernel_starts(const Trace& trace, const PlanningResult& result) {
    const std::size_t kernels = trace.kernels().size();
    std::vector<std::uint64_t> starts(kernels * result.verdict.steps, 0);
    for (const ScheduledKernel& each : result.schedule.kernels) {
        starts[each.step * kernels + each.kernel] = each.start_ns;
    }
    return starts;
}

void find_stalls(const Trace& trace, const std::vector<std::uint64_t>& starts, ShownStep& shown) {
    const std::size_t kernels = trace.kernels().size();
    std::uint64_t ended_ns = shown.from_ns;
    for (KernelIndex i = 0; i < kernels; ++i) {
        const std::uint64_t start_ns = starts[shown.step * kernels + i];
        if (start_ns > ended_ns) shown.stalls.push_back({i, start_ns, start_ns - ended_ns});
        ended_ns = start_ns + trace.kernels()[i].duration_ns;
    }
}

/// Adds `amount`, spread evenly over [begin, end), to the columns of [from, to).
void spread(std::vector<double>& columns, const ShownStep& shown, std::uint64_t begin_ns,
            std::uint64_t end_ns, double amount) {
    const double width_ns =
        static_cast<double>(shown.to_ns - shown.from_ns) / static_cast<double>(columns.size());
    const auto from = static_cast<double>(shown.from_ns);
    const double begin = std::max(static_cast<double>(begin_ns) - from, 0.0) / width_ns;
    const double end = std::min((static_cast<double>(end_ns) - from) / width_ns,
                                static_cast<double>(columns.size()));
    if (begin >= end) return;
    const double each_column = amount * width_ns / static_cast<double>(end_ns - begin_ns);
    for (auto i = static_cast<std::size_t>(begin); i < columns.size(); ++i) {
        const auto left = static_cast<double>(i);
        if (left >= end) break;
        columns[i] += each_column * (std::min(end, left + 1) - std::max(begin, left));
    }
}

/// How long any of the moves, which are in the order of time, is under way.
class BusyTime {
   public:
    void add(std::uint64_t begin_ns, std::uint64_t end_ns) {
        begin_ns = std::max(begin_ns, until_ns_);
        if (end_ns <= begin_ns) return;
        sum_ns_ += end_ns - begin_ns;
        until_ns_ = end_ns;
    }
    double part_of(std::uint64_t whole_ns) const {
        return static_cast<double>(sum_ns_) / static_cast<double>(whole_ns);
    }

   private:
    std::uint64_t sum_ns_ = 0;
    std::uint64_t until_ns_ = 0;
};

void load_links(const Machine& machine, const Schedule& schedule, ShownStep& shown) {
    std::vector<const ScheduledMove*> moves;
    for (const ScheduledMove& each : schedule.moves) {
        if (each.end_ns > shown.from_ns && each.start_ns < shown.to_ns) moves.push_back(&each);
    }
    std::sort(moves.begin(), moves.end(), [](const ScheduledMove* a, const ScheduledMove* b) {
        return a->start_ns < b->start_ns;
    });
    shown.carried.assign(machine.links.size(), std::vector<double>(kChartColumns, 0));
    std::vector<BusyTime> busy(machine.links.size());
    for (const ScheduledMove* const each : moves) {
        const auto found =
            std::find_if(machine.links.begin(), machine.links.end(), [&](const MachineLink& link) {
                return link.from == each->from && link.to == each->to;
            });
        const auto link = static_cast<std::size_t>(found - machine.links.begin());
        spread(shown.carried[link], shown, each->start_ns + found->latency_ns, each->end_ns,
               static_cast<double>(each->range.size_bytes));
        busy[link].add(std::max(each->start_ns, shown.from_ns),
                       std::min(each->end_ns, shown.to_ns));
    }
    for (const BusyTime& each : busy) {
        shown.busy.push_back(each.part_of(shown.to_ns - shown.from_ns));
    }
}

}  // namespace

Result<ShownStep> shown_step(const PlanningProblem& problem, const PlanningResult& result) {
    const Trace& trace = problem.trace;
    const std::size_t kernels = trace.kernels().size();
    const std::vector<std::uint64_t> starts = kernel_starts(trace, result);
    const auto end_of = [&](std::uint32_t step) {
        return starts[(step + 1) * kernels - 1] + trace.kernels()[kernels - 1].duration_ns;
    };
    ShownStep shown;
    shown.step = result.verdict.steps - 2;
    shown.from_ns = end_of(shown.step - 1);
    shown.to_ns = end_of(shown.step);
    find_stalls(trace, starts, shown);
    load_links(problem.machine, result.schedule, shown);
    FROSTLINE_TRY(shown.held, occupancy_of(problem, result.schedule, shown.from_ns, shown.to_ns,
                                           kChartColumns));
    return shown;
}

}  // namespace frostline::cli
