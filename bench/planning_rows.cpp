// Plans are deterministic here: they are given no time limit, so a slow machine plans the same.
#include "bench/planning_rows.h"

#include "bench/media.h"
#include "migration/planning/lower_bound.h"
#include "migration/planning/planner.h"
#include "migration/planning/trace_builder.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace frostline::bench {
namespace {

constexpr double kMostSlowdown = 1.01;
constexpr double kMostOverBound = 1.03;
constexpr double kMostSeconds = 60;
constexpr double kMostShortSeconds = 2;  // for as many kernels as real traces have
constexpr double kMostBytes = 4.0 * (std::uint64_t{1} << 30);
// That of n log n is 1.1 at these sizes; what is measured is noisy.
constexpr double kMostExponent = 1.25;
constexpr std::uint32_t kKernelsOfALayer = 10;  // four forth, six back

std::uint64_t largest_need(const Trace& trace) {
    std::uint64_t largest = 0;
    for (KernelIndex i = 0; i < trace.kernels().size(); ++i) {
        const std::set<TensorIndex> uses(trace.uses(i).begin(), trace.uses(i).end());
        std::uint64_t bytes = 0;
        for (const TensorIndex each : uses) bytes += trace.tensors()[each].size_bytes;
        largest = std::max(largest, bytes);
    }
    return largest;
}

Row quality_row(const std::string& name, const Trace& trace, const Machine& machine, bool whole) {
    const Plan plan = expect(plan_schedule(trace, machine, {}));
    const LowerBound bound = expect(lower_bound(trace, machine));
    const double bound_slowdown = bound.step_ns / static_cast<double>(trace.ideal_ns());
    const double gib = static_cast<double>(machine.tiers[machine.device].size_bytes) /
                       static_cast<double>(std::uint64_t{1} << 30);
    Row row{.suite = "planner",
            .name = fmt::format("{} on {:.2f} GiB", name, gib),
            .value = plan.slowdown,
            .unit = "x",
            .baseline = whole ? "infinite memory" : "the lower bound",
            .baseline_value = whole ? 1 : bound_slowdown,
            .label = "simulated",
            .bar = whole ? kMostSlowdown : kMostOverBound,
            .at_most = true};
    row.ratio = row.value / row.baseline_value;
    return row;
}

// Layers that save three tensors forth, and read them, and update their weights, back.
Trace repeated_layers(std::uint32_t layers) {
    TraceBuilder builder;
    std::uint64_t id = 0;
    const auto tensor = [&](std::uint64_t mib, const char* class_name) {
        return expect(builder.add_tensor(id++, mib << 20, class_name));
    };
    const auto kernel = [&](std::uint64_t us, std::vector<TensorIndex> reads,
                            std::vector<TensorIndex> writes) {
        expect(builder.add_kernel(us * 1000, "layer", reads, writes));
    };
    struct Layer {
        TensorIndex weight, moments, input, normed, mixed, wide;
    };
    std::vector<Layer> made;
    TensorIndex activation = tensor(8, "input");
    for (std::uint32_t i = 0; i < layers; ++i) {
        const Layer each{
            tensor(2, "weight"),     tensor(4, "weight"),     activation,
            tensor(8, "activation"), tensor(8, "activation"), tensor(32, "activation")};
        activation = tensor(8, "activation");
        kernel(100, {each.input}, {each.normed});
        kernel(900, {each.normed, each.weight}, {each.mixed});
        kernel(1500, {each.mixed, each.weight}, {each.wide});
        kernel(1500, {each.wide, each.weight}, {activation});
        made.push_back(each);
    }
    TensorIndex gradient = tensor(8, "workspace");
    kernel(100, {activation}, {gradient});
    std::reverse(made.begin(), made.end());
    for (const auto& each : made) {
        const TensorIndex of_wide = tensor(32, "workspace");
        const TensorIndex of_mixed = tensor(8, "workspace");
        const TensorIndex of_weight = tensor(2, "workspace");
        const TensorIndex of_input = tensor(8, "workspace");
        kernel(1500, {gradient, each.weight}, {of_wide});
        kernel(1500, {gradient, each.wide}, {of_weight});
        kernel(1500, {of_wide, each.weight}, {of_mixed});
        kernel(1500, {of_wide, each.mixed}, {of_weight});
        kernel(900, {of_mixed, each.normed, each.input}, {of_input});
        kernel(100, {of_weight}, {each.weight, each.moments});
        gradient = of_input;
    }
    return expect(builder.finish());
}

// Half of what the weights and the saved tensors take, above DRAM and a disk for all of them.
Machine machine_for(const Trace& trace) {
    std::uint64_t total = 0;
    for (const TraceTensor& each : trace.tensors()) {
        if (each.is_weight || each.last_use - each.first_use > kKernelsOfALayer) {
            total += each.size_bytes;
        }
    }
    Machine machine;
    machine.tiers = {
        {"gpu", std::max(total / 2, largest_need(trace))}, {"dram", total}, {"ssd", 4 * total}};
    machine.resources = {{"pcie_out", 15.754e9}, {"pcie_in", 15.754e9}, {"ssd", 3.2e9}};
    machine.links = {
        {0, 1, {0}, 5000}, {1, 0, {1}, 5000}, {0, 2, {0, 2}, 21000}, {2, 0, {1, 2}, 17000}};
    return machine;
}

double peak_bytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) * 1024;
}

