// Carries a plan out, event by event, in exact time: so a plan of slots becomes a schedule. Kernels
// and copies start as soon as they may, in the order of the plan.
//
// Rule: whatever the plan says, the schedule is legal. What the plan has forgotten or has room for
// no more is fetched or given up when nothing else can go on (plan_rescue.cpp).
#pragma once

#include "migration/planning/plan_memory.h"
#include "migration/planning/plan_timeline.h"
#include "migration/planning/schedule.h"
#include "migration/planning/tensor_uses.h"
#include "migration/planning/transfer_plan.h"
#include "migration/planning/transfer_queue.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace frostline {

struct ExecutionSettings {
    std::uint32_t steps = 5;
    std::uint64_t largest_copy_bytes = std::uint64_t{64} << 20;
};

struct Execution {
    Schedule schedule;
    double step_ns = 0;  ///< (end of the last step - end of the first) / (steps - 1)
    std::vector<std::uint64_t> stall_ns;  ///< before each kernel of the last step but one
    std::uint64_t rescues = 0;            ///< times that the plan did not suffice
};

/// Used once: run(). Any call may throw std::bad_alloc. What it is given outlives it.
class PlanExecution {
   public:
    PlanExecution(const Trace& trace, const Machine& machine, const TensorUses& uses,
                  std::span<const Route> routes, const PlanTimeline& timeline,
                  const TransferPlan& plan, const ExecutionSettings& settings);
    /// Errors: no_space (a kernel cannot run: the tiers below are full).
    Result<Execution> run();

   private:
    static constexpr std::uint64_t kNever = UINT64_MAX;

    struct Copy {
        TensorRange range;
        std::size_t route = 0;
        bool is_in = false;
        std::uint64_t end_ns = 0;
        double bytes_per_second = 0;
    };

    void start_all();
    bool start_kernel();
    bool start_outs(std::size_t route);
    bool start_ins(std::size_t route);
    std::optional<Range> only_on_device(const TensorRange& range) const;
    bool drop_what_is_due();
    bool drop_copied_part(const TensorRange& range);
    bool start_copy(const TensorRange& range, std::size_t route, bool is_in);
    double rate_for(LinkIndex link) const;
    void finish();
    void end_copy(const Copy& copy);
    void end_kernel();

    bool has_opened(SlotIndex slot) const noexcept;
    std::uint64_t opens_at(SlotIndex slot) const noexcept;
    bool has_begun(SlotIndex use) const noexcept;
    bool is_in_use(TensorIndex tensor) const noexcept;
    bool is_due(TensorIndex tensor) const noexcept;
    bool is_being_copied(TensorIndex tensor, bool in_only = false) const noexcept;
    bool changes(KernelIndex kernel, TensorIndex tensor) const noexcept;

    // plan_placement.cpp
    void place_weights();
    void make_weights_fit();
    bool place_below(const TensorRange& range, std::size_t route);
    bool place_part_below(TensorIndex tensor, std::size_t route);
    void drop_whole(const TensorRange& range);

    // plan_rescue.cpp
    bool rescue();
    bool fetch_missing(TensorIndex tensor);
    bool make_room(std::uint64_t bytes);
    SlotIndex next_use(TensorIndex tensor) const noexcept;
    Error stuck() const;

    const Trace& trace_;
    const Machine& machine_;
    const TensorUses& uses_;
    const std::span<const Route> routes_;
    const PlanTimeline& timeline_;
    const TransferPlan& plan_;
    const ExecutionSettings settings_;
    TransferQueues queues_;
    PlanMemory memory_;
    std::vector<std::uint64_t> born_bytes_;  // by kernel
    std::vector<std::size_t> next_out_;      // by link
    std::vector<std::size_t> next_in_;       // by link
    std::size_t next_drop_ = 0;
    std::vector<QueuedDrop> due_;              // opened, and not yet carried out
    std::vector<std::optional<Copy>> active_;  // by link
    std::vector<double> load_;                 // by resource
    std::vector<char> waits_;  // by link: a copy waits for others to leave it some of a resource
    std::uint64_t now_ns_ = 0;
    std::uint64_t next_gate_ns_ = kNever;
    std::int64_t step_ = 0;
    KernelIndex kernel_ = 0;  // that runs, or is the next
    bool is_running_ = false;
    bool makes_room_ = false;  // for the next kernel, so nothing that it does not need comes back
    std::uint64_t kernel_start_ns_ = 0;
    std::uint64_t kernel_end_ns_ = 0;  // of the one that runs, or that ran last
    std::vector<std::uint64_t> step_ends_ns_;
    Execution result_;
};

}  // namespace frostline
