// Proves how little memory a heap maps beyond what lives, at 2 MiB chunks: on recorded training
// steps, on others of the same kind, and over a million steps of random sizes, in which neither the
// memory nor the time for each may grow. FROSTLINE_SOAK=FIRST-LAST runs many seeds; ./run soak
// does.
#include "tests/allocator/heap/heap_fixture.h"
#include "tests/allocator/heap/training_streams.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

namespace frostline {
namespace {

class HeapFragmentation : public DeviceHeapFixture {
   protected:
    static constexpr std::uint64_t kMi = std::uint64_t{1} << 20;

    void SetUp() override { make_large(); }
    void make_large() { make({2 * kMi, 1 << 19, 1 << 14, 1 << 19, 1 << 18}); }
    /// Peak mapped over peak live bytes. Everything that still lives at its end dies with the heap.
    double replay(const TrainingStream& stream) {
        make_large();
        std::unordered_map<std::uint64_t, std::pair<void*, std::uint64_t>> living;
        std::uint64_t live = 0;
        std::uint64_t peak = 0;
        for (const BirthOrDeath& event : stream) {
            if (event.size_bytes != 0) {
                living[event.block] = {get(event.size_bytes), event.size_bytes};
                peak = std::max(peak, live += event.size_bytes);
            } else {
                const auto block = living.find(event.block);
                put(block->second.first);
                live -= block->second.second;
                living.erase(block);
            }
        }
        heap_->check();
        return static_cast<double>(heap_->statistics().peak_mapped) / static_cast<double>(peak);
    }
    static std::filesystem::path shared() {
        return std::filesystem::path(__FILE__).parent_path() / "../../../../shared";
    }
    /// How often to do what has no end: seeds, or one of its own without a soak.
    static std::pair<std::uint64_t, std::uint64_t> seeds() {
        unsigned long long first = 0;
        unsigned long long last = 0;
        const char* const soak = std::getenv("FROSTLINE_SOAK");
        if (soak != nullptr && std::sscanf(soak, "%llu-%llu", &first, &last) == 2) {
            return {first, last};
        }
        auto random = random_stream(530);
        const std::uint64_t seed = between(random, 1, 1000000);
        return {seed, seed + 1};
    }
};

TEST_F(HeapFragmentation, RecordedAllocationsMapAtMostATenthMoreThanLives) {
    if (!std::filesystem::exists(shared() / "allocs")) {
        GTEST_SKIP() << "no ../shared/allocs beside the source tree";
    }
    for (const char* const name : {"gpt-varlen", "unet-varbatch"}) {
        const TrainingStream stream =
            read_allocations(shared() / "allocs" / (std::string(name) + ".allocs"));
        ASSERT_GT(stream.size(), 10000U) << name;
        const double ratio = replay(stream);
        std::printf("%s: peak mapped over peak live %.4f\n", name, ratio);
        EXPECT_LE(ratio, 1.10) << name;
        EXPECT_GE(ratio, 1.0) << name;
    }
}

TEST_F(HeapFragmentation, RecordedTracesMapAtMostThreeHundredthsMoreThanLives) {
    if (!std::filesystem::exists(shared() / "traces")) {
        GTEST_SKIP() << "no ../shared/traces beside the source tree";
    }
    for (const char* const name : {"bert-256", "inception-1536", "vit-1280"}) {
        const TrainingStream stream =
            read_trace(shared() / "traces" / (std::string(name) + ".trace"));
        ASSERT_GT(stream.size(), 1000U) << name;
        const double ratio = replay(stream);
        std::printf("%s: peak mapped over peak live %.4f\n", name, ratio);
        EXPECT_LE(ratio, 1.03) << name;
        EXPECT_GE(ratio, 1.0) << name;
    }
}

TEST_F(HeapFragmentation, OtherTrainingStepsMapAtMostATenthMoreThanLives) {
    const auto [first, last] = seeds();
    double worst = 0;
    for (std::uint64_t seed = first; seed <= last && !HasFailure(); ++seed) {
        std::mt19937_64 random(seed);
        const double transformer = replay(make_transformer_steps(random));
        EXPECT_LE(transformer, 1.10) << "transformer, seed " << seed;
        const double unet = replay(make_unet_steps(random));
        EXPECT_LE(unet, 1.10) << "U-Net, seed " << seed;
        worst = std::max({worst, transformer, unet});
    }
    std::printf("generated steps, seeds %llu to %llu: peak mapped over peak live %.4f at most\n",
                static_cast<unsigned long long>(first), static_cast<unsigned long long>(last),
                worst);
}

TEST_F(HeapFragmentation, AMillionRandomStepsNeitherGrowNorSlowDown) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    constexpr std::size_t steps = 50'000;
#else
    const std::size_t steps = std::getenv("FROSTLINE_SOAK") != nullptr ? 10'000'000 : 1'000'000;
#endif
    constexpr std::uint64_t kLive = 512 * kMi;
    auto random = random_stream(531);
    std::vector<std::pair<void*, std::uint64_t>> living;
    std::uint64_t live = 0;
    std::uint64_t peak = 0;
    std::vector<double> seconds;
    std::vector<double> occupancy;  // mapped over live, at each tenth's end
    for (std::size_t tenth = 0; tenth < 10; ++tenth) {
        const auto begun = std::chrono::steady_clock::now();
        for (std::size_t i = 0; i < steps / 10; ++i) {
            const std::uint64_t size =
                between(random, 512, std::uint64_t{1} << between(random, 10, 24));
            while (live + size > kLive) {
                std::swap(living[between(random, 0, living.size() - 1)], living.back());
                put(living.back().first);
                live -= living.back().second;
                living.pop_back();
            }
            living.emplace_back(get(size), size);
            peak = std::max(peak, live += size);
        }
        seconds.push_back(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
        occupancy.push_back(static_cast<double>(heap_->statistics().mapped) /
                            static_cast<double>(live));
    }
    const double most =
        static_cast<double>(heap_->statistics().peak_mapped) / static_cast<double>(peak);
    std::printf("%zu steps: peak mapped over peak live %.4f; ns a step %.0f, at the end %.0f\n",
                steps, most, seconds[1] * 1e10 / static_cast<double>(steps),
                seconds.back() * 1e10 / static_cast<double>(steps));
    EXPECT_LE(most, 1.2);
    EXPECT_LE(occupancy.back(), occupancy[1] * 1.05);
    // Others use the machine, too: the better of two tenths, and a generous factor.
    EXPECT_LE(std::min(seconds[8], seconds[9]), 3 * std::min(seconds[1], seconds[2]));
    heap_->check();
}

}  // namespace
}  // namespace frostline
