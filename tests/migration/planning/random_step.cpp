// Sizes and rates are drawn by their order of magnitude, so that extremes are common.
#include "tests/migration/planning/random_step.h"

#include "migration/planning/trace_builder.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace frostline {
namespace {

using Random = std::mt19937_64;

bool one_in(Random& random, std::uint64_t count) {
    return between(random, 1, count) == 1;
}

TensorIndex any(Random& random, std::uint64_t tensors) {
    return static_cast<TensorIndex>(between(random, 0, tensors - 1));
}

std::uint64_t any_size(Random& random, std::uint64_t largest_bytes) {
    return one_in(random, 5) ? 1 : between(random, 1, largest_bytes);
}

// Uses without any order; some tensors may have none.
void add_unordered(TraceBuilder& builder, Random& random, std::uint64_t largest_bytes,
                   std::uint64_t longest_ns) {
    const std::uint64_t scale = one_in(random, 50) ? 10 : 1;
    const std::uint64_t tensors = between(random, 1, 12 * scale);
    for (std::uint64_t i = 0; i < tensors; ++i) {
        EXPECT_TRUE(builder.add_tensor(i, any_size(random, largest_bytes),
                                       one_in(random, 3) ? "weight" : "activation"));
    }
    const auto some = [&](std::uint64_t most) {
        std::vector<TensorIndex> uses(between(random, 0, most));
        for (TensorIndex& each : uses) each = any(random, tensors);
        return uses;
    };
    const std::uint64_t kernels = between(random, 1, 14 * scale);
    for (std::uint64_t i = 0; i < kernels; ++i) {
        const auto reads = some(3);
        const auto writes = some(2);
        EXPECT_TRUE(builder.add_kernel(between(random, 1, longest_ns), "k", reads, writes));
    }
}

// Layers forth and back: what a layer saves is read again the later, the earlier it was made.
void add_layers(TraceBuilder& builder, Random& random, std::uint64_t largest_bytes,
                std::uint64_t longest_ns) {
    const std::uint64_t layers = between(random, 1, one_in(random, 50) ? 60 : 8);
    const bool updates = one_in(random, 2);
    std::vector<TensorIndex> weights;
    std::vector<TensorIndex> saved;
    std::uint64_t id = 0;
    const auto add = [&](const char* class_name) {
        const auto tensor = builder.add_tensor(id++, any_size(random, largest_bytes), class_name);
        EXPECT_TRUE(tensor);
        return *tensor;
    };
    for (std::uint64_t i = 0; i <= layers; ++i) {
        weights.push_back(add("weight"));
        saved.push_back(add("activation"));
    }
    for (std::uint64_t i = 0; i < layers; ++i) {
        const TensorIndex reads[] = {weights[i], saved[i]};
        const TensorIndex writes[] = {saved[i + 1]};
        EXPECT_TRUE(builder.add_kernel(between(random, 1, longest_ns), "forward", reads, writes));
    }
    TensorIndex gradient = add("workspace");
    for (std::uint64_t i = layers; i > 0; --i) {
        const TensorIndex next = add("workspace");
        const TensorIndex reads[] = {weights[i], saved[i], saved[i - 1], gradient};
        std::vector<TensorIndex> writes{next};
        if (updates) writes.push_back(weights[i]);
        EXPECT_TRUE(builder.add_kernel(between(random, 1, longest_ns), "backward", reads, writes));
        gradient = next;
    }
}

Trace make_trace(Random& random) {
    const std::uint64_t sizes[] = {1, 10, 1000, 1'000'000};
    const std::uint64_t durations[] = {1, 200, 100'000, 1'000'000'000};
    const std::uint64_t largest_bytes = sizes[between(random, 0, 3)];
    const std::uint64_t longest_ns = durations[between(random, 0, 3)];
    TraceBuilder builder;
    if (one_in(random, 2)) {
        add_unordered(builder, random, largest_bytes, longest_ns);
    } else {
        add_layers(builder, random, largest_bytes, longest_ns);
    }
    return builder.finish().value();
}

std::uint64_t total_bytes(const Trace& trace) {
    std::uint64_t total = 0;
    for (const TraceTensor& each : trace.tensors()) total += each.size_bytes;
    return total;
}

std::uint64_t device_size(Random& random, std::uint64_t needed, std::uint64_t total) {
    switch (between(random, 0, 5)) {
        case 0:
            return needed - std::min<std::uint64_t>(needed, between(random, 0, 1));
        case 1:
            return needed + between(random, 0, 1);
        case 2:
            return total;
        case 3:
            return needed + (total - needed) / 4;
        default:
            return between(random, needed, total);
    }
}

}  // namespace

KernelNeed largest_need(const Trace& trace) {
    KernelNeed largest;
    for (KernelIndex i = 0; i < trace.kernels().size(); ++i) {
        const std::set<TensorIndex> uses(trace.uses(i).begin(), trace.uses(i).end());
        std::uint64_t bytes = 0;
        for (const TensorIndex each : uses) bytes += trace.tensors()[each].size_bytes;
        if (bytes > largest.bytes) largest = {i, bytes};
    }
    return largest;
}

RandomStep make_random_step(Random& random) {
    RandomStep step{make_trace(random), {}};
    Machine& machine = step.machine;
    machine.name = "random";
    const std::uint64_t total = total_bytes(step.trace);
    const auto tiers = static_cast<TierIndex>(between(random, 1, 4));
    machine.device = static_cast<TierIndex>(between(random, 0, tiers - 1));
    for (TierIndex i = 0; i < tiers; ++i) {
        const std::uint64_t sizes[] = {1, total / 8, between(random, 0, total), total, 8 * total};
        machine.tiers.push_back({"tier" + std::to_string(i), sizes[between(random, 0, 4)]});
    }
    machine.tiers[machine.device].size_bytes =
        device_size(random, largest_need(step.trace).bytes, total);
    const std::uint64_t resources = between(random, 1, 4);
    for (std::uint64_t i = 0; i < resources; ++i) {
        const double rates[] = {1e3, 1e6, 1e9, 3.7e9, 1.5754e10, 7.5};
        machine.resources.push_back(
            {"bus" + std::to_string(i), rates[between(random, 0, one_in(random, 20) ? 5 : 4)]});
    }
    const std::uint64_t missing_one_in = one_in(random, 3) ? 3 : 20;
    for (TierIndex from = 0; from < tiers; ++from) {
        for (TierIndex to = 0; to < tiers; ++to) {
            if (from == to || one_in(random, missing_one_in)) continue;
            std::vector<ResourceIndex> loads(resources);
            std::iota(loads.begin(), loads.end(), 0);
            std::shuffle(loads.begin(), loads.end(), random);
            loads.resize(between(random, 1, std::min<std::uint64_t>(2, resources)));
            const std::uint64_t latencies[] = {0, 0, 20, 20'000, 1'000'000'000};
            machine.links.push_back({from, to, loads, latencies[between(random, 0, 4)]});
        }
    }
    return step;
}

bool is_surely_feasible(const RandomStep& step) {
    const Machine& machine = step.machine;
    if (largest_need(step.trace).bytes > machine.tiers[machine.device].size_bytes) return false;
    for (TierIndex i = 0; i < machine.tiers.size(); ++i) {
        if (machine.link(machine.device, i) != nullptr &&
            machine.link(i, machine.device) != nullptr &&
            machine.tiers[i].size_bytes >= total_bytes(step.trace)) {
            return true;
        }
    }
    return total_bytes(step.trace) <= machine.tiers[machine.device].size_bytes;
}

}  // namespace frostline
