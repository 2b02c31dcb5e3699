// Proves that a pinned DRAM tier registers what its extents lie in, counts every resident page of
// that, and works unpinned where the driver refuses. On the emulated driver, which is asked what it
// has registered.
#include "tests/tiers/emulated_gpu.h"
#include "tests/tiers/huge_pages.h"
#include "tests/tiers/process_state.h"
#include "tests/tiers/registered_memory.h"
#include "tests/tiers/tier_specimen.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::pair<void*, std::size_t> mapped;

const SystemCalls& watching_calls() {
    static const SystemCalls calls = [] {
        SystemCalls table = SystemCalls::real();
        table.mmap = [](void* address, size_t length, int protection, int flags, int fd,
                        off_t offset) {
            void* const memory = ::mmap(address, length, protection, flags, fd, offset);
            mapped = {memory, length};
            return memory;
        };
        return table;
    }();
    return calls;
}

class DramPinned : public testing::Test {
   protected:
    std::unique_ptr<DramTier> dram(std::uint64_t capacity_bytes) {
        return *DramTier::create({.capacity_bytes = capacity_bytes,
                                  .calls = &watching_calls(),
                                  .pin_for_device = pins_.get()});
    }
    // All of it, in however many pieces.
    bool registered(const Extent& extent) const {
        const std::span memory(reinterpret_cast<const std::byte*>(extent.offset),
                               extent.length_bytes);
        return frostline::registered_bytes(gpu_->driver(), memory) == extent.length_bytes;
    }
    // Of the tier's own memory.
    std::uint64_t registered_bytes() const {
        return frostline::registered_bytes(
            gpu_->driver(), {static_cast<const std::byte*>(mapped.first), mapped.second});
    }
    std::uint64_t registrations() const { return gpu_->calls("cuMemHostRegister"); }
    [[gnu::noinline]] static std::uint64_t resident() {
        return resident_bytes(mapped.first, mapped.second);
    }

    EmulatedGpu gpu_{"memory=16MiB"};
    std::unique_ptr<HostRegistration> pins_ =
        *HostRegistration::create({.context = gpu_->context()});
};

void touch(const DramTier& tier, const Extent& extent) {
    std::memset(tier.address(extent), 0x77, extent.length_bytes);
}

const BufferRelease kNoRelease{[](void*, std::byte*, std::uint64_t) {}, nullptr};

TEST_F(DramPinned, ExtentsLieInRegisteredMemory) {
    const auto tier = dram(16 * kMiB);
    EXPECT_EQ(tier->info().fallback, "");
    EXPECT_NE(tier->info().access.find("pinned"), std::string::npos);
    const auto small = tier->reserve(100);
    EXPECT_TRUE(registered(*small));
    EXPECT_EQ(registered_bytes(), 2 * kMiB) << "a chunk, and not the whole arena";
    EXPECT_EQ(tier->usage().used_bytes, kPageBytes);
    EXPECT_EQ(tier->cached_bytes(), 2 * kMiB - kPageBytes) << "the rest of it is resident";
    const auto second = tier->reserve(kMiB);
    EXPECT_TRUE(registered(*second));
    EXPECT_EQ(registrations(), 1U) << "it lies in the same chunk";
}

// A chunk is resident as a whole anyway, so that a small extent may lie in a huge page, too.
TEST_F(DramPinned, ExtentsOfEverySizeLieInHugePages) {
    const auto tier = dram(16 * kMiB);
    const auto small = tier->reserve(1);
    expect_huge_pages(tier->address(*small));
    const auto large = tier->reserve(5 * kMiB);
    expect_huge_pages(tier->address(*large));
    EXPECT_EQ(tier->usage().used_bytes, 5 * kMiB + kPageBytes) << "charged as it is, not rounded";
    EXPECT_EQ(resident(), tier->usage().used_bytes + tier->cached_bytes());
}

// Its last huge page would reach beyond the budget.
TEST_F(DramPinned, ABudgetThatIsNoWholeHugePageIsNotExceeded) {
    const std::uint64_t capacity = 5 * kMiB;
    const auto tier = dram(capacity);
    const auto all = tier->reserve(capacity);
    ASSERT_TRUE(all.has_value());
    touch(*tier, *all);
    EXPECT_EQ(resident(), capacity);
}

