// The managers that are open when the process exits. Their workers would go on while the driver and
// other libraries take their memory away, so moves are ended first.
#pragma once

#include "migration/migration_engine.h"

#include <memory>

namespace frostline {

/// From now on until `engine` is gone, the end of the process (by exit(), or by returning from
/// main) ends its moves first. `owner` keeps the engine. Thread-safe. May throw std::bad_alloc.
void end_moves_at_exit(const std::shared_ptr<void>& owner, MigrationEngine& engine);

}  // namespace frostline
