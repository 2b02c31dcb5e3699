// The first plan is the one that is best most often; others follow as long as there is time, and
// none of them once a plan costs nothing.
#include "migration/planning/planner.h"

#include "migration/planning/plan_execution.h"
#include "migration/planning/replay.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>
#include <span>
#include <vector>

namespace frostline {
namespace {

// Slots are at most so short a part of a step, so that room is given out finely enough.
constexpr std::uint64_t kSlotsInAStep = 8192;
constexpr std::uint64_t kLargestCopyBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kCopiesInADevice = 512;
constexpr double kGoodEnough = 1.0005;

// What to leave free of the device, in copies of the largest size and in parts of it.
struct Attempt {
    std::uint64_t margin_copies;
    std::uint64_t reserve_part;  // 0: nothing is left free
    bool keeps_copies;
    SlotIndex slow_from_parts;  // of a step; 0: never
};
constexpr std::array kAttempts = {
    Attempt{2, 25, true, 0}, Attempt{1, 50, true, 0}, Attempt{0, 25, true, 0},
    Attempt{4, 12, true, 0},
};
// Where the tiers below lack room for copies that are of no use at present.
constexpr std::array kTightAttempts = {
    Attempt{2, 25, false, 0}, Attempt{2, 25, false, 4}, Attempt{2, 25, false, 2},
    Attempt{2, 25, false, 8},
};

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
        const PlanTimeline timeline(trace_, no_stalls,
                                    std::max<std::uint64_t>(1, trace_.ideal_ns() / kSlotsInAStep));
        try_one(timeline, kAttempts[0]);
        const bool is_tight = lacked_room_below_;
        for (const Attempt& attempt :
             is_tight ? std::span(kTightAttempts) : std::span(kAttempts).subspan(1)) {
            if (best_.has_value() && (slowdown() <= kGoodEnough || is_over())) break;
            try_one(timeline, attempt);
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

    void try_one(const PlanTimeline& timeline, const Attempt& attempt) {
        TransferSettings settings;
        settings.device_bytes = device_bytes() - attempt.margin_copies * largest_copy_bytes_;
        settings.reserve_bytes =
            attempt.reserve_part == 0 ? 0 : device_bytes() / attempt.reserve_part;
        settings.keeps_copies = attempt.keeps_copies;
        if (attempt.slow_from_parts > 0) {
            settings.slow_from_slots = timeline.size() / attempt.slow_from_parts;
        }
        const TransferPlan transfers =
            plan_transfers(trace_, machine_, uses_, routes_, timeline, settings);
        lacked_room_below_ |= transfers.lacked_room_below;
        PlanExecution execution(trace_, machine_, uses_, routes_, timeline, transfers,
                                {options_.steps, largest_copy_bytes_});
        Result<Execution> done = execution.run();
        ++tried_;
        if(getenv("DBGP"))fprintf(stderr,"attempt %u: %s %.5f rescues %lu t %.2f lacked %d\n",tried_,done?"ok":"fail",done?done->step_ns/trace_.ideal_ns():0,done?done->rescues:0,(options_.now_ns()-start_ns_)/1e9,transfers.lacked_room_below);
        if (!done) {
            if (!failure_.has_value()) failure_ = done.error();
        } else if (!best_.has_value() || done->step_ns < best_->step_ns) {
            best_ = *std::move(done);
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
