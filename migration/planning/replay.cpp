// Every act of a schedule happens at its time, and at one instant in the order of Act: so whatever
// is freed at an instant is there for what starts at it.
#include "migration/planning/replay.h"

#include "migration/planning/link_load.h"
#include "migration/planning/objection.h"
#include "migration/planning/replayed_memory.h"
#include "migration/planning/schedule_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <new>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

namespace frostline {

namespace {

/// In the order in which acts happen at one instant: what frees comes first.
enum class Act : std::uint8_t { end_move, end_kernel, drop, start_move, start_kernel, none };

/// Sorts by time and then as above.
using Event = std::pair<std::uint64_t, Act>;

constexpr Event kNever{std::numeric_limits<std::uint64_t>::max(), Act::none};

struct MoveUnderWay {
    std::uint64_t end_ns = 0;
    std::size_t rank = 0;  ///< in the order of starts, so that ends at one instant are in order
    std::size_t move = 0;
    std::size_t link = 0;
    double bytes_per_second = 0;

    friend bool operator>(const MoveUnderWay& a, const MoveUnderWay& b) noexcept {
        return std::tie(a.end_ns, a.rank) > std::tie(b.end_ns, b.rank);
    }
};

/// The places of `lines` in the order of `time_of`; lines of one instant stay as they are.
template <class Line, class TimeOf>
std::vector<std::size_t> in_order_of_time(const std::vector<Line>& lines, TimeOf time_of) {
    std::vector<std::size_t> order(lines.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return time_of(lines[a]) < time_of(lines[b]);
    });
    return order;
}

/// Merges kernels, moves and drops into one sequence of events and lets memory and links judge
/// each.
class Replay {
   public:
    /// In `memory` the weights are where they lie before the first step.
    Replay(const Trace& trace, const Machine& machine, const Schedule& schedule,
           KernelStarts starts, ReplayedMemory memory)
        : trace_(trace),
          machine_(machine),
          schedule_(schedule),
          starts_(std::move(starts)),
          move_order_(in_order_of_time(schedule.moves,
                                       [](const ScheduledMove& each) { return each.start_ns; })),
          drop_order_(in_order_of_time(schedule.drops,
                                       [](const ScheduledDrop& each) { return each.at_ns; })),
          memory_(std::move(memory)),
          load_(machine),
          moved_bytes_(machine.links.size(), 0) {}

    Objection run() {
        for (Event next = next_event(); next != kNever; next = next_event()) {
            if (Objection why = perform(next.second)) {
                return fmt::format("{} ns: {}", next.first, *why);
            }
        }
        return std::nullopt;
    }

    /// After run() objected to nothing.
    ReplayVerdict verdict() const {
        ReplayVerdict verdict{.legal = true,
                              .steps = starts_.steps,
                              .ideal_ns = trace_.ideal_ns(),
                              .peak_bytes = memory_.peak_bytes(),
                              .moved_bytes = moved_bytes_};
        const std::size_t kernels = trace_.kernels().size();
        const std::uint64_t first_end_ns = end_ns(kernels - 1);
        const std::uint64_t last_end_ns = end_ns(starts_.start_ns.size() - 1);
        verdict.step_ns = static_cast<double>(last_end_ns - first_end_ns) /
                          static_cast<double>(starts_.steps - 1);
        verdict.slowdown = verdict.step_ns / static_cast<double>(verdict.ideal_ns);
        return verdict;
    }

   private:
    KernelIndex kernel_of(std::size_t run) const noexcept {
        return static_cast<KernelIndex>(run % trace_.kernels().size());
    }
    std::uint64_t end_ns(std::size_t run) const noexcept {
        return starts_.start_ns[run] + trace_.kernels()[kernel_of(run)].duration_ns;
    }

    Event next_event() const noexcept {
        Event next = kNever;
        if (!under_way_.empty()) next = {under_way_.top().end_ns, Act::end_move};
        if (run_ < starts_.start_ns.size()) {
            next = std::min(next, is_running_ ? Event{end_ns(run_), Act::end_kernel}
                                              : Event{starts_.start_ns[run_], Act::start_kernel});
        }
        if (next_drop_ < drop_order_.size()) {
            next = std::min(next, {schedule_.drops[drop_order_[next_drop_]].at_ns, Act::drop});
        }
        if (next_move_ < move_order_.size()) {
            next = std::min(next,
                            {schedule_.moves[move_order_[next_move_]].start_ns, Act::start_move});
        }
        return next;
    }