TEST_F(DramPinned, WhatIsResidentIsWhatIsCounted) {
    const std::uint64_t capacity = 16 * kMiB;
    const auto tier = dram(capacity);
    auto random = random_stream(90);
    std::vector<Extent> held;
    std::vector<std::pair<Extent, std::unique_ptr<std::byte[]>>> adopted;
    std::uint64_t adopted_bytes = 0;
    int refused = 0;
    for (int step = 0; step < 1500; ++step) {
        const std::uint64_t choice = between(random, 0, 99);
        const std::uint64_t size = random_size(random, 6 * kMiB);
        if (choice < 45) {
            const auto extent = tier->reserve(size);
            refused += extent ? 0 : 1;
            if (extent) {
                touch(*tier, *extent);
                held.push_back(*extent);
            }
        } else if (choice < 55) {
            auto buffer = std::make_unique_for_overwrite<std::byte[]>(size);
            const auto extent = tier->adopt({buffer.get(), size}, kNoRelease);
            if (extent) {
                adopted_bytes += size;
                adopted.emplace_back(*extent, std::move(buffer));
            }
        } else if (choice < 90 && !held.empty()) {
            std::swap(held[between(random, 0, held.size() - 1)], held.back());
            tier->release(held.back());
            held.pop_back();
        } else if (!adopted.empty()) {
            tier->release(adopted.back().first);
            adopted_bytes -= adopted.back().first.length_bytes;
            adopted.pop_back();
        }
        std::uint64_t reserved_bytes = 0;
        for (const Extent& each : held) reserved_bytes += round_up_to_page(each.length_bytes);
        ASSERT_EQ(tier->usage().used_bytes, reserved_bytes + adopted_bytes);
        ASSERT_EQ(resident(), reserved_bytes + tier->cached_bytes()) << "step " << step;
        ASSERT_LE(resident() + adopted_bytes, capacity) << "step " << step;
    }
    EXPECT_GT(refused, 0) << "the budget was never tight, which proves nothing";
    for (const Extent& each : held) tier->release(each);
    for (const auto& each : adopted) tier->release(each.first);
    EXPECT_TRUE(tier->reserve(capacity).has_value());
}

TEST_F(DramPinned, ChunksWithoutExtentsAreUnregisteredBeforeTheirPagesGo) {
    const auto tier = dram(8 * kMiB);
    const auto first = tier->reserve(4 * kMiB);
    const auto second = tier->reserve(4 * kMiB);
    EXPECT_EQ(registered_bytes(), 8 * kMiB);
    tier->release(*second);
    EXPECT_EQ(registered_bytes(), 8 * kMiB) << "kept for the next extent";
    const auto buffer = std::make_unique<std::byte[]>(4 * kMiB);
    const auto adopted = tier->adopt({buffer.get(), 4 * kMiB}, kNoRelease);
    ASSERT_TRUE(adopted.has_value());
    EXPECT_FALSE(registered(*adopted)) << "only staging is pinned";
    EXPECT_EQ(registered_bytes(), 4 * kMiB);
    EXPECT_EQ(resident(), 4 * kMiB);
    EXPECT_TRUE(registered(*first));
    tier->release(*adopted);
}

TEST_F(DramPinned, AChunkWithAnExtentStaysAndTheBudgetSaysSo) {
    const auto tier = dram(4 * kMiB);
    const auto page = tier->reserve(1);
    ASSERT_TRUE(page.has_value());
    const auto buffer = std::make_unique<std::byte[]>(3 * kMiB);
    EXPECT_EQ(tier->adopt({buffer.get(), 3 * kMiB}, kNoRelease).error().code(), Errc::no_space)
        << "the other 511 pages cannot be given back beside a copy";
    EXPECT_TRUE(registered(*page));
    const auto fits = tier->adopt({buffer.get(), 2 * kMiB}, kNoRelease);
    ASSERT_TRUE(fits.has_value());
    tier->release(*fits);
}

