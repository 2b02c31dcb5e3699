// A tier that holds nothing and does nothing, for tests to override what they are about.
#pragma once

#include "tiers/tier.h"

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace frostline {

class InertTier : public Tier {
   public:
    explicit InertTier(TierInfo info) : info_(std::move(info)) {}

    const TierInfo& info() const noexcept override { return info_; }
    TierUsage usage() const noexcept override { return {}; }
    Result<Extent> reserve(std::uint64_t) noexcept override {
        return Error(Errc::no_space, 0, "it has no room");
    }
    void release(const Extent&) noexcept override {}
    Result<void> write(const Extent&, std::uint64_t, std::span<const std::byte>) noexcept override {
        return ok();
    }
    Result<void> read(const Extent&, std::uint64_t, std::span<std::byte>) noexcept override {
        return ok();
    }
    using Tier::fence;
    Result<void> fence(std::span<const Extent>) noexcept override { return ok(); }
    std::byte* address(const Extent&) const noexcept override { return nullptr; }
    Result<std::unique_ptr<TransferQueue>> open_queue() noexcept override {
        return std::unique_ptr<TransferQueue>();
    }
    void calibrated(const TierSpeed&) noexcept override {}

   private:
    TierInfo info_;
};

}  // namespace frostline
