// Makes legal schedules in the simplest way: kernel by kernel, fetching what is missing and
// evicting what is not used, with random copies and drops beside. It keeps books part by part, a
// part being a fixed piece of a tensor.
#pragma once

#include "migration/planning/machine.h"
#include "migration/planning/schedule.h"
#include "migration/planning/trace.h"

#include <cstdint>
#include <random>
#include <vector>

namespace frostline {

/// The tier that takes whatever the device has no room for: the first that is not the device.
TierIndex tier_below(const Machine& machine);

/// The tier below holds all tensors at once, has links from and to the device, and the device has
/// room for each kernel's tensors. Trace, machine and random outlive it.
class SerialScheduler {
   public:
    SerialScheduler(const Trace& trace, const Machine& machine, std::mt19937_64& random);

    Schedule run(std::uint32_t steps);

   private:
    enum class Held : std::uint8_t { no, whole, arriving };

    struct Part {
        TensorRange range;
        std::vector<Held> held;              ///< by tier
        std::vector<std::uint32_t> readers;  ///< by tier
    };
    struct Copy {
        std::size_t part = 0;
        std::size_t link = 0;
        std::uint64_t end_ns = 0;
        double bytes_per_second = 0;
    };

    void cut_parts();
    void place_weights();
    void run_kernel(std::uint32_t step, KernelIndex kernel);
    void make_room(KernelIndex kernel);
    void evict_one(KernelIndex kernel);
    void fetch(KernelIndex kernel);
    void wait_for_copies(KernelIndex kernel);
    void act_beside(KernelIndex kernel, std::uint64_t end_ns);
    void end_kernel(KernelIndex kernel);
    void advance(std::uint64_t to_ns);
    /// Until the next copy ends, which there is.
    void wait();
    bool try_copy(std::size_t part, std::size_t link, std::uint64_t latest_end_ns);
    bool try_drop(std::size_t part, TierIndex tier);
    bool is_used(TensorIndex tensor, KernelIndex kernel) const;
    bool is_written(TensorIndex tensor, KernelIndex kernel) const;
    bool dies_in(TensorIndex tensor, KernelIndex kernel) const;
    bool is_reachable(TierIndex tier) const;
    std::uint64_t missing_bytes(KernelIndex kernel) const;
    void hold(Part& part, TierIndex tier, Held how);
    void release(Part& part, TierIndex tier);

    const Trace& trace_;
    const Machine& machine_;
    std::mt19937_64& random_;
    Schedule schedule_;
    std::vector<Part> parts_;
    std::vector<bool> lives_;  ///< by tensor
    std::vector<Copy> copies_;
    std::vector<std::uint64_t> used_bytes_;  ///< by tier
    std::vector<double> load_;               ///< by resource
    std::uint64_t now_ns_ = 0;
    bool is_running_ = false;
    KernelIndex running_ = 0;
};

}  // namespace frostline
