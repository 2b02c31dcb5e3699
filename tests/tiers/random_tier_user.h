// Random use of a tier, with the bytes that are to be in it kept outside of it.
#pragma once

#include "tests/tiers/seed.h"
#include "tests/tiers/tier_specimen.h"
#include "tiers/tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace frostline {

inline std::uint64_t charge(const Tier& tier, std::uint64_t size_bytes) {
    const std::uint64_t granularity = tier.info().granularity_bytes;
    return (size_bytes + granularity - 1) / granularity * granularity;
}

/// What one user of a tier does. For one thread; several may use the same tier.
class RandomTierUser {
   public:
    RandomTierUser(Tier& tier, std::uint64_t stream, std::uint64_t max_bytes)
        : tier_(tier), random_(random_stream(stream)), max_bytes_(max_bytes) {}

    void act() {
        const std::uint64_t choice = between(random_, 0, 9);
        if (held_.empty() || choice < 3) {
            reserve();
        } else if (choice < 5) {
            write_some(pick());
        } else if (choice < 8) {
            read_some(pick());
        } else {
            release(pick());
        }
    }
    void check_everything() {
        for (const Held& each : held_) {
            ASSERT_TRUE(read_all(tier_, each.extent) == each.expected) << "lost bytes";
            check_address(each);
        }
    }
    void release_everything() {
        while (!held_.empty()) release(held_.size() - 1);
    }
    std::uint64_t charged_bytes() const { return charged_bytes_; }
    std::uint64_t peak_bytes() const { return peak_bytes_; }
    std::uint64_t refusals() const { return refusals_; }

   private:
    struct Held {
        Extent extent;
        Bytes expected;
    };

    std::size_t pick() { return between(random_, 0, held_.size() - 1); }

    void reserve() {
        const std::uint64_t size = random_size(random_, max_bytes_);
        const auto extent = tier_.reserve(size);
        if (!extent) {
            ASSERT_EQ(extent.error().code(), Errc::no_space) << extent.error().message();
            ++refusals_;
            if (!held_.empty()) release(pick());
            return;
        }
        ASSERT_EQ(extent->length_bytes, size);
        ASSERT_EQ(extent->tier, tier_.info().id);
        charged_bytes_ += charge(tier_, size);
        peak_bytes_ = std::max(peak_bytes_, charged_bytes_);
        held_.push_back({*extent, random_bytes(random_, size)});
        write(held_.back(), 0, size);
    }
    void write_some(std::size_t index) {
        Held& held = held_[index];
        const auto [from, size] = range_in(held);
        const Bytes fresh = random_bytes(random_, size);
        std::copy(fresh.begin(), fresh.end(), held.expected.begin() + static_cast<long>(from));
        write(held, from, size);
    }
    void write(const Held& held, std::uint64_t from, std::uint64_t size) {
        const auto bytes = std::span(held.expected).subspan(from, size);
        const auto written = tier_.write(held.extent, from, bytes);
        ASSERT_TRUE(written.has_value()) << written.error().message();
        if (between(random_, 0, 1) == 0) {
            ASSERT_TRUE(tier_.fence(held.extent).has_value());
        }
    }
    void read_some(std::size_t index) {
        const Held& held = held_[index];
        const auto [from, size] = range_in(held);
        Bytes bytes(size);
        ASSERT_TRUE(tier_.read(held.extent, from, bytes).has_value());
        ASSERT_TRUE(
            std::equal(bytes.begin(), bytes.end(), held.expected.begin() + static_cast<long>(from)))
            << size << " bytes at " << from << " of " << held.expected.size();
    }
    void check_address(const Held& held) {
        const std::byte* const address = tier_.address(held.extent);
        ASSERT_EQ(address != nullptr,
                  tier_.info().host_addressable || tier_.info().kind == TierKind::device);
        if (!tier_.info().host_addressable) return;
        ASSERT_EQ(std::memcmp(address, held.expected.data(), held.expected.size()), 0);
    }
    void release(std::size_t index) {
        std::swap(held_[index], held_.back());
        charged_bytes_ -= charge(tier_, held_.back().extent.length_bytes);
        tier_.release(held_.back().extent);
        held_.pop_back();
    }
    std::pair<std::uint64_t, std::uint64_t> range_in(const Held& held) {
        const std::uint64_t from = between(random_, 0, held.expected.size());
        return {from, between(random_, 0, held.expected.size() - from)};
    }

    Tier& tier_;
    std::mt19937_64 random_;
    std::uint64_t max_bytes_;
    std::vector<Held> held_;
    std::uint64_t charged_bytes_ = 0;
    std::uint64_t peak_bytes_ = 0;
    std::uint64_t refusals_ = 0;
};

}  // namespace frostline
