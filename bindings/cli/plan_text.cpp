// The figures as a person reads them. Times and sizes are rounded here and nowhere else.
#include "bindings/byte_size.h"
#include "bindings/cli/plan_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace frostline::cli {
namespace {

void print_subject(const PlanSubject& subject) {
    const Trace& trace = subject.problem->trace;
    const MachineTier& device = subject.problem->machine.tiers[subject.problem->machine.device];
    fmt::print("{}: {} kernels, {} tensors, {} with infinite memory\n", subject.trace_path,
               trace.kernels().size(), trace.tensors().size(),
               time_text(static_cast<double>(trace.ideal_ns())));
    fmt::print("{}: {} has {}\n\n", subject.machine_path, device.name,
               format_byte_size(device.size_bytes));
}

std::string percent_above(double part) {
    // No -0.000 where replay and bound are the same but for rounding.
    return fmt::format("{:.3f} %", std::max(0.0, part * 100));
}

}  // namespace

std::uint64_t bytes_per_step(const ReplayVerdict& verdict, std::size_t link) noexcept {
    return (verdict.moved_bytes[link] + verdict.steps / 2) / verdict.steps;
}

std::string link_name(const Machine& machine, std::size_t link) {
    return fmt::format("{}->{}", machine.tiers[machine.links[link].from].name,
                       machine.tiers[machine.links[link].to].name);
}

double above_bound(const ReplayVerdict& verdict, const LowerBound& bound) noexcept {
    return verdict.step_ns / bound.step_ns - 1;
}

std::string time_text(double ns) {
    if (ns >= 1e9) return fmt::format("{:.4f} s", ns * 1e-9);
    if (ns >= 1e6) return fmt::format("{:.4f} ms", ns * 1e-6);
    return fmt::format("{:.3f} us", ns * 1e-3);
}

void print_plan(const PlanSubject& subject, const PlanOutcome& outcome) {
    print_subject(subject);
    const PlanningResult& result = *outcome.result;
    const ReplayVerdict& verdict = result.verdict;
    const Machine& machine = subject.problem->machine;
    const auto line = [](std::string_view what, const std::string& value) {
        fmt::print("{:<13}  {}\n", what, value);
    };
    line("policy", std::string(outcome.policy));
    line("planning", fmt::format("{:.3f} s", result.plan_s));
    if (!verdict.legal) {
        line("legal", fmt::format("no, by replay: {}", verdict.why));
        return;
    }
    line("legal", fmt::format("yes, by replay of {} steps", verdict.steps));
    line("step time", fmt::format("{}, {:.4f} times infinite memory", time_text(verdict.step_ns),
                                  verdict.slowdown));
    line("lower bound",
         fmt::format("{}, {:.4f} times; the step is {} above it", time_text(subject.bound.step_ns),
                     subject.bound.step_ns / static_cast<double>(verdict.ideal_ns),
                     percent_above(above_bound(verdict, subject.bound))));
    fmt::print("\n{:<13}  {:>12}  {:>12}\n", "tier", "peak", "size");
    for (std::size_t i = 0; i < machine.tiers.size(); ++i) {
        fmt::print("{:<13}  {:>12}  {:>12}\n", machine.tiers[i].name,
                   format_byte_size(verdict.peak_bytes[i]),
                   format_byte_size(machine.tiers[i].size_bytes));
    }
    if (machine.links.empty()) return;
    fmt::print("\n{:<13}  {:>12}\n", "link", "each step");
    for (std::size_t i = 0; i < machine.links.size(); ++i) {
        fmt::print("{:<13}  {:>12}\n", link_name(machine, i),
                   format_byte_size(bytes_per_step(verdict, i)));
    }
}

void print_plans(const PlanSubject& subject, const std::vector<PlanOutcome>& outcomes) {
    print_subject(subject);
    fmt::print("{:<13}  {:>12}  {:>8}  {:>12}  {:>12}  {:>9}\n", "policy", "step time", "slowdown",
               "above bound", "moved, step", "planning");
    for (const PlanOutcome& each : outcomes) {
        if (!each.legal()) {
            fmt::print("{:<13}  {}\n", each.policy, each.problem);
            continue;
        }
        const ReplayVerdict& verdict = each.result->verdict;
        std::uint64_t moved_bytes = 0;
        for (std::size_t i = 0; i < verdict.moved_bytes.size(); ++i) {
            moved_bytes += bytes_per_step(verdict, i);
        }
        fmt::print("{:<13}  {:>12}  {:>8.4f}  {:>12}  {:>12}  {:>7.3f} s\n", each.policy,
                   time_text(verdict.step_ns), verdict.slowdown,
                   percent_above(above_bound(verdict, subject.bound)),
                   format_byte_size(moved_bytes), each.result->plan_s);
    }
    fmt::print("{:<13}  {:>12}  {:>8.4f}\n", "lower bound", time_text(subject.bound.step_ns),
               subject.bound.step_ns / static_cast<double>(subject.problem->trace.ideal_ns()));
}

}  // namespace frostline::cli
