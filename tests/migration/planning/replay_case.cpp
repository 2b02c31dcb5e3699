// Bytes and times are whole numbers and rates doubles, on both sides: nothing is rounded on the
// way.
#include "tests/migration/planning/replay_case.h"

#include "migration/planning/trace_builder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>
#include <unordered_map>
#include <utility>

namespace frostline {

namespace {

using Json = nlohmann::json;

std::vector<std::uint64_t> ids_of(const Trace& trace, std::span<const TensorIndex> tensors) {
    std::vector<std::uint64_t> ids;
    for (const TensorIndex each : tensors) ids.push_back(trace.tensors()[each].id);
    return ids;
}

Json trace_json(const Trace& trace) {
    Json json{{"tensors", Json::array()}, {"kernels", Json::array()}};
    for (const TraceTensor& each : trace.tensors()) {
        json["tensors"].push_back({each.id, each.size_bytes, trace.names()[each.class_name]});
    }
    for (KernelIndex i = 0; i < trace.kernels().size(); ++i) {
        json["kernels"].push_back({trace.kernels()[i].duration_ns, trace.name(i),
                                   ids_of(trace, trace.reads(i)), ids_of(trace, trace.writes(i))});
    }
    return json;
}

Json machine_json(const Machine& machine) {
    Json json{{"name", machine.name},
              {"device", machine.tiers[machine.device].name},
              {"tiers", Json::array()},
              {"resources", Json::object()},
              {"links", Json::array()}};
    for (const MachineTier& each : machine.tiers) {
        json["tiers"].push_back({{"name", each.name}, {"bytes", each.size_bytes}});
    }
    for (const MachineResource& each : machine.resources) {
        json["resources"][each.name] = each.bytes_per_second;
    }
    for (const MachineLink& each : machine.links) {
        Json resources = Json::array();
        for (const ResourceIndex i : each.resources) resources.push_back(machine.resources[i].name);
        json["links"].push_back({{"from", machine.tiers[each.from].name},
                                 {"to", machine.tiers[each.to].name},
                                 {"resources", resources},
                                 {"latency_ns", each.latency_ns}});
    }
    return json;
}

Json schedule_json(const ReplayCase& of) {
    const auto id = [&](const TensorRange& range) { return of.trace.tensors()[range.tensor].id; };
    const auto tier = [&](TierIndex each) { return of.machine.tiers[each].name; };
    Json json{{"init", Json::array()},
              {"kernels", Json::array()},
              {"moves", Json::array()},
              {"drops", Json::array()}};
    for (const auto& [range, where] : of.schedule.init) {
        json["init"].push_back({id(range), range.offset_bytes, range.size_bytes, tier(where)});
    }
    for (const auto& [step, kernel, start_ns] : of.schedule.kernels) {
        json["kernels"].push_back({step, kernel, start_ns});
    }
    for (const auto& [range, from, to, start_ns, end_ns] : of.schedule.moves) {
        json["moves"].push_back({id(range), range.offset_bytes, range.size_bytes, tier(from),
                                 tier(to), start_ns, end_ns});
    }
    for (const auto& [range, where, at_ns] : of.schedule.drops) {
        json["drops"].push_back(
            {id(range), range.offset_bytes, range.size_bytes, tier(where), at_ns});
    }
    return json;
}

/// Any failure to read is a mistake in the tests themselves.
template <class Value>
Value sure(Result<Value> result) {
    if (result.has_value()) return *std::move(result);
    ADD_FAILURE() << result.error().message();
    std::abort();
}

Trace trace_of(const Json& json) {
    TraceBuilder builder;
    const auto indices = [&](const Json& ids) {
        std::vector<TensorIndex> tensors;
        for (const Json& id : ids) tensors.push_back(sure(builder.find(id)));
        return tensors;
    };
    for (const Json& each : json["tensors"]) {
        sure(builder.add_tensor(each[0], each[1], each[2].get<std::string>()));
    }
    for (const Json& each : json["kernels"]) {
        EXPECT_TRUE(
            builder
                .add_kernel(each[0], each[1].get<std::string>(), indices(each[2]), indices(each[3]))
                .has_value());
    }
    return sure(builder.finish());
}

Schedule schedule_of(const Json& json, const Trace& trace, const Machine& machine) {
    std::unordered_map<std::uint64_t, TensorIndex> tensors;
    for (TensorIndex i = 0; i < trace.tensors().size(); ++i) tensors[trace.tensors()[i].id] = i;
    const auto tier = [&](const std::string& name) {
        TierIndex i = 0;
        while (machine.tiers.at(i).name != name) ++i;
        return i;
    };
    const auto range = [&](const Json& line) {
        return TensorRange{tensors.at(line[0]), line[1], line[2]};
    };
    Schedule schedule;
    for (const Json& each : json["init"]) {
        schedule.init.push_back({range(each), tier(each[3])});
    }
    for (const Json& each : json["kernels"]) {
        schedule.kernels.push_back({each[0], each[1], each[2]});
    }
    for (const Json& each : json["moves"]) {
        schedule.moves.push_back({range(each), tier(each[3]), tier(each[4]), each[5], each[6]});
    }
    for (const Json& each : json["drops"]) {
        schedule.drops.push_back({range(each), tier(each[3]), each[4]});
    }
    return schedule;
}

/// "12 ns" of "12 ns: what is wrong"; empty where no time is told.
std::string time_of(const std::string& why) {
    const std::size_t end = why.find(" ns: ");
    return end == std::string::npos ? "" : why.substr(0, end);
}

}  // namespace

std::string to_line(const ReplayCase& each) {
    return Json{{"trace", trace_json(each.trace)},
                {"machine", machine_json(each.machine)},
                {"schedule", schedule_json(each)}}
        .dump();
}

ReplayCase case_from_line(const std::string& line) {
    const Json json = Json::parse(line);
    Trace trace = trace_of(json["trace"]);
    Machine machine = sure(parse_machine(json["machine"].dump(), "a case"));
    Schedule schedule = schedule_of(json["schedule"], trace, machine);
    return {std::move(trace), std::move(machine), std::move(schedule)};
}

RefereeVerdict verdict_from_line(const std::string& line) {
    const Json json = Json::parse(line);
    RefereeVerdict verdict{.legal = json["legal"]};
    if (!verdict.legal) {
        verdict.why = json["why"];
        return verdict;
    }
    verdict.step_ns = json["step_ns"];
    verdict.slowdown = json["slowdown"];
    verdict.peak_bytes = json["peak_bytes"].get<std::vector<std::uint64_t>>();
    verdict.moved_bytes = json["moved_bytes"].get<std::vector<std::uint64_t>>();
    return verdict;
}

void expect_same_verdict(const ReplayCase& each, const RefereeVerdict& referee) {
    const auto ours = replay(each.trace, each.machine, each.schedule);
    ASSERT_TRUE(ours.has_value()) << ours.error().message();
    ASSERT_EQ(ours->legal, referee.legal) << "ours: " << ours->why << "\nreferee: " << referee.why;
    if (!referee.legal) {
        // The referee names no time where a link does not exist.
        if (time_of(referee.why).empty()) return;
        EXPECT_EQ(time_of(ours->why), time_of(referee.why))
            << "ours: " << ours->why << "\nreferee: " << referee.why;
        return;
    }
    EXPECT_EQ(std::nearbyint(ours->step_ns), referee.step_ns);
    EXPECT_NEAR(ours->slowdown, referee.slowdown, 1e-6);
    EXPECT_EQ(ours->peak_bytes, referee.peak_bytes);
    EXPECT_EQ(ours->moved_bytes, referee.moved_bytes);
}

}  // namespace frostline
