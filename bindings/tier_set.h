// The tiers of a manager, built from its options, and what they stand on. Whoever uses the tiers
// goes before this does.
#pragma once

#include "bindings/manager_options.h"
#include "tiers/cuda_context.h"
#include "tiers/cuda_driver.h"
#include "tiers/device_tier.h"
#include "tiers/dram_tier.h"
#include "tiers/host_registration.h"
#include "tiers/pmem_tier.h"
#include "tiers/tier.h"
#include "tiers/topology.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace frostline {

/// Movable. The tiers' addresses stay.
class TierSet {
   public:
    /// Errors: invalid_argument (options that do not go together), those of the tiers.
    static Result<TierSet> open(const ManagerOptions& options);

    /// Fastest first: device memory, DRAM, memory-only nodes, pmem, swap.
    const std::vector<Tier*>& order() const noexcept { return order_; }
    DramTier* dram() const noexcept { return dram_; }
    /// The CUDA driver, loaded when first asked for. Errors: those of CudaDriver::load(). Not
    /// thread-safe.
    Result<const CudaDriver*> driver();
    /// Where the device tier lies; nullptr if there is none.
    const CudaContext* device_context() const noexcept { return context_.get(); }
    /// What is pinned of DRAM; nullptr: nothing.
    const HostRegistration* registration() const noexcept { return pins_.get(); }

    /// The DRAM tier's fallback, and why it is not pinned although that was asked for.
    std::string dram_fallback() const;
    PmemTier* pmem() const noexcept { return pmem_; }

    /// Lets the calling thread run near the memory of a node; no effect where there is one node.
    void bind_thread(int numa_node) const noexcept;

    /// What a user calls the tier: its kind, or "far" for the memory of another node.
    const char* name_of(const TierInfo& info) const noexcept;

   private:
    TierSet() = default;
    Result<void> add_device(const ManagerOptions& options);
    Result<void> add_memory(const ManagerOptions& options);
    Result<void> add_files(const ManagerOptions& options);
    void pin_for_gpu(int gpu);
    int node_of(const std::string& path) const noexcept;
    int node_of_gpu() const;
    TierId next_id() const noexcept { return static_cast<TierId>(order_.size()); }
    template <class SomeTier>
    SomeTier* add(std::unique_ptr<SomeTier> tier);

    std::unique_ptr<Topology> topology_;  // nullptr: one node, which nobody need name
    std::unique_ptr<CudaDriver> driver_;
    std::shared_ptr<const CudaContext> context_;
    std::unique_ptr<HostRegistration> pins_;
    std::vector<std::unique_ptr<Tier>> tiers_;
    std::vector<Tier*> order_;
    DramTier* dram_ = nullptr;
    std::string not_pinned_;
    PmemTier* pmem_ = nullptr;
};

}  // namespace frostline
