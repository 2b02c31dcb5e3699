// Making and destroying contexts, primary ones and others alike. The driver's mutex is held.
#pragma once

#include <memory>

#include "tiers/emulator/context.h"
#include "tiers/emulator/scheduler.h"

namespace frostline::emulator {

std::shared_ptr<Context> make_context(int device, unsigned flags, bool primary);

/// Waits for the context's work, then destroys it with its streams, events and allocations.
void destroy_context(Lock& lock, const std::shared_ptr<Context>& context);

/// Whether the flags are such as cuCtxCreate takes.
bool valid_context_flags(unsigned flags);

}  // namespace frostline::emulator
