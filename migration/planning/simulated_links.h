// Copies on a machine's links, in simulated time. Each link carries one copy at a time and serves
// the urgent ones first; a copy runs at one rate from start to end, and the rates on a resource
// never add up to more than its bandwidth.
#pragma once

#include "migration/planning/machine.h"
#include "migration/planning/trace.h"

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace frostline {

/// A copy that has ended.
struct EndedCopy {
    TensorIndex tensor = 0;
    std::size_t link = 0;  ///< its place in Machine::links
    std::uint64_t start_ns = 0;
    std::uint64_t end_ns = 0;
};

/// Not thread-safe; may throw std::bad_alloc. A tensor has one copy at most, waiting or running.
class SimulatedLinks {
   public:
    enum class Urgency : std::uint8_t { demand, prefetch, eviction };

    /// The machine is referred to.
    SimulatedLinks(const Machine& machine, std::size_t tensors);

    void submit(TensorIndex tensor, std::size_t link, std::uint64_t size_bytes, Urgency urgency);
    /// Puts a waiting copy before all that are less urgent. No effect on one that runs.
    void raise(TensorIndex tensor);
    /// Forgets the tensor's copy. What the link would have carried by then is lost.
    void cancel(TensorIndex tensor);

    /// Starts, at this time, the waiting copies that find bandwidth. Follows whatever changed.
    void start(std::uint64_t now_ns);
    /// When the next copy ends; nothing if none runs.
    std::optional<std::uint64_t> next_end_ns() const noexcept;
    /// Takes a copy that ends at this time, if there is one.
    std::optional<EndedCopy> take_ended(std::uint64_t now_ns) noexcept;
    /// Whether no copy waits or runs.
    bool idle() const noexcept { return copies_ == 0; }

   private:
    struct Waiting {
        TensorIndex tensor = 0;
        std::uint64_t size_bytes = 0;
    };
    struct Running {
        TensorIndex tensor = 0;
        std::uint64_t start_ns = 0;
        std::uint64_t end_ns = 0;
        double bytes_per_second = 0;
    };
    using Rank = std::pair<Urgency, std::uint64_t>;  ///< the number gives those alike their order
    struct Link {
        std::map<Rank, Waiting> waiting;
        std::optional<Running> running;
    };
    struct Place {
        std::size_t link = 0;
        Rank rank;
    };

    double free_bytes_per_second(const MachineLink& link) const;
    bool try_start(std::size_t link, std::uint64_t now_ns);

    const Machine& machine_;
    std::vector<Link> links_;
    std::vector<std::optional<Place>> places_;  ///< by tensor
    std::uint64_t submitted_ = 0;
    std::size_t copies_ = 0;
};

}  // namespace frostline
