// Plans are tried one after the other, each from what the best of them has shown. Most often the
// first is as good as any: then no other is tried.
#include "migration/planning/planner.h"

#include "migration/planning/plan_execution.h"
#include "migration/planning/replay.h"

#include <algorithm>
#include <array>
#include <new>
#include <numeric>
#include <optional>
#include <vector>

namespace frostline {
namespace {

// Slots are at most so short a part of a step, so that room is given out finely enough.
constexpr std::uint64_t kSlotsInAStep = 8192;
constexpr std::uint64_t kShortestSlotNs = 64;
constexpr std::uint64_t kLargestCopyBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kCopiesInADevice = 128;
// What slots round away, and what copies on their way take more than the plan knows.
constexpr std::uint64_t kMarginCopies = 2;
constexpr std::uint64_t kReservePart = 25;
constexpr double kGoodEnough = 1.0005;
constexpr double kHopeless = 8;  // links are so slow that no plan hides them

// Where tiers below lack room: what stays away for so large a part of a step (one over this) is
// sent to the slowest tier that has time for it.
constexpr std::array<SlotIndex, 4> kSlowFromParts = {0, 4, 2, 8};

// A plan that has to stall is made again with its own stalls as time to copy in; and because they
// come out longer than they must be, with a part of them.
constexpr std::array kPartsOfStalls = {1.0, 0.9, 0.8, 0.95, 0.7, 1.0, 0.9, 0.97};

Result<void> check_fit(const Trace& trace, const Machine& machine, const TensorUses& uses) {
    const std::uint64_t device_bytes = machine.tiers[machine.device].size_bytes;
    for (std::size_t i = 0; i < trace.kernels().size(); ++i) {
        const auto kernel = static_cast<KernelIndex>(i);
        std::uint64_t needed = 0;
        for (const TensorIndex tensor : uses.tensors(kernel)) {
            needed += trace.tensors()[tensor].size_bytes;
        }
        if (needed > device_bytes) {
            return Error(
                Errc::no_space, 0,
                "kernel {} ({}) needs {} bytes at once and {} has {}: {} bytes are missing", kernel,
                trace.name(kernel), needed, machine.tiers[machine.device].name, device_bytes,
                needed - device_bytes);
        }
    }
    return ok();
}

class Search {
   public:
    Search(const Trace& trace, const Machine& machine, const PlannerOptions& options)
        : trace_(trace),
          machine_(machine),
          options_(options),
          uses_(trace),
          routes_(routes_of(machine)),
          largest_copy_bytes_(
              std::clamp<std::uint64_t>(device_bytes() / kCopiesInADevice, 1, kLargestCopyBytes)),
          start_ns_(options.now_ns ? options.now_ns() : 0) {}

    Result<Plan> run() {
        FROSTLINE_TRY_VOID(check_fit(trace_, machine_, uses_));
        const std::vector<std::uint64_t> no_stalls(trace_.kernels().size(), 0);
        try_one(no_stalls, {});
        if (lacked_room_below_) {
            for (const SlotIndex parts : kSlowFromParts) try_one(no_stalls, {false, parts});
        }
        for (const double part : kPartsOfStalls) {
            if (!best_.has_value() || slowdown() > kHopeless) break;
            std::vector<std::uint64_t> stalls = best_->stall_ns;
            for (std::uint64_t& stall : stalls) {
                stall = static_cast<std::uint64_t>(static_cast<double>(stall) * part);
            }
            try_one(stalls, best_attempt_);
        }
        if (!best_.has_value()) return *failure_;
        FROSTLINE_TRY(const ReplayVerdict verdict, replay(trace_, machine_, best_->schedule));
        if (!verdict.legal) {
            return Error(Errc::unsupported, 0,
                         "a plan came out illegal (a fault of the planner): {}", verdict.why);
        }
        return Plan{std::move(best_->schedule), best_->step_ns, slowdown(), tried_, best_->rescues};
    }

   private:
    std::uint64_t device_bytes() const { return machine_.tiers[machine_.device].size_bytes; }
    double slowdown() const { return best_->step_ns / static_cast<double>(trace_.ideal_ns()); }
    bool is_over() const {
        return options_.now_ns && options_.now_ns() - start_ns_ >= options_.time_limit_ns;
    }

    // Stalls may be many times longer than all kernels, and get as many slots at most.
    std::uint64_t longest_slot_ns(const std::vector<std::uint64_t>& stalls) const {
        const std::uint64_t stall_ns =
            std::accumulate(stalls.begin(), stalls.end(), std::uint64_t{0});
        return std::max(
            {kShortestSlotNs, trace_.ideal_ns() / kSlotsInAStep, stall_ns / kSlotsInAStep});
    }

    struct Attempt {
        bool keeps_copies = true;
        SlotIndex slow_from_part = 0;  // 0: never
    };

    void try_one(const std::vector<std::uint64_t>& stalls, const Attempt& attempt) {
        if (best_.has_value() && (slowdown() <= kGoodEnough || is_over())) return;
        const PlanTimeline timeline(trace_, stalls, longest_slot_ns(stalls));
        TransferSettings settings;
        settings.device_bytes = device_bytes() - kMarginCopies * largest_copy_bytes_;
        settings.reserve_bytes = device_bytes() / kReservePart;
        settings.keeps_copies = attempt.keeps_copies;
        if (attempt.slow_from_part > 0) {
            settings.slow_from_slots = timeline.size() / attempt.slow_from_part;
        }
        const TransferPlan transfers =
            plan_transfers(trace_, machine_, uses_, routes_, timeline, settings);
        lacked_room_below_ |= transfers.lacked_room_below;
        PlanExecution execution(trace_, machine_, uses_, routes_, timeline, transfers,
                                {options_.steps, largest_copy_bytes_});
        Result<Execution> done = execution.run();
        ++tried_;
        if (!done) {
            if (!failure_.has_value()) failure_ = done.error();
        } else if (!best_.has_value() || done->step_ns < best_->step_ns) {
            best_ = *std::move(done);
            best_attempt_ = attempt;
        }
    }

    const Trace& trace_;
    const Machine& machine_;
    const PlannerOptions& options_;
    const TensorUses uses_;
    const std::vector<Route> routes_;
    const std::uint64_t largest_copy_bytes_;
    const std::uint64_t start_ns_;
    std::optional<Execution> best_;
    Attempt best_attempt_;
    std::optional<Error> failure_;
    std::uint32_t tried_ = 0;
    bool lacked_room_below_ = false;
};

}  // namespace

Result<Plan> plan_schedule(const Trace& trace, const Machine& machine,
                           const PlannerOptions& options) noexcept {
    if (options.steps < 3) {
        return Error(Errc::invalid_argument, 0, "a schedule covers at least 3 steps, not {}",
                     options.steps);
    }
    try {
        return Search(trace, machine, options).run();
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "planning");
    }
}

}  // namespace frostline
