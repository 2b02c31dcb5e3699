// Reads and writes schedules. What is illegal in one is not this file's to judge: only what names
// nothing that exists, or is no number, is refused.
#include "migration/planning/schedule.h"

#include "migration/planning/text_file.h"
#include "migration/planning/text_lines.h"

#include <fmt/format.h>

#include <iterator>
#include <limits>
#include <new>
#include <unordered_map>
#include <utility>

namespace frostline {
namespace {

constexpr std::string_view kScheduleFormat = "frostline-schedule 1";
constexpr std::uint64_t kAnyNumber = std::numeric_limits<std::uint64_t>::max();
// So that a time and a duration, or an offset and a size, have a sum.
constexpr std::uint64_t kMostNs = std::uint64_t{1} << 62;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62;

class ScheduleReader {
   public:
    ScheduleReader(std::string_view text, std::string_view name, const Trace& trace,
                   const Machine& machine)
        : lines_(text, name), trace_(trace), machine_(machine) {
        for (TensorIndex i = 0; i < trace.tensors().size(); ++i) {
            by_id_.emplace(trace.tensors()[i].id, i);
        }
    }

    Result<Schedule> read() {
        FROSTLINE_TRY_VOID(lines_.expect_format(kScheduleFormat));
        while (true) {
            FROSTLINE_TRY(const bool more, lines_.next());
            if (!more) return std::move(schedule_);
            FROSTLINE_TRY_VOID(read_line());
        }
    }

   private:
    Result<void> read_line() {
        FROSTLINE_TRY(const std::string_view kind, lines_.word("kind"));
        if (kind == "move") return read_move();
        if (kind == "drop") return read_drop();
        if (kind == "kernel") return read_kernel();
        if (kind == "init") return read_init();
        return lines_.error("a line of the kind {}; known are init, kernel, move and drop",
                            shown(kind));
    }

    Result<void> read_init() {
        ScheduledPlacement placement;
        FROSTLINE_TRY(placement.range, range());
        FROSTLINE_TRY(placement.tier, tier());
        schedule_.init.push_back(placement);
        return ok();
    }

    Result<void> read_kernel() {
        constexpr std::uint64_t kMostSteps = std::numeric_limits<std::uint32_t>::max() - 1;
        FROSTLINE_TRY(const std::uint64_t step, lines_.number("step", 0, kMostSteps));
        FROSTLINE_TRY(const std::uint64_t kernel,
                      lines_.number("kernel", 0, trace_.kernels().size() - 1));
        FROSTLINE_TRY(const std::uint64_t start_ns, lines_.number("start", 0, kMostNs));
        schedule_.kernels.push_back(
            {static_cast<std::uint32_t>(step), static_cast<KernelIndex>(kernel), start_ns});
        return ok();
    }

    Result<void> read_move() {
        ScheduledMove move;
        FROSTLINE_TRY(move.range, range());
        FROSTLINE_TRY(move.from, tier());
        FROSTLINE_TRY(move.to, tier());
        FROSTLINE_TRY(move.start_ns, lines_.number("start", 0, kMostNs));
        FROSTLINE_TRY(move.end_ns, lines_.number("end", 0, kMostNs));
        schedule_.moves.push_back(move);
        return ok();
    }

    Result<void> read_drop() {
        ScheduledDrop drop;
        FROSTLINE_TRY(drop.range, range());
        FROSTLINE_TRY(drop.tier, tier());
        FROSTLINE_TRY(drop.at_ns, lines_.number("time", 0, kMostNs));
        schedule_.drops.push_back(drop);
        return ok();
    }

    Result<TensorRange> range() {
        FROSTLINE_TRY(const std::uint64_t id, lines_.number("tensor", 0, kAnyNumber));
        const auto found = by_id_.find(id);
        if (found == by_id_.end()) return lines_.error("the trace has no tensor {}", id);
        TensorRange range{.tensor = found->second};
        FROSTLINE_TRY(range.offset_bytes, lines_.number("offset", 0, kMostBytes));
        FROSTLINE_TRY(range.size_bytes, lines_.number("size", 0, kMostBytes));
        return range;
    }

    Result<TierIndex> tier() {
        FROSTLINE_TRY(const std::string_view name, lines_.word("tier"));
        for (TierIndex i = 0; i < machine_.tiers.size(); ++i) {
            if (machine_.tiers[i].name == name) return i;
        }
        return lines_.error("the machine has no tier {}", shown(name));
    }

    TextLines lines_;
    const Trace& trace_;
    const Machine& machine_;
    std::unordered_map<std::uint64_t, TensorIndex> by_id_;
    Schedule schedule_;
};

Error no_memory(std::string_view name) {
    return Error(Errc::out_of_memory, 0, "no memory to read the schedule '{}'", name);
}

}  // namespace

Result<Schedule> parse_schedule(std::string_view text, std::string_view name, const Trace& trace,
                                const Machine& machine) noexcept {
    try {
        return ScheduleReader(text, name, trace, machine).read();
    } catch (const std::bad_alloc&) {
        return no_memory(name);
    }
}

Result<Schedule> read_schedule(const std::filesystem::path& path, const Trace& trace,
                               const Machine& machine) noexcept {
    try {
        FROSTLINE_TRY(const std::string text, read_text_file(path));
        return parse_schedule(text, path.native(), trace, machine);
    } catch (const std::bad_alloc&) {
        return no_memory(path.native());
    }
}

std::string to_text(const Schedule& schedule, const Trace& trace, const Machine& machine) {
    std::string text;
    const auto out = std::back_inserter(text);
    const auto id = [&](const TensorRange& range) { return trace.tensors()[range.tensor].id; };
    const auto tier = [&](TierIndex index) -> const std::string& {
        return machine.tiers[index].name;
    };
    fmt::format_to(out, "{}\n", kScheduleFormat);
    for (const ScheduledPlacement& each : schedule.init) {
        fmt::format_to(out, "init {} {} {} {}\n", id(each.range), each.range.offset_bytes,
                       each.range.size_bytes, tier(each.tier));
    }
    for (const ScheduledKernel& each : schedule.kernels) {
        fmt::format_to(out, "kernel {} {} {}\n", each.step, each.kernel, each.start_ns);
    }
    for (const ScheduledMove& each : schedule.moves) {
        fmt::format_to(out, "move {} {} {} {} {} {} {}\n", id(each.range), each.range.offset_bytes,
                       each.range.size_bytes, tier(each.from), tier(each.to), each.start_ns,
                       each.end_ns);
    }
    for (const ScheduledDrop& each : schedule.drops) {
        fmt::format_to(out, "drop {} {} {} {} {}\n", id(each.range), each.range.offset_bytes,
                       each.range.size_bytes, tier(each.tier), each.at_ns);
    }
    return text;
}

}  // namespace frostline
