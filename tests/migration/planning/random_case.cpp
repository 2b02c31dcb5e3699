// Changes are small, and often to an instant at which something else happens: that is where rules
// are subtle.
#include "tests/migration/planning/random_case.h"

#include "migration/planning/trace_builder.h"
#include "tests/migration/planning/serial_scheduler.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace frostline {

namespace {

Trace make_trace(std::mt19937_64& random) {
    TraceBuilder builder;
    const std::uint64_t scale = between(random, 0, 49) == 0 ? 10 : 1;
    const std::uint64_t tensors = between(random, 2, 7 * scale);
    for (std::uint64_t i = 0; i < tensors; ++i) {
        const bool is_weight = between(random, 0, 2) == 0;
        const std::uint64_t size_bytes = between(random, 1, between(random, 0, 3) == 0 ? 10 : 1000);
        EXPECT_TRUE(builder.add_tensor(3 * i + 1, size_bytes, is_weight ? "weight" : "activation"));
    }
    const auto some = [&] {
        std::vector<TensorIndex> uses(between(random, 0, 2));
        for (TensorIndex& each : uses) {
            each = static_cast<TensorIndex>(between(random, 0, tensors - 1));
        }
        return uses;
    };
    const std::uint64_t kernels = between(random, 2, 7 * scale);
    for (std::uint64_t i = 0; i < kernels; ++i) {
        EXPECT_TRUE(builder.add_kernel(between(random, 1, 200), "k", some(), some()));
    }
    return builder.finish().value();
}

/// The most that one kernel uses.
std::uint64_t least_device_bytes(const Trace& trace) {
    std::uint64_t most = 1;
    for (KernelIndex i = 0; i < trace.kernels().size(); ++i) {
        const std::set<TensorIndex> uses(trace.uses(i).begin(), trace.uses(i).end());
        std::uint64_t bytes = 0;
        for (const TensorIndex each : uses) bytes += trace.tensors()[each].size_bytes;
        most = std::max(most, bytes);
    }
    return most;
}

Machine make_machine(const Trace& trace, std::mt19937_64& random) {
    const auto tiers = static_cast<TierIndex>(between(random, 2, 4));
    Machine machine{.name = "random",
                    .device = static_cast<TierIndex>(between(random, 0, tiers - 1))};
    std::uint64_t all_bytes = 0;
    for (const TraceTensor& each : trace.tensors()) all_bytes += each.size_bytes;
    const TierIndex below = tier_below(machine);
    for (TierIndex i = 0; i < tiers; ++i) {
        std::uint64_t size_bytes = between(random, 1, all_bytes);
        if (i == below) size_bytes = all_bytes;
        if (i == machine.device) {
            const std::uint64_t least = least_device_bytes(trace);
            size_bytes = least + (between(random, 0, 1) == 0 ? 0 : between(random, 0, least));
        }
        machine.tiers.push_back({"tier" + std::to_string(i), size_bytes});
    }
    const std::uint64_t resources = between(random, 1, 4);
    for (std::uint64_t i = 0; i < resources; ++i) {
        const double rates[] = {1e9, 3e9, 3.7e9, 1e10, 1.5754e10};
        machine.resources.push_back({"bus" + std::to_string(i), rates[between(random, 0, 4)]});
    }
    for (TierIndex from = 0; from < tiers; ++from) {
        for (TierIndex to = 0; to < tiers; ++to) {
            const bool is_needed = std::minmax(from, to) == std::minmax(machine.device, below);
            if (from == to || (!is_needed && between(random, 0, 2) == 0)) continue;
            std::vector<ResourceIndex> loads(resources);
            std::iota(loads.begin(), loads.end(), 0);
            std::shuffle(loads.begin(), loads.end(), random);
            loads.resize(between(random, 1, std::min<std::uint64_t>(2, resources)));
            machine.links.push_back(
                {from, to, loads, between(random, 0, 1) * between(random, 0, 20)});
        }
    }
    return machine;
}

}  // namespace

ReplayCase make_legal_case(std::mt19937_64& random) {
    Trace trace = make_trace(random);
    Machine machine = make_machine(trace, random);
    const auto steps = static_cast<std::uint32_t>(between(random, 3, 5));
    Schedule schedule = SerialScheduler(trace, machine, random).run(steps);
    return {std::move(trace), std::move(machine), std::move(schedule)};
}

