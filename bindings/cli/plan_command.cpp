// `frostline plan`: a schedule for a trace on a machine, by the planner or by a policy, and what it
// comes to. Options and places to write to are checked before anything is planned.
#include "bindings/byte_size.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/plan_result.h"
#include "bindings/cli/progress_line.h"
#include "bindings/trace_planning.h"
#include "bindings/whole_file.h"

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace frostline::cli {
namespace {

namespace po = boost::program_options;
using Json = nlohmann::ordered_json;

constexpr std::string_view kAll = "all";
constexpr double kMostSeconds = 1e6;

struct PlanRequest {
    std::string trace_path;
    std::string machine_path;
    std::string policy;
    std::optional<std::uint64_t> device_bytes;
    std::uint64_t time_limit_ns = 0;
    std::string schedule_path;  // empty: not asked for
    std::string page_path;      // empty: not asked for
    bool json = false;
};

po::options_description describe() {
    const auto text = [] { return po::value<std::string>()->value_name("TEXT"); };
    po::options_description options("usage: frostline plan TRACE --machine FILE [options]");
    options.add_options()("machine", text(), "the machine's description, in JSON (required)")(
        "policy", text()->default_value(std::string(kPlannerName)),
        fmt::format("{}, or all for a table", fmt::join(planning_names(), ", ")).c_str())(
        "device-memory", text(), "size of the device's memory, such as 24GiB, instead of its own")(
        "time-limit", text()->default_value("2"), "no further plan is tried after so many seconds")(
        "output,o", text(), "write the schedule to this file")("json", "print JSON")(
        "html", text(), "write a page with the step's timeline to this file")("help", "print this");
    return options;
}

// What is wrong with the option's value, or nothing.
std::string read_time_limit(const std::string& text, std::uint64_t& limit_ns) {
    double seconds = -1;
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, seconds);
    // Also refuses what is not a number.
    if (error != std::errc() || stopped != end || !(seconds >= 0 && seconds <= kMostSeconds)) {
        return fmt::format("time-limit: '{}' is not a number of seconds from 0 to {:.0f}", text,
                           kMostSeconds);
    }
    limit_ns = static_cast<std::uint64_t>(seconds * 1e9);
    return {};
}

std::string check_policy(const PlanRequest& request) {
    const std::vector<std::string_view> names = planning_names();
    if (request.policy == kAll) {
        if (request.schedule_path.empty() && request.page_path.empty()) return {};
        return "policy: all makes a table; -o and --html need one policy";
    }
    if (std::find(names.begin(), names.end(), request.policy) != names.end()) return {};
    return fmt::format("policy: there is no '{}'; there are {} and {}", request.policy,
                       fmt::join(names, ", "), kAll);
}

std::string read_request(const po::variables_map& values, PlanRequest& request) {
    const auto text = [&](const char* name) {
        return values.count(name) > 0 ? values[name].as<std::string>() : std::string();
    };
    request.trace_path = text("trace");
    request.machine_path = text("machine");
    if (request.trace_path.empty()) return "which trace? Name its file";
    if (request.machine_path.empty()) {
        return "which machine? Name the file of its description with --machine";
    }
    for (const char* const name : {"output", "html"}) {
        if (values.count(name) > 0 && text(name).empty()) {
            return fmt::format("{}: the path is empty", name);
        }
    }
    request.schedule_path = text("output");
    request.page_path = text("html");
    request.json = values.count("json") > 0;
    request.policy = text("policy");
    if (values.count("device-memory") > 0) {
        const auto bytes = parse_byte_size(text("device-memory"));
        if (!bytes) return fmt::format("device-memory: {}", bytes.error().message());
        if (*bytes == 0) return "device-memory: kernels cannot run in 0 bytes; give more";
        request.device_bytes = *bytes;
    }
    std::string problem = check_policy(request);
    if (problem.empty()) problem = read_time_limit(text("time-limit"), request.time_limit_ns);
    return problem;
}

// Before a long planning, not after it: what would stop the file from being written.
std::string check_place(const std::string& path, std::string_view what) {
    if (path.empty()) return {};
    std::error_code ignored;
    const auto there = std::filesystem::symlink_status(path, ignored);
    if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there)) {
        return fmt::format("{} '{}': is not a regular file; name another place", what, path);
    }
    const std::filesystem::path parent = std::filesystem::path(path).parent_path();
    const std::string folder = parent.empty() ? "." : parent.string();
    if (access(folder.c_str(), W_OK | X_OK) == 0) return {};
    return fmt::format("{} '{}': nothing can be written to the folder '{}'; name another place",
                       what, path, folder);
}

// What is read must not be overwritten, nor one of two results by the other.
std::string check_places(const PlanRequest& request) {
    std::string problem = check_place(request.schedule_path, "schedule");
    if (problem.empty()) problem = check_place(request.page_path, "page");
    if (!problem.empty()) return problem;
    for (const std::string& written : {request.schedule_path, request.page_path}) {
        for (const std::string& read : {request.trace_path, request.machine_path}) {
            std::error_code ignored;
            if (written.empty() || !std::filesystem::equivalent(written, read, ignored)) continue;
            return fmt::format("'{}' is read and would be overwritten; name another place",
                               written);
        }
    }
    if (request.schedule_path.empty() || request.schedule_path != request.page_path) return {};
    return fmt::format("'{}' cannot be the schedule and the page; name two places",
                       request.page_path);
}

