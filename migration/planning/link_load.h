// What the copies under way load the machine's resources with. No resource carries more than its
// bandwidth.
#pragma once

#include "migration/planning/machine.h"
#include "migration/planning/objection.h"

#include <vector>

namespace frostline {

/// Not thread-safe. The machine outlives it.
class LinkLoad {
   public:
    explicit LinkLoad(const Machine& machine);

    /// A copy begins on a link. After an objection the load means nothing.
    Objection start(const MachineLink& link, double bytes_per_second);
    /// A copy that has begun at this rate ends.
    void end(const MachineLink& link, double bytes_per_second) noexcept;

   private:
    const Machine* machine_;
    std::vector<double> bytes_per_second_;  ///< by resource
};

}  // namespace frostline
