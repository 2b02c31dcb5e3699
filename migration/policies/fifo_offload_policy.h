// What offloading of saved tensors does in frameworks: each activation that the backward pass will
// need leaves as soon as the forward pass is done with it, in that order and whether or not there
// is need, a few at a time; the backward pass fetches a few ahead, in the order in which it needs
// them. Nothing else moves by choice.
#pragma once

#include "migration/planning/future_uses.h"
#include "migration/policy.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace frostline {

class FifoOffloadPolicy final : public Policy {
   public:
    static constexpr std::size_t kMostLeaving = 5;
    static constexpr std::size_t kFetchedAhead = 2;

    /// The passes meet at the kernel where most activation bytes are alive.
    /// May throw std::bad_alloc.
    explicit FifoOffloadPolicy(std::shared_ptr<const FutureUses> uses);

    std::string_view name() const noexcept override { return "fifo-offload"; }
    /// Without a known step only pressure is answered, by what is least recently used.
    void decide(const PolicyView& view, const PolicyEvent& event,
                std::vector<Decision>& decisions) const override;

   private:
    struct Saved {
        TensorIndex tensor = 0;
        KernelIndex kernel = 0;  ///< its last use in the forward pass, or its first one after that
    };

    void offload(const PolicyView& view, std::vector<Decision>& decisions) const;
    void fetch(const PolicyView& view, std::vector<Decision>& decisions) const;

    std::shared_ptr<const FutureUses> uses_;
    KernelIndex turning_kernel_ = 0;  ///< the last of the forward pass
    std::vector<Saved> by_leaving_;
    std::vector<Saved> by_return_;
};

}  // namespace frostline