    Objection perform(Act act) {
        switch (act) {
            case Act::end_move:
                end_move();
                return std::nullopt;
            case Act::end_kernel:
                is_running_ = false;
                return memory_.end_kernel(kernel_of(run_++));
            case Act::drop:
                return memory_.drop(schedule_.drops[drop_order_[next_drop_++]]);
            case Act::start_move:
                return start_move(move_order_[next_move_++]);
            case Act::start_kernel:
                is_running_ = true;
                return memory_.start_kernel(kernel_of(run_));
            case Act::none:
                break;
        }
        return std::nullopt;
    }

    Objection start_move(std::size_t index) {
        const ScheduledMove& move = schedule_.moves[index];
        const auto found = std::find_if(
            machine_.links.begin(), machine_.links.end(),
            [&](const MachineLink& each) { return each.from == move.from && each.to == move.to; });
        if (found == machine_.links.end()) return object_to(move, "and there is no such link");
        if (move.end_ns <= move.start_ns || move.end_ns - move.start_ns <= found->latency_ns) {
            return object_to(move,
                             fmt::format("and ends at {} ns, within the link's latency of {} ns",
                                         move.end_ns, found->latency_ns));
        }
        const std::uint64_t busy_ns = move.end_ns - move.start_ns - found->latency_ns;
        const auto link = static_cast<std::size_t>(found - machine_.links.begin());
        const double bytes_per_second =
            static_cast<double>(move.range.size_bytes) / static_cast<double>(busy_ns) * 1e9;
        if (Objection why = memory_.start_move(move, link)) return why;
        if (Objection why = load_.start(*found, bytes_per_second)) return object_to(move, *why);
        under_way_.push({move.end_ns, next_move_, index, link, bytes_per_second});
        moved_bytes_[link] += move.range.size_bytes;
        return std::nullopt;
    }

    void end_move() {
        const MoveUnderWay ended = under_way_.top();
        under_way_.pop();
        load_.end(machine_.links[ended.link], ended.bytes_per_second);
        memory_.end_move(schedule_.moves[ended.move], ended.link);
    }

    Objection object_to(const ScheduledMove& move, std::string_view why) const {
        return fmt::format("tensor {} moves from {} to {}, {}",
                           trace_.tensors()[move.range.tensor].id, machine_.tiers[move.from].name,
                           machine_.tiers[move.to].name, why);
    }

    const Trace& trace_;
    const Machine& machine_;
    const Schedule& schedule_;
    const KernelStarts starts_;
    const std::vector<std::size_t> move_order_;
    const std::vector<std::size_t> drop_order_;

    ReplayedMemory memory_;
    LinkLoad load_;
    std::vector<std::uint64_t> moved_bytes_;  ///< by link
    std::priority_queue<MoveUnderWay, std::vector<MoveUnderWay>, std::greater<>> under_way_;
    std::size_t run_ = 0;  ///< the kernel that runs, or the next one
    bool is_running_ = false;
    std::size_t next_move_ = 0;  ///< in move_order_
    std::size_t next_drop_ = 0;  ///< in drop_order_
};

ReplayVerdict illegal(const Objection& why) {
    return {.legal = false, .why = *why};
}

Objection place_weights(const Schedule& schedule, ReplayedMemory& memory) {
    for (const ScheduledPlacement& each : schedule.init) {
        if (Objection why = memory.place(each)) return "0 ns: " + *why;
    }
    if (Objection why = memory.check_weights()) return "0 ns: " + *why;
    return std::nullopt;
}

ReplayVerdict judge(const Trace& trace, const Machine& machine, const Schedule& schedule) {
    if (const Objection why = check_lines(trace, machine, schedule)) return illegal(why);
    ReplayedMemory memory(trace, machine);
    if (const Objection why = place_weights(schedule, memory)) return illegal(why);
    KernelStarts starts;
    if (const Objection why = order_kernels(trace, schedule, starts)) return illegal(why);
    Replay replay(trace, machine, schedule, std::move(starts), std::move(memory));
    if (const Objection why = replay.run()) return illegal(why);
    return replay.verdict();
}

}  // namespace

Result<ReplayVerdict> replay(const Trace& trace, const Machine& machine,
                             const Schedule& schedule) noexcept {
    try {
        return judge(trace, machine, schedule);
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "no memory to replay a schedule of {} kernels",
                     schedule.kernels.size());
    }
}

}  // namespace frostline
