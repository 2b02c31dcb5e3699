// Order among operations: a stream's own, that of events, and the legacy stream's with all blocking
// ones. All functions are called with the driver's mutex held; those that take the lock wait, and
// give it up meanwhile.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "tiers/emulator/operation.h"
#include "tiers/emulator/stream.h"

namespace frostline::emulator {

using Lock = std::unique_lock<std::mutex>;

/// Appends the operation to its stream (or to the capture that the stream is in), with what the
/// legacy stream implies. `operation->device` and `->stream` are set by the caller.
CUresult submit(const std::shared_ptr<Operation>& operation);

/// Whether a blocking stream of the context is captured, so that its legacy stream may not be used;
/// if so, that capture is invalid from now on.
bool legacy_is_captured(const Context& context);

/// Appends it without asking for captures: for the replay of graphs.
void enqueue(const std::shared_ptr<Operation>& operation);

/// `operation`, which is not submitted yet, waits for `on`; nothing if that is done or null.
void depend(const std::shared_ptr<Operation>& operation, const std::shared_ptr<Operation>& on);

/// The engine calls it when an operation has been carried out.
void complete(const std::shared_ptr<Operation>& operation);

/// Waits until `done()`; it is asked again whenever an operation has completed.
void wait_until(Lock& lock, const std::function<bool()>& done);
void wait_for(Lock& lock, const std::shared_ptr<Operation>& operation);
/// Waits for all that was submitted to the stream, or to any stream of the context, until now.
void wait_stream(Lock& lock, const std::shared_ptr<Stream>& stream);
void wait_context(Lock& lock, const std::shared_ptr<Context>& context);
/// Waits for what the context's legacy stream would wait for: all of its blocking streams.
void wait_legacy(Lock& lock, const std::shared_ptr<Context>& context);

/// Drops what has not begun, and waits for what is running.
void abandon_work(Lock& lock);

/// One operation, queued or running, that touches the range; null if none.
std::shared_ptr<Operation> work_touching(std::uintptr_t start, std::size_t bytes);
/// Waits until there is none.
void wait_untouched(Lock& lock, std::uintptr_t start, std::size_t bytes);

}  // namespace frostline::emulator