namespace {

template <class Line>
Line* one_of(std::vector<Line>& lines, std::mt19937_64& random) {
    return lines.empty() ? nullptr : &lines[between(random, 0, lines.size() - 1)];
}

void shift(std::uint64_t& time_ns, std::mt19937_64& random) {
    const std::uint64_t by_ns = between(random, 0, 2) == 0 ? between(random, 1, 100) : 1;
    if (between(random, 0, 1) == 0)
        time_ns += by_ns;
    else
        time_ns -= std::min(time_ns, by_ns);
}

/// An instant at which something else happens.
std::uint64_t other_instant(ReplayCase& each, std::mt19937_64& random) {
    Schedule& schedule = each.schedule;
    const ScheduledKernel* const kernel = one_of(schedule.kernels, random);
    const ScheduledMove* const move = one_of(schedule.moves, random);
    switch (between(random, 0, 3)) {
        case 0:
            if (move != nullptr) return move->start_ns;
            break;
        case 1:
            if (move != nullptr) return move->end_ns;
            break;
        case 2:
            if (kernel != nullptr && kernel->kernel < each.trace.kernels().size()) {
                return kernel->start_ns + each.trace.kernels()[kernel->kernel].duration_ns;
            }
            break;
        default:
            break;
    }
    return kernel != nullptr ? kernel->start_ns : 0;
}

void change_range(TensorRange& range, std::mt19937_64& random) {
    shift(between(random, 0, 1) == 0 ? range.offset_bytes : range.size_bytes, random);
}

template <class Line>
void remove_or_repeat(std::vector<Line>& lines, std::mt19937_64& random) {
    if (lines.empty()) return;
    const auto place =
        lines.begin() + static_cast<std::ptrdiff_t>(between(random, 0, lines.size() - 1));
    if (between(random, 0, 2) == 0)
        lines.push_back(Line(*place));
    else
        lines.erase(place);
}

TierIndex any_tier(const Machine& machine, std::mt19937_64& random) {
    return static_cast<TierIndex>(between(random, 0, machine.tiers.size() - 1));
}

void change_move(ReplayCase& each, ScheduledMove& move, std::mt19937_64& random) {
    switch (between(random, 0, 6)) {
        case 0:
            return shift(move.start_ns, random);
        case 1:
            return shift(move.end_ns, random);
        case 2: {
            const std::uint64_t duration_ns = move.end_ns - move.start_ns;
            move.start_ns = other_instant(each, random);
            move.end_ns = move.start_ns + duration_ns;
            return;
        }
        case 3:
            move.end_ns = std::max(move.end_ns, other_instant(each, random));
            return;
        case 4:
            return std::swap(move.from, move.to);
        case 5:
            (between(random, 0, 1) == 0 ? move.from : move.to) = any_tier(each.machine, random);
            return;
        default:
            return change_range(move.range, random);
    }
}

void change_drop(ReplayCase& each, ScheduledDrop& drop, std::mt19937_64& random) {
    switch (between(random, 0, 3)) {
        case 0:
            return shift(drop.at_ns, random);
        case 1:
            drop.at_ns = other_instant(each, random);
            return;
        case 2:
            drop.tier = any_tier(each.machine, random);
            return;
        default:
            return change_range(drop.range, random);
    }
}

void change_placement(ReplayCase& each, ScheduledPlacement& placement, std::mt19937_64& random) {
    switch (between(random, 0, 2)) {
        case 0:
            return change_range(placement.range, random);
        case 1:
            placement.tier = any_tier(each.machine, random);
            return;
        default:
            placement.range.tensor =
                static_cast<TensorIndex>(between(random, 0, each.trace.tensors().size() - 1));
            return;
    }
}

void add_line(ReplayCase& each, std::mt19937_64& random) {
    const auto tensor =
        static_cast<TensorIndex>(between(random, 0, each.trace.tensors().size() - 1));
    const TensorRange range{tensor, 0, each.trace.tensors()[tensor].size_bytes};
    const std::uint64_t at_ns = other_instant(each, random);
    if (between(random, 0, 1) == 0) {
        each.schedule.drops.push_back({range, any_tier(each.machine, random), at_ns});
    } else if (const MachineLink* const link = one_of(each.machine.links, random)) {
        each.schedule.moves.push_back(
            {range, link->from, link->to, at_ns, at_ns + 1 + between(random, 0, 2000)});
    }
}

void change_machine(Machine& machine, std::mt19937_64& random) {
    switch (between(random, 0, 2)) {
        case 0:
            shift(machine.tiers[any_tier(machine, random)].size_bytes, random);
            break;
        case 1:
            one_of(machine.resources, random)->bytes_per_second *=
                between(random, 0, 1) == 0 ? 0.9 : 1.1;
            break;
        default:
            shift(one_of(machine.links, random)->latency_ns, random);
            break;
    }
    for (MachineTier& each : machine.tiers)
        each.size_bytes = std::max<std::uint64_t>(each.size_bytes, 1);
}

}  // namespace

void change_case(ReplayCase& each, std::mt19937_64& random) {
    Schedule& schedule = each.schedule;
    switch (between(random, 0, 11)) {
        case 0:
        case 1:
        case 2:
            if (ScheduledMove* const move = one_of(schedule.moves, random)) {
                change_move(each, *move, random);
            }
            break;
        case 3:
        case 4:
            if (ScheduledDrop* const drop = one_of(schedule.drops, random)) {
                change_drop(each, *drop, random);
            }
            break;
        case 5:
            remove_or_repeat(schedule.drops, random);
            break;
        case 6:
            remove_or_repeat(schedule.moves, random);
            break;
        case 7:
            if (between(random, 0, 3) == 0)
                remove_or_repeat(schedule.kernels, random);
            else if (ScheduledKernel* const kernel = one_of(schedule.kernels, random)) {
                shift(kernel->start_ns, random);
            }
            break;
        case 8:
            if (ScheduledPlacement* const placement = one_of(schedule.init, random)) {
                change_placement(each, *placement, random);
            }
            break;
        case 9:
            add_line(each, random);
            break;
        case 10:
            change_machine(each.machine, random);
            break;
        default:
            std::shuffle(schedule.kernels.begin(), schedule.kernels.end(), random);
            std::shuffle(schedule.moves.begin(), schedule.moves.end(), random);
            std::shuffle(schedule.drops.begin(), schedule.drops.end(), random);
            std::shuffle(schedule.init.begin(), schedule.init.end(), random);
            break;
    }
}

}  // namespace frostline
