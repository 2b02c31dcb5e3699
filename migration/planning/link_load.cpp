// Rates are added and taken away as copies begin and end, in the order of those events: what is
// left of roundings stays far below the slack.
#include "migration/planning/link_load.h"

#include <fmt/format.h>

namespace frostline {

namespace {

/// Ends of copies are whole nanoseconds, so that a copy at full speed may seem a little faster.
constexpr double kRoundingSlack = 1e-6;

}  // namespace

LinkLoad::LinkLoad(const Machine& machine)
    : machine_(&machine), bytes_per_second_(machine.resources.size(), 0.0) {}

Objection LinkLoad::start(const MachineLink& link, double bytes_per_second) {
    for (const ResourceIndex each : link.resources) {
        const MachineResource& resource = machine_->resources[each];
        double& load = bytes_per_second_[each];
        load += bytes_per_second;
        if (load > resource.bytes_per_second * (1 + kRoundingSlack)) {
            return fmt::format("{} would carry {:.0f} of {:.0f} bytes/s", resource.name, load,
                               resource.bytes_per_second);
        }
    }
    return std::nullopt;
}

void LinkLoad::end(const MachineLink& link, double bytes_per_second) noexcept {
    for (const ResourceIndex each : link.resources) bytes_per_second_[each] -= bytes_per_second;
}

}  // namespace frostline
