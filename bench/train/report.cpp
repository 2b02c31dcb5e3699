// Losses are written as hexadecimal floats, which lose no bit: two runs are the same exactly if
// their files are.
#include "bench/train/report.h"

#include "bench/output_file.h"
#include "bindings/byte_size.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <fstream>
#include <utility>

namespace frostline::train {
namespace {

Result<void> write_text(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text << std::flush;
    if (!file) return Error(Errc::io, 0, "cannot write {}", path);
    return ok();
}

std::string hash_text(std::uint64_t hash) {
    return fmt::format("{:016x}", hash);
}

nlohmann::json plan_json(const ModelShape& shape) {
    const Footprint plan = footprint_of(shape);
    return {{"parameters", plan.parameters},
            {"weights_bytes", plan.weights_bytes},
            {"gradients_bytes", plan.gradients_bytes},
            {"optimizer_bytes", plan.optimizer_bytes},
            {"activations_bytes", plan.activations_bytes},
            {"workspace_bytes", plan.workspace_bytes},
            {"total_bytes", plan.total_bytes()}};
}

// The names are those of the demo's own results.
nlohmann::json tiers_json(const ManagerStats& stats) {
    nlohmann::json tiers = nlohmann::json::object();
    for (const TierStats& tier : stats.tiers) {
        tiers[tier.name] = {{"label", tier.label},
                            {"location", tier.location},
                            {"budget_bytes", tier.budget_bytes},
                            {"peak_bytes", tier.peak_bytes},
                            {"moved_in_bytes", tier.moved_in_bytes},
                            {"moved_out_bytes", tier.moved_out_bytes}};
    }
    return tiers;
}

// Columns, and not a row for each sample: there are thousands, and the tiers' names once are
// enough.
nlohmann::json timeline_json(const TrainingOutcome& outcome) {
    nlohmann::json columns = {{"time_ns", nlohmann::json::array()}};
    for (const UsageSample& sample : outcome.timeline) {
        columns["time_ns"].push_back(sample.time_ns);
        for (std::size_t i = 0; i < sample.used_bytes.size(); ++i) {
            columns[outcome.tiers->tiers[i].name].push_back(sample.used_bytes[i]);
        }
    }
    return columns;
}

const char* kind_name(int kind) {
    switch (kind) {
        case FROSTLINE_EMULATOR_KERNEL:
            return "kernel";
        case FROSTLINE_EMULATOR_COPY_H2D:
            return "to_device";
        case FROSTLINE_EMULATOR_COPY_D2H:
            return "from_device";
        default:
            return "other";
    }
}

nlohmann::json work_json(const EmulatedWork& work) {
    nlohmann::json operations = nlohmann::json::object();
    for (const frostline_emulator_operation& each : work.operations) {
        nlohmann::json& columns = operations[kind_name(each.kind)];
        columns["start_ns"].push_back(each.start_ns);
        columns["end_ns"].push_back(each.end_ns);
        columns["bytes"].push_back(each.bytes);
    }
    return operations;
}

nlohmann::json report_json(const Options& options, const TrainingOutcome& outcome) {
    const ModelShape& shape = options.shape;
    nlohmann::json losses = nlohmann::json::array();
    nlohmann::json starts = nlohmann::json::array();
    nlohmann::json seconds = nlohmann::json::array();
    for (const StepOutcome& step : outcome.steps) {
        losses.push_back(step.loss);
        starts.push_back(step.start_ns);
        seconds.push_back(step.seconds);
    }
    nlohmann::json report = {{"device", outcome.device_name},
                             {"label", outcome.label},
                             {"layers", shape.layers},
                             {"width", shape.width},
                             {"heads", shape.heads},
                             {"context", shape.context},
                             {"batch", shape.batch},
                             {"seed", options.seed},
                             {"learning_rate", options.optimizer.learning_rate},
                             {"plan", plan_json(shape)},
                             {"peak_device_bytes", outcome.peak_device_bytes},
                             {"fixed_device_bytes", outcome.fixed_device_bytes},
                             {"losses", losses},
                             {"step_start_ns", starts},
                             {"step_seconds", seconds},
                             {"version", version()},
                             {"weights_hash", hash_text(outcome.weights_hash)}};
    if (outcome.tiers) {
        report["tiers"] = tiers_json(*outcome.tiers);
        report["timeline"] = timeline_json(outcome);
        report["use_stalls"] = outcome.tiers->use_stalls;
        report["use_stall_ns"] = outcome.tiers->use_stall_ns;
        report["store_stalls"] = outcome.tiers->store_stalls;
        report["store_stall_ns"] = outcome.tiers->store_stall_ns;
        report["moves"] = outcome.tiers->moves;
    }
    if (outcome.work) {
        report["operations"] = work_json(*outcome.work);
        report["misuses"] = outcome.work->misuses;
    }
    return report;
}

}  // namespace

void print_plan(const ModelShape& shape) {
    const Footprint plan = footprint_of(shape);
    fmt::print("{} parameters, {} tokens a step\n", plan.parameters, shape.rows());
    const auto row = [&](const char* what, std::int64_t size_bytes) {
        fmt::print("{:<12} {:>16} B {:>12}\n", what, size_bytes, format_byte_size(size_bytes));
    };
    row("weights", plan.weights_bytes);
    row("gradients", plan.gradients_bytes);
    row("optimizer", plan.optimizer_bytes);
    row("activations", plan.activations_bytes);
    row("workspace", plan.workspace_bytes);
    row("total", plan.total_bytes());
}

void print_step(const StepOutcome& step) {
    if (step.number == 1) fmt::print("{:>6} {:>10} {:>10}\n", "step", "loss", "ms");
    fmt::print("{:>6} {:>10.5f} {:>10.1f}\n", step.number, step.loss, step.seconds * 1e3);
    // Whoever watches a long run through a pipe sees each step when it is done.
    (void)std::fflush(stdout);
}

void print_summary(const Options& options, const TrainingOutcome& outcome) {
    fmt::print("{} ({}): peak {} of device memory\n", outcome.device_name, outcome.label,
               format_byte_size(outcome.peak_device_bytes));
    if (outcome.tiers) {
        for (const TierStats& tier : outcome.tiers->tiers) {
            fmt::print("{:<7} {:<9} peak {:>10} of {:>10}, moved in {:>10}, out {:>10}\n",
                       tier.name, tier.label, format_byte_size(tier.peak_bytes),
                       format_byte_size(tier.budget_bytes), format_byte_size(tier.moved_in_bytes),
                       format_byte_size(tier.moved_out_bytes));
        }
    }
    if (options.weights_hash) fmt::print("weights {}\n", hash_text(outcome.weights_hash));
}

Result<void> check_files(const Options& options) {
    for (const auto& [option, path] :
         {std::pair{"--losses", &options.losses}, std::pair{"--report", &options.report}}) {
        if (path->empty()) continue;
        const Result<void> checked = check_output_file(*path);
        if (!checked) {
            return Error(checked.error().code(), 0, "{}: {}", option, checked.error().message());
        }
    }
    return ok();
}

Result<void> write_files(const Options& options, const TrainingOutcome& outcome) {
    if (!options.losses.empty()) {
        std::string lines;
        for (const StepOutcome& step : outcome.steps) lines += fmt::format("{:a}\n", step.loss);
        FROSTLINE_TRY_VOID(write_text(options.losses, lines));
    }
    if (!options.report.empty()) {
        FROSTLINE_TRY_VOID(
            write_text(options.report, report_json(options, outcome).dump(2) + "\n"));
    }
    return ok();
}

}  // namespace frostline::train
