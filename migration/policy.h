// What decides which tensor moves where. A policy is a pure function: it sees tensors and tiers,
// is told what happened, and names moves. It holds no state, takes no time from a clock and copies
// nothing, so that the same object runs live and in a simulation.
#pragma once

#include "allocator/tensor_table.h"
#include "tiers/extent.h"
#include "tiers/tier.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace frostline {

/// A tier as a policy sees it.
struct TierView {
    TierId id{};
    TierKind kind{};
    std::uint64_t capacity_bytes = 0;
    std::uint64_t used_bytes = 0;
    std::uint64_t leaving_bytes = 0;  ///< part of used: on its way out by moves in progress
    bool open = true;
    TierSpeed speed{};  ///< as measured when the tiers were opened; it does not change afterwards
    std::uint64_t granularity_bytes = 1;  ///< as in TierInfo

    std::uint64_t free_bytes() const noexcept { return capacity_bytes - used_bytes; }
    /// What a tensor takes of it.
    std::uint64_t charged_bytes(std::uint64_t size_bytes) const noexcept {
        return frostline::charged_bytes(kind, granularity_bytes, size_bytes);
    }
};

/// Where the program is in a step that is known beforehand, as a trace. Not every program is.
struct StepView {
    static constexpr std::uint32_t kUnknown = 0xffffffff;

    std::uint32_t kernel = 0;  ///< of the trace: the one that runs, or runs next
    /// By TensorId::slot: which of the trace's tensors lies there, or kUnknown.
    std::span<const std::uint32_t> tensors_by_slot;
    /// By the trace's tensors: where each is kept; nullptr while it does not live.
    std::span<const TensorRecord* const> records;

    std::uint32_t tensor(const TensorRecord& record) const noexcept {
        return record.slot < tensors_by_slot.size() ? tensors_by_slot[record.slot] : kUnknown;
    }
};

/// Valid during one call of decide(). `tiers` is indexed by TierId, the fastest first; index 0 is
/// the tier that tensors are used from.
struct PolicyView {
    const BirthOrder& by_birth;
    const UseOrder& by_use;
    std::span<const TierView> tiers;
    std::uint64_t prefetch_bytes = 0;  ///< how far ahead it pays to fetch (see PrefetchWindow)
    const StepView* step = nullptr;    ///< nullptr where the step is not known
};

struct PolicyEvent {
    enum class Kind : std::uint8_t {
        settled,   ///< `tensor` was stored, or its producer has no further use for it
        used,      ///< `tensor` is being used
        pressure,  ///< `bytes` do not fit tier 0, and somebody waits for them
    };
    Kind kind{};
    const TensorRecord* tensor = nullptr;  ///< nullptr with pressure
    std::uint64_t bytes = 0;
};

struct Decision {
    enum class Action : std::uint8_t {
        move,       ///< make `tier` the tensor's home
        drop_copy,  ///< give up the copy in `tier`, which is not its home
    };
    Action action{};
    TensorId tensor;
    TierId tier{};

    friend bool operator==(const Decision&, const Decision&) = default;
};

class Policy {
   public:
    Policy() = default;
    Policy(const Policy&) = delete;
    Policy& operator=(const Policy&) = delete;
    virtual ~Policy() = default;

    virtual std::string_view name() const noexcept = 0;

    /// Appends decisions in the order in which they are to be carried out. A decision that turns
    /// out impossible (pinned meanwhile, tier full) is skipped, so it must be harmless to miss.
    /// Deterministic: the same view and event give the same decisions.
    virtual void decide(const PolicyView& view, const PolicyEvent& event,
                        std::vector<Decision>& decisions) const = 0;
};

}  // namespace frostline
