// A trace, a machine and a legal schedule in which every rule has something to say; tests change
// one thing and ask for the verdict.
#pragma once

#include "migration/planning/machine.h"
#include "migration/planning/schedule.h"
#include "migration/planning/trace.h"

#include <cstdint>

namespace frostline {

/// Three kernels of 100 ns: `forward` reads weight 10 and writes tensor 20; `middle` writes tensor
/// 30, which dies at once; `backward` reads 10 and 20 and writes 10. The device has no room for all
/// three, so that a quarter of 20 leaves before `middle` and is back for `backward`. Behind
/// `backward` the weight leaves for swap and comes back, since there is time.
struct ReplayScene {
    static constexpr TensorIndex kWeight = 0;
    static constexpr TensorIndex kSaved = 1;
    static constexpr TensorIndex kScratch = 2;
    static constexpr TierIndex kGpu = 0;
    static constexpr TierIndex kDram = 1;
    static constexpr TierIndex kSwap = 2;
    static constexpr std::uint64_t kPeriodNs = 2000;
    static constexpr std::uint32_t kSteps = 3;

    ReplayScene();

    // Step 1 is the one in the middle, and is the one to change.
    ScheduledKernel& forward(std::uint32_t step = 1) { return schedule.kernels[3 * step]; }
    ScheduledKernel& middle(std::uint32_t step = 1) { return schedule.kernels[3 * step + 1]; }
    ScheduledKernel& backward(std::uint32_t step = 1) { return schedule.kernels[3 * step + 2]; }
    ScheduledMove& saved_out(std::uint32_t step = 1) { return schedule.moves[4 * step]; }
    ScheduledMove& saved_back(std::uint32_t step = 1) { return schedule.moves[4 * step + 1]; }
    ScheduledMove& weight_out(std::uint32_t step = 1) { return schedule.moves[4 * step + 2]; }
    ScheduledMove& weight_back(std::uint32_t step = 1) { return schedule.moves[4 * step + 3]; }
    ScheduledDrop& saved_drop(std::uint32_t step = 1) { return schedule.drops[2 * step]; }
    ScheduledDrop& weight_drop(std::uint32_t step = 1) { return schedule.drops[2 * step + 1]; }

    /// Times are counted from the start of step 1.
    void move(TensorRange range, TierIndex from, TierIndex to, std::uint64_t start_ns,
              std::uint64_t end_ns) {
        schedule.moves.push_back({range, from, to, kPeriodNs + start_ns, kPeriodNs + end_ns});
    }
    void drop(TensorRange range, TierIndex tier, std::uint64_t at_ns) {
        schedule.drops.push_back({range, tier, kPeriodNs + at_ns});
    }
    void delay_last_step(std::uint64_t delay_ns);

    Trace trace;
    Machine machine;
    Schedule schedule;
};

}  // namespace frostline
