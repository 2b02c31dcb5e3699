// Records what a step did with its tensors, as a trace that planners read: each event stands in the
// place of a kernel. An event lasts until the next one, so that the trace keeps the time that the
// program spent between them.
#pragma once

#include "allocator/tensor_id.h"
#include "migration/planning/trace.h"
#include "tiers/result.h"

#include <cstdint>
#include <string>
#include <vector>

namespace frostline {

/// Not thread-safe: the engine's lock guards it. Keeps the last complete step and the one in
/// progress. Recording never fails; a step that is too long, or for which memory runs out, is left
/// out.
class TraceRecorder {
   public:
    /// Longer steps are not recorded: somebody who never ends a step must not run out of memory.
    static constexpr std::size_t kMaxEvents = std::size_t{1} << 18;

    void stored(TensorId tensor, std::uint64_t size_bytes, std::uint64_t time_ns) noexcept;
    void used(TensorId tensor, std::uint64_t size_bytes, std::uint64_t time_ns) noexcept;

    /// Ends the step in progress; it becomes the one that trace() gives.
    void end_step(std::uint64_t time_ns) noexcept;

    /// The last complete step, or the one in progress if none is complete. Ids are numbered from 0
    /// in order of first appearance; the class is `activation`. Errors: invalid_argument (nothing
    /// was recorded; or more than a trace can have, see TraceBuilder), out_of_memory.
    Result<Trace> trace() const noexcept;
    /// The same as text; where it is no trace, the format's first line and nothing after it. May
    /// throw std::bad_alloc.
    std::string text() const;

   private:
    enum class Kind : std::uint8_t { stored, used };
    struct Event {
        Kind kind;
        TensorId tensor;
        std::uint64_t size_bytes;
        std::uint64_t time_ns;
    };
    struct Step {
        std::vector<Event> events;
        std::uint64_t end_ns = 0;
        bool incomplete = false;
    };
    void add(const Event& event) noexcept;

    Step current_;
    Step last_;
};

}  // namespace frostline