// Why no policy can plan this, or nothing.
std::string find_impossible(const PlanSubject& subject) {
    const LowerBound& bound = subject.bound;
    if (bound.feasible) return {};
    const Machine& machine = subject.problem->machine;
    const std::string kernel = fmt::format("{}: kernel {} ({})", subject.trace_path, bound.kernel,
                                           subject.problem->trace.name(bound.kernel));
    if (bound.device_is_short) {
        const MachineTier& device = machine.tiers[machine.device];
        return fmt::format(
            "{} cannot run: {} bytes are missing in {}, which has {}; it runs with "
            "--device-memory {}",
            kernel, bound.missing_bytes, device.name, device.size_bytes,
            device.size_bytes + bound.missing_bytes);
    }
    return fmt::format(
        "{} cannot run: with all that lives then, {} bytes are missing in all tiers "
        "of {} together; give it larger tiers",
        kernel, bound.missing_bytes, subject.machine_path);
}

PlanOutcome plan_by(std::string_view name, const PlanningProblem& problem,
                    const PlanRequest& request) {
    PlanOutcome outcome;
    outcome.policy = name;
    auto result = plan_with(problem, name, request.time_limit_ns);
    if (!result) {
        outcome.problem = result.error().message();
        return outcome;
    }
    outcome.result = *std::move(result);
    if (!outcome.legal())
        outcome.problem = "the schedule is illegal: " + outcome.result->verdict.why;
    return outcome;
}

std::vector<PlanOutcome> plan_all(const PlanningProblem& problem, const PlanRequest& request,
                                  ProgressLine& progress) {
    std::vector<std::string_view> names = planning_names();
    if (request.policy != kAll) {
        names.erase(std::remove_if(names.begin(), names.end(),
                                   [&](std::string_view each) { return each != request.policy; }),
                    names.end());
    }
    std::vector<PlanOutcome> outcomes;
    for (const std::string_view name : names) {
        progress.begin(names.size() == 1 ? fmt::format("planning by {}", name)
                                         : fmt::format("planning by {} ({} of {})", name,
                                                       outcomes.size() + 1, names.size()));
        outcomes.push_back(plan_by(name, problem, request));
    }
    return outcomes;
}

// A schedule that is illegal is written, too: it can be looked at. There is no page of it.
std::string write_files(const PlanSubject& subject, const PlanOutcome& outcome,
                        const PlanRequest& request) {
    if (outcome.result && !request.schedule_path.empty()) {
        const auto written =
            write_whole_file(request.schedule_path,
                             schedule_text(*subject.problem, outcome.result->schedule), "schedule");
        if (!written) return written.error().message();
    }
    if (outcome.legal() && !request.page_path.empty()) {
        const auto page = plan_page(subject, outcome);
        if (!page) return page.error().message();
        const auto written = write_whole_file(request.page_path, *page, "page");
        if (!written) return written.error().message();
    }
    return {};
}

void print(const PlanSubject& subject, const std::vector<PlanOutcome>& outcomes,
           const PlanRequest& request) {
    const bool is_table = request.policy == kAll;
    if (request.json) {
        const Json json =
            is_table ? plans_json(subject, outcomes) : plan_json(subject, outcomes.front());
        // A path need not be text.
        fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
    } else if (is_table) {
        print_plans(subject, outcomes);
    } else if (outcomes.front().result) {
        print_plan(subject, outcomes.front());
    }
}

struct Planned {
    std::optional<PlanningProblem> problem;
    PlanSubject subject;
    std::vector<PlanOutcome> outcomes;
};

// All that may take long. Returns why there is nothing to tell, or nothing.
std::string read_and_plan(const PlanRequest& request, Planned& planned) {
    ProgressLine progress;
    progress.begin(fmt::format("reading {}", request.trace_path));
    auto problem =
        read_planning_problem(request.trace_path, request.machine_path, request.device_bytes);
    if (!problem) return problem.error().message();
    planned.problem = *std::move(problem);
    progress.begin("looking for a lower bound");
    auto bound = bound_of(*planned.problem);
    if (!bound) return bound.error().message();
    planned.subject = {request.trace_path, request.machine_path, &*planned.problem,
                       *std::move(bound)};
    std::string impossible = find_impossible(planned.subject);
    if (impossible.empty()) planned.outcomes = plan_all(*planned.problem, request, progress);
    return impossible;
}

int run(const PlanRequest& request) {
    if (const std::string unfit = check_places(request); !unfit.empty()) {
        return fail(kFailure, unfit);
    }
    Planned planned;
    const std::string nothing = read_and_plan(request, planned);
    if (!nothing.empty()) return fail(kFailure, nothing);
    print(planned.subject, planned.outcomes, request);
    // Of a table, the last line is the planner's; that a baseline cannot run is a finding.
    const PlanOutcome& last = planned.outcomes.back();
    if (request.policy != kAll) {
        const std::string unwritten = write_files(planned.subject, last, request);
        if (!unwritten.empty()) return fail(kFailure, unwritten);
    }
    if (last.legal()) return kSuccess;
    return fail(kFailure, fmt::format("{}: {}: {}", request.trace_path, last.policy, last.problem));
}

}  // namespace

int plan(const std::vector<std::string>& arguments) {
    const po::options_description options = describe();
    po::options_description accepted;
    accepted.add(options).add_options()("trace", po::value<std::string>());
    po::positional_options_description positional;
    positional.add("trace", 1);
    po::variables_map values;
    try {
        po::store(po::command_line_parser(arguments).options(accepted).positional(positional).run(),
                  values);
    } catch (const po::error& error) {
        return fail_usage("plan", error.what());
    }
    if (values.count("help") > 0) {
        std::ostringstream text;
        text << options;
        fmt::print("{}", text.str());
        return kSuccess;
    }
    PlanRequest request;
    const std::string problem = read_request(values, request);
    if (!problem.empty()) return fail_usage("plan", problem);
    return run(request);
}

}  // namespace frostline::cli
