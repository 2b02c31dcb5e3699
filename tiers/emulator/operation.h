// One piece of work of a stream: a kernel, a copy, a fill, a host function, or a marker such as the
// record of an event. It is submitted once, becomes ready when all that it depends on is done, and
// is carried out by one engine. Its fields are guarded by the driver's mutex; `perform` alone runs
// without it, and reads nothing of the operation but what it holds itself.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace frostline::emulator {

struct Stream;
struct Context;

enum class OperationKind { kernel, h2d, d2h, d2d, h2h, fill, host_function, memory, marker };

/// Which thread carries an operation out. `none`: done as soon as it is ready (markers).
enum class EngineKind { compute, h2d, d2h, d2d, host, none };
constexpr unsigned kEnginesPerDevice = 4;  ///< compute, h2d, d2h, d2d; `host` serves all devices

/// What an operation does to a range of addresses. `possible` counts for "who uses this range" (an
/// unmap under work) but is not checked when the operation runs.
enum class Need { read, write, possible };

struct TouchedRange {
    std::uintptr_t address;
    std::size_t bytes;
    Need need;
    int device = -1;  ///< that reaches it; -1: the operation's own
};

/// Why an operation could not be carried out. It becomes a report of misuse, and `result` the
/// sticky error of the operation's context.
struct Violation {
    std::string name;  ///< of the table of kinds of misuse
    std::string details;
    CUresult result = CUDA_ERROR_ILLEGAL_ADDRESS;
};

struct Operation {
    OperationKind kind = OperationKind::marker;
    EngineKind engine = EngineKind::none;
    std::shared_ptr<Stream> stream;  ///< whose order it takes part in
    int device = 0;                  ///< the ordinal of the executing device
    std::uint64_t bytes = 0;         ///< moved or filled; what bandwidth is charged for
    std::vector<TouchedRange> touched;
    bool even_if_broken = false;  ///< performed although an error sticks to the context
    std::string what;  ///< for reports: "copy of 4096 bytes to the device", "kernel saxpy"

    /// Carried out by the engine's thread without the driver's mutex. May be called more than once,
    /// by copies of the operation, where a graph is replayed. Empty: nothing to do.
    std::function<std::optional<Violation>()> perform;
    /// What `perform` needs to stay loaded: of a kernel, its module's image.
    std::shared_ptr<const void> code;
    /// Bookkeeping with the driver's mutex held: `begin` just before the ranges are checked,
    /// `finish` just before the operation counts as done (also if it was not carried out).
    std::function<void()> begin;
    std::function<void()> finish;

    // What follows is the scheduler's.
    enum class State { queued, ready, running, done };
    State state = State::queued;
    unsigned blockers =
        0;  ///< operations that have to be done before, the stream's own order aside
    std::vector<std::shared_ptr<Operation>> dependents;
    std::uint64_t queued_ns = 0;  ///< when it was submitted, or what it waited for was due
    std::uint64_t due_ns = 0;     ///< when it had to end, as throttling has it; 0: no such time
    std::uint64_t start_ns = 0;
    std::uint64_t end_ns = 0;
};

}  // namespace frostline::emulator
