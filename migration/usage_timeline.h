// Bytes held by each tier over time, in bounded memory: when the room is used up every other sample
// goes, and from then on they are taken half as often. A sample is the state at its time.
#pragma once

#include "tiers/extent.h"

#include <array>
#include <cstdint>
#include <vector>

namespace frostline {

/// Not thread-safe: the engine's lock guards it.
class UsageTimeline {
   public:
    struct Sample {
        std::uint64_t time_ns = 0;  ///< on the engine's clock
        std::array<std::uint64_t, kMaxTiers> used_bytes{};
    };
    static constexpr std::size_t kMaxSamples = 8192;
    static constexpr std::uint64_t kFirstIntervalNs = 500'000;

    /// Takes the memory for all samples now, so that add() needs none. May throw std::bad_alloc.
    UsageTimeline() { samples_.reserve(kMaxSamples); }

    /// Whether a sample at this time would be kept; asked first, because taking one costs more.
    bool due(std::uint64_t time_ns) const noexcept {
        return samples_.empty() || time_ns - samples_.back().time_ns >= interval_ns_;
    }
    void add(const Sample& sample) noexcept;
    const std::vector<Sample>& samples() const noexcept { return samples_; }

   private:
    std::uint64_t interval_ns_ = kFirstIntervalNs;
    std::vector<Sample> samples_;
};

}  // namespace frostline
