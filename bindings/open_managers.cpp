// A list that lives as long as the process: what is registered with atexit() may run after any
// static object is gone.
#include "bindings/open_managers.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <vector>

#include <unistd.h>

namespace frostline {
namespace {

struct OpenManager {
    std::weak_ptr<void> owner;
    MigrationEngine* engine;
    pid_t process;
};

struct OpenManagers {
    std::mutex mutex;  // guards the rest
    std::vector<OpenManager> all;
    bool registered = false;
};

OpenManagers& open_managers() {
    static auto* const managers = new OpenManagers;
    return *managers;
}

void end_all_moves() {
    OpenManagers& managers = open_managers();
    const std::lock_guard lock(managers.mutex);
    for (const OpenManager& each : managers.all) {
        // In a forked child there are no workers, and the locks may be held for ever.
        if (each.process != ::getpid()) continue;
        if (const auto owner = each.owner.lock()) each.engine->stop();
    }
}

}  // namespace

void end_moves_at_exit(const std::shared_ptr<void>& owner, MigrationEngine& engine) {
    OpenManagers& managers = open_managers();
    const std::lock_guard lock(managers.mutex);
    std::erase_if(managers.all, [](const OpenManager& each) { return each.owner.expired(); });
    managers.all.push_back({owner, &engine, ::getpid()});
    // Where it cannot be registered, programs that close what they open lose nothing.
    if (!managers.registered) managers.registered = std::atexit(end_all_moves) == 0;
}

}  // namespace frostline
