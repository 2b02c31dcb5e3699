// A table of tensors and tiers with chosen sizes, for policies that are asked without an engine.
#pragma once

#include "allocator/tensor_table.h"
#include "migration/policy.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace frostline {

struct StageTier {
    TierKind kind;
    std::uint64_t capacity_bytes;
    bool open = true;
    std::uint64_t leaving_bytes = 0;
    TierSpeed speed{};
};

/// What a tier holds is what the tensors' copies add up to, so that a view is always consistent.
class PolicyStage {
   public:
    explicit PolicyStage(std::initializer_list<StageTier> tiers) {
        for (const StageTier& each : tiers) {
            tiers_.push_back({static_cast<TierId>(tiers_.size()), each.kind, each.capacity_bytes, 0,
                              each.leaving_bytes, each.open, each.speed});
        }
    }

    /// A tensor at home in `home`, with good copies in `spares`.
    TensorRecord& tensor(std::uint64_t size_bytes, std::uint8_t home,
                         std::initializer_list<std::uint8_t> spares = {}) {
        TensorRecord* const record = *table.create(size_bytes, place(home, size_bytes));
        for (const std::uint8_t each : spares) record->copies[each] = place(each, size_bytes);
        return *record;
    }

    std::vector<Decision> decide(const Policy& policy, PolicyEvent event,
                                 std::uint64_t prefetch_bytes = UINT64_MAX / 2) const {
        std::vector<Decision> decisions;
        policy.decide({table.by_birth(), table.by_use(), tiers_, prefetch_bytes}, event, decisions);
        return decisions;
    }
    std::vector<Decision> pressure(const Policy& policy, std::uint64_t bytes) const {
        return decide(policy, {PolicyEvent::Kind::pressure, nullptr, bytes});
    }
    std::vector<Decision> settled(const Policy& policy, const TensorRecord& tensor) const {
        return decide(policy, {PolicyEvent::Kind::settled, &tensor, 0});
    }
    std::vector<Decision> used(const Policy& policy, const TensorRecord& tensor,
                               std::uint64_t prefetch_bytes = UINT64_MAX / 2) const {
        return decide(policy, {PolicyEvent::Kind::used, &tensor, 0}, prefetch_bytes);
    }

    TensorTable table;

   private:
    TensorCopy place(std::uint8_t tier, std::uint64_t size_bytes) {
        tiers_[tier].used_bytes += size_bytes;
        return {{static_cast<TierId>(tier), ++next_offset_ << 40, size_bytes}, std::nullopt};
    }

    std::vector<TierView> tiers_;
    std::uint64_t next_offset_ = 0;
};

inline Decision move_of(const TensorRecord& tensor, std::uint8_t tier) {
    return {Decision::Action::move, tensor.id(), static_cast<TierId>(tier)};
}
inline Decision drop_of(const TensorRecord& tensor, std::uint8_t tier) {
    return {Decision::Action::drop_copy, tensor.id(), static_cast<TierId>(tier)};
}

}  // namespace frostline