Row growth_row(std::string name, double value, std::string unit, double bar_value) {
    return {.suite = "planner",
            .name = std::move(name),
            .value = value,
            .unit = std::move(unit),
            .baseline = "its budget",
            .baseline_value = bar_value,
            .ratio = value / bar_value,
            .label = "real",
            .bar = 1,
            .at_most = true};
}

}  // namespace

std::vector<Row> plan_quality_rows() {
    const std::filesystem::path shared = FROSTLINE_SHARED;
    std::vector<Row> rows;
    for (const char* const name : {"bert-256", "vit-1280", "inception-1536"}) {
        const std::filesystem::path path = shared / "traces" / (std::string(name) + ".trace");
        if (!std::filesystem::exists(path)) {
            std::printf("planner: no %s, so nothing is said of it\n", path.c_str());
            continue;
        }
        const Trace trace = expect(read_trace(path));
        Machine machine = expect(read_machine(shared / "referee" / "a100-40g.json"));
        const std::uint64_t whole = machine.tiers[machine.device].size_bytes;
        const std::uint64_t least = largest_need(trace);
        std::uint64_t size = whole;
        for (std::uint64_t tenths = 10; size > least; size = whole / 10 * --tenths) {
            machine.tiers[machine.device].size_bytes = size;
            rows.push_back(quality_row(name, trace, machine, size == whole));
        }
        machine.tiers[machine.device].size_bytes = least;
        rows.push_back(quality_row(name, trace, machine, false));
    }
    return rows;
}

std::vector<Row> plan_growth_rows() {
    std::vector<Row> rows;
    double last_kernels = 0;
    double last_seconds = 0;
    for (const std::uint32_t kernels : {1500U, 20'000U, 200'000U}) {
        const Trace trace = repeated_layers(kernels / kKernelsOfALayer);
        const Machine machine = machine_for(trace);
        double tried = 1;
        const double taken =
            seconds([&] { tried = expect(plan_schedule(trace, machine, {})).plans_tried; });
        rows.push_back(growth_row(fmt::format("plan {} kernels ({} plans tried)", kernels, tried),
                                  taken, "s", kernels > 1500 ? kMostSeconds : kMostShortSeconds));
        rows.push_back(growth_row(fmt::format("peak memory, {} kernels", kernels), peak_bytes(),
                                  "bytes", kMostBytes));
        // How many plans are tried is no matter of size, so the growth is that of one.
        if (last_kernels > 0) {
            const double exponent =
                std::log(taken / tried / last_seconds) / std::log(kernels / last_kernels);
            rows.push_back(growth_row(
                fmt::format("exponent of a plan's time, {} to {} kernels", last_kernels, kernels),
                exponent, "", kMostExponent));
        }
        last_kernels = kernels;
        last_seconds = taken / tried;
    }
    return rows;
}

}  // namespace frostline::bench
