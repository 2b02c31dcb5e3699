// The policies by their names, each with what it needs to know of the future.
#pragma once

#include "migration/planning/machine.h"
#include "migration/planning/trace.h"
#include "migration/policy.h"

#include <memory>
#include <span>
#include <string_view>

namespace frostline {

/// In the order in which a table should have them.
std::span<const std::string_view> policy_names() noexcept;

/// The policy of that name, for a trace and a machine, of which it keeps nothing. Errors:
/// invalid_argument (no such name; more tiers than a manager can have), out_of_memory.
Result<std::unique_ptr<const Policy>> make_policy(std::string_view name, const Trace& trace,
                                                  const Machine& machine) noexcept;

}  // namespace frostline
