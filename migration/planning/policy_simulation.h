// Runs a trace on a simulated machine under a policy, and notes what happens as a schedule. The
// policy is the object that runs live: it sees the same tables, is told the same events, and what
// it decides is carried out under the same rules as in MigrationEngine.
//
// Rule: the schedule is legal. Kernels run in order, wait for whole tensors, and hold what they use
// until they end. No clock and no chance: the same arguments give the same schedule.
#pragma once

#include "migration/planning/machine.h"
#include "migration/planning/schedule.h"
#include "migration/planning/trace.h"
#include "migration/policy.h"

#include <cstdint>

namespace frostline {

struct SimulatedRun {
    Schedule schedule;
    /// How often the policy named nothing that made room, and least recently used eviction did.
    std::uint64_t fallbacks = 0;
};

/// Runs `steps` steps, at least one. Weights begin on the device as far as it holds them, in the
/// order of their first use, the others below. Errors: no_space (a kernel that cannot get what it
/// needs, or a weight that lies nowhere; with the missing bytes), invalid_argument (more tiers than
/// a manager has), out_of_memory.
Result<SimulatedRun> simulate_policy(const Trace& trace, const Machine& machine,
                                     const Policy& policy, std::uint32_t steps = 5) noexcept;

}  // namespace frostline