TEST_F(DramPinned, ARoomTooSmallForAChunkIsUsedUnpinned) {
    const auto tier = dram(4 * kMiB);
    const auto buffer = std::make_unique<std::byte[]>(3 * kMiB);
    const auto adopted = tier->adopt({buffer.get(), 3 * kMiB}, kNoRelease);
    ASSERT_TRUE(adopted.has_value());
    const auto extent = tier->reserve(kMiB);
    ASSERT_TRUE(extent.has_value()) << extent.error().message();
    EXPECT_FALSE(registered(*extent));
    EXPECT_FALSE(tier->pinning_error().has_value()) << "nobody has refused anything";
    tier->release(*adopted);
}

TEST_F(DramPinned, ADriverThatRefusesEverythingIsNamedAndDoneWithout) {
    gpu_->limit_registration(1);
    const auto tier = dram(8 * kMiB);
    EXPECT_NE(tier->info().fallback.find("not pinned: cuMemHostRegister failed: CUDA_ERROR"),
              std::string::npos)
        << tier->info().fallback;
    EXPECT_EQ(tier->info().access.find("pinned"), std::string::npos);
    EXPECT_EQ(tier->cached_bytes(), 0U);
    const auto extent = tier->reserve(8 * kMiB);
    ASSERT_TRUE(extent.has_value()) << extent.error().message();
    touch(*tier, *extent);
    EXPECT_EQ(resident(), 8 * kMiB);
    EXPECT_TRUE(tier->pinning_error().has_value());
}

TEST_F(DramPinned, ARefusalLaterOnLeavesWhatIsInUseAndPinsNoMore) {
    const auto tier = dram(16 * kMiB);
    const auto first = tier->reserve(2 * kMiB);
    gpu_->plant_fault("cuMemHostRegister", 2, CUDA_ERROR_OUT_OF_MEMORY);
    // Its second chunk is refused: the first one goes, too.
    const auto second = tier->reserve(6 * kMiB);
    ASSERT_TRUE(second.has_value()) << second.error().message();
    EXPECT_FALSE(registered(*second));
    EXPECT_TRUE(registered(*first)) << "a copy may be using it";
    EXPECT_EQ(registered_bytes(), 2 * kMiB);
    ASSERT_TRUE(tier->pinning_error().has_value());
    EXPECT_EQ(tier->pinning_error()->code(), Errc::no_space);
    const std::uint64_t asked = registrations();
    const auto third = tier->reserve(kMiB);
    EXPECT_FALSE(registered(*third));
    EXPECT_EQ(registrations(), asked) << "it is not asked again";
    tier->release(*first);
    tier->release(*second);
    tier->release(*third);
    EXPECT_TRUE(tier->reserve(16 * kMiB).has_value());
    EXPECT_EQ(registered_bytes(), 0U);
}

TEST_F(DramPinned, WhatTheDriverDoesNotLetGoOfStaysCounted) {
    const auto tier = dram(4 * kMiB);
    tier->release(*tier->reserve(4 * kMiB));
    gpu_->plant_fault("cuMemHostUnregister", 1, CUDA_ERROR_UNKNOWN);
    const auto buffer = std::make_unique<std::byte[]>(4 * kMiB);
    EXPECT_EQ(tier->adopt({buffer.get(), 4 * kMiB}, kNoRelease).error().code(), Errc::no_space);
    EXPECT_EQ(resident(), tier->cached_bytes());
    EXPECT_EQ(tier->cached_bytes(), 2 * kMiB);
    const auto adopted = tier->adopt({buffer.get(), 4 * kMiB}, kNoRelease);
    ASSERT_TRUE(adopted.has_value()) << "the next try worked";
    tier->release(*adopted);
}

TEST_F(DramPinned, ChunksGrowWithTheBudgetUpToWhatTheDriverTakes) {
    for (const auto& [capacity, chunk] :
         {std::pair(128 * kMiB, 2 * kMiB), std::pair(1024 * kMiB, 16 * kMiB),
          std::pair(64 * 1024 * kMiB, 64 * kMiB)}) {
        const auto tier = dram(capacity);
        EXPECT_EQ(pins_->registered_bytes(), chunk) << capacity;
    }
}

}  // namespace
}  // namespace frostline
