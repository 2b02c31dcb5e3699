// Proves the DRAM tier's equation, reserved + adopted + cached <= capacity, against what the kernel
// says is resident, and that an adopted buffer goes back to its owner exactly once.
#include "tests/tiers/allocation_faults.h"
#include "tests/tiers/process_state.h"
#include "tests/tiers/tier_specimen.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <fstream>
#include <functional>
#include <map>
#include <thread>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// The arena is found by watching the tier map it.
struct Arena {
    void* address = nullptr;
    std::uint64_t size_bytes = 0;
    std::uint64_t resident() const { return resident_bytes(address, size_bytes); }
};
Arena arena;

const SystemCalls& watching_calls() {
    static const SystemCalls calls = [] {
        SystemCalls table = SystemCalls::real();
        table.mmap = [](void* address, size_t length, int protection, int flags, int fd,
                        off_t offset) {
            arena = {::mmap(address, length, protection, flags, fd, offset), length};
            return arena.address;
        };
        return table;
    }();
    return calls;
}

std::unique_ptr<DramTier> dram(std::uint64_t capacity_bytes,
                               const SystemCalls& calls = watching_calls()) {
    return *DramTier::create({TierId{}, capacity_bytes, &calls});
}

// Buffers that were handed to a tier, and how often each came back.
class Lender {
   public:
    std::span<std::byte> lend(std::uint64_t size_bytes) {
        Bytes buffer(size_bytes, std::byte{0x5a});
        const std::span<std::byte> span(buffer);
        lent_[span.data()] = {std::move(buffer), 0};
        return span;
    }
    BufferRelease release() {
        return {[](void* user, std::byte* address, std::uint64_t size_bytes) {
                    auto& self = *static_cast<Lender*>(user);
                    auto& [buffer, returns] = self.lent_.at(address);
                    EXPECT_EQ(buffer.size(), size_bytes);
                    ++returns;
                    if (self.on_return_) self.on_return_(buffer);
                },
                this};
    }
    int returns(std::span<const std::byte> buffer) const { return lent_.at(buffer.data()).second; }
    void on_return(std::function<void(std::span<std::byte>)> act) { on_return_ = std::move(act); }

   private:
    std::map<const std::byte*, std::pair<Bytes, int>> lent_;
    std::function<void(std::span<std::byte>)> on_return_;
};

void touch(const DramTier& tier, const Extent& extent) {
    std::memset(tier.address(extent), 0x77, extent.length_bytes);
}

TEST(DramTier, WhatIsResidentNeverExceedsTheBudget) {
    const std::uint64_t capacity = 4 * kMiB;
    const auto tier = dram(capacity);
    Lender lender;
    auto random = random_stream(30);
    std::vector<Extent> reserved;
    std::vector<std::pair<Extent, std::span<std::byte>>> adopted;
    std::uint64_t adopted_bytes = 0;
    for (int step = 0; step < 1500; ++step) {
        const std::uint64_t size = random_size(random, 2 * kMiB);
        const std::uint64_t choice = between(random, 0, 99);
        if (choice < 40) {
            if (const auto extent = tier->reserve(size)) {
                touch(*tier, *extent);
                reserved.push_back(*extent);
            }
        } else if (choice < 55) {
            const auto buffer = lender.lend(size);
            if (const auto extent = tier->adopt(buffer, lender.release())) {
                adopted.emplace_back(*extent, buffer);
                adopted_bytes += size;
            }
        } else if (choice < 85 && !reserved.empty()) {
            std::swap(reserved[between(random, 0, reserved.size() - 1)], reserved.back());
            tier->release(reserved.back());
            reserved.pop_back();
        } else if (!adopted.empty()) {
            std::swap(adopted[between(random, 0, adopted.size() - 1)], adopted.back());
            const auto [extent, buffer] = adopted.back();
            adopted.pop_back();
            adopted_bytes -= buffer.size();
            tier->release(extent);
            ASSERT_EQ(lender.returns(buffer), 1);
        }
        std::uint64_t reserved_bytes = 0;
        for (const Extent& each : reserved) reserved_bytes += round_up_to_page(each.length_bytes);
        ASSERT_EQ(tier->usage().used_bytes, reserved_bytes + adopted_bytes);
        ASSERT_EQ(arena.resident(), reserved_bytes + tier->cached_bytes()) << "step " << step;
        ASSERT_LE(arena.resident() + adopted_bytes, capacity) << "step " << step;
    }
    for (const Extent& each : reserved) tier->release(each);
    for (const auto& each : adopted) tier->release(each.first);
    EXPECT_EQ(tier->usage().used_bytes, 0U);
}

TEST(DramTier, ReleasedPagesStayForTheNextReservation) {
    const auto tier = dram(4 * kMiB);
    const auto first = tier->reserve(2 * kMiB);
    touch(*tier, *first);
    tier->release(*first);
    EXPECT_EQ(tier->cached_bytes(), 2 * kMiB);
    EXPECT_EQ(arena.resident(), 2 * kMiB) << "faulting them in again would cost as much as a copy";
    const auto second = tier->reserve(2 * kMiB);
    EXPECT_EQ(*second, *first);
    EXPECT_EQ(tier->cached_bytes(), 0U);
    tier->release(*second);
    // An adopted buffer claims the room that the cache has.
    Lender lender;
    const auto buffer = lender.lend(3 * kMiB + 5);
    const auto adopted = tier->adopt(buffer, lender.release());
    ASSERT_TRUE(adopted.has_value());
    EXPECT_LE(arena.resident(), kMiB - 5);
    EXPECT_EQ(tier->usage().used_bytes, 3 * kMiB + 5);
    tier->release(*adopted);
}

TEST(DramTier, FragmentsDoNotRefuseWhatTheBudgetAllows) {
    const auto tier = dram(kMiB);
    std::vector<Extent> pages;
    while (const auto page = tier->reserve(kPageBytes)) {
        touch(*tier, *page);
        pages.push_back(*page);
    }
    for (std::size_t i = 0; i < pages.size(); i += 2) tier->release(pages[i]);
    const auto half = tier->reserve(kMiB / 2);
    ASSERT_TRUE(half.has_value()) << "free room in pieces was refused";
    touch(*tier, *half);
    EXPECT_EQ(arena.resident(), kMiB) << "the pieces stayed resident beside their replacement";
}

TEST(DramTier, HugePagesMayNotBlowUpTheBudget) {
    const auto tier = dram(64 * kMiB);
    std::ifstream huge_pages("/sys/kernel/mm/transparent_hugepage/enabled");
    if (!huge_pages) return;  // a kernel without them
    std::ifstream smaps("/proc/self/smaps");
    char start[32];
    std::snprintf(start, sizeof start, "%lx-", reinterpret_cast<unsigned long>(arena.address));
    std::string line;
    while (std::getline(smaps, line) && line.rfind(start, 0) != 0) {
    }
    while (std::getline(smaps, line) && line.rfind("VmFlags:", 0) != 0) {
    }
    EXPECT_NE(line.find(" nh"), std::string::npos)
        << "one touched page may make 2 MiB resident: " << line;
}

TEST(DramTier, AnAdoptedBufferIsNeitherCopiedNorRounded) {
    const auto tier = dram(kMiB);
    Lender lender;
    const auto buffer = lender.lend(12345);
    const auto extent = tier->adopt(buffer, lender.release());
    ASSERT_TRUE(extent.has_value());
    EXPECT_EQ(tier->address(*extent), buffer.data());
    EXPECT_EQ(extent->length_bytes, 12345U);
    EXPECT_EQ(tier->usage().used_bytes, 12345U);
    Bytes bytes(5);
    ASSERT_TRUE(tier->read(*extent, 100, bytes).has_value());
    EXPECT_EQ(bytes, Bytes(5, std::byte{0x5a}));
    EXPECT_EQ(lender.returns(buffer), 0);
    tier->release(*extent);
    EXPECT_EQ(lender.returns(buffer), 1);
    EXPECT_EQ(tier->usage().used_bytes, 0U);
}

TEST(DramTier, AnAdoptionThatIsCancelledReturnsNothing) {
    const auto tier = dram(kMiB);
    Lender lender;
    const auto buffer = lender.lend(777);
    const auto extent = tier->adopt(buffer, lender.release());
    tier->cancel_adoption(*extent);
    EXPECT_EQ(tier->usage().used_bytes, 0U);
    const auto again = tier->adopt(buffer, lender.release());
    ASSERT_TRUE(again.has_value()) << "the tier still holds it";
    tier->release(*again);
    EXPECT_EQ(lender.returns(buffer), 1);
}

TEST(DramTier, WhatCannotBeAdoptedIsLeftAlone) {
    const auto tier = dram(kMiB);
    Lender lender;
    const auto buffer = lender.lend(kMiB);
    const auto large = lender.lend(kMiB + 1);
    EXPECT_EQ(tier->adopt(large, lender.release()).error().code(), Errc::no_space);
    EXPECT_EQ(tier->adopt({}, lender.release()).error().code(), Errc::invalid_argument);
    EXPECT_EQ(tier->adopt(buffer, {}).error().code(), Errc::invalid_argument);
    const auto page = tier->reserve(1);
    EXPECT_EQ(tier->adopt(buffer, lender.release()).error().code(), Errc::no_space);
    tier->release(*page);
    const auto part = buffer.first(kMiB / 4);
    const auto extent = tier->adopt(part, lender.release());
    ASSERT_TRUE(extent.has_value());
    EXPECT_EQ(tier->adopt(part, lender.release()).error().code(), Errc::busy);
    EXPECT_EQ(tier->usage().used_bytes, kMiB / 4) << "a refusal was charged";
    tier->cancel_adoption(*extent);
    EXPECT_EQ(lender.returns(buffer) + lender.returns(large), 0);
}

TEST(DramTier, TheOwnerMayLendABufferAgainTheMomentItIsBack) {
    // Its allocator may give the same address to the next tensor before release() has returned.
    const auto tier = dram(kMiB);
    Lender lender;
    const auto buffer = lender.lend(1000);
    std::optional<Extent> second;
    lender.on_return([&](std::span<std::byte> returned) {
        if (second) return;
        const auto extent = tier->adopt(returned, lender.release());
        ASSERT_TRUE(extent.has_value()) << extent.error().message();
        second = *extent;
        EXPECT_EQ(tier->usage().used_bytes, 2000U) << "charged until its owner has it back";
    });
    tier->release(*tier->adopt(buffer, lender.release()));
    ASSERT_TRUE(second.has_value());
    EXPECT_EQ(tier->usage().used_bytes, 1000U);
    tier->release(*second);
    EXPECT_EQ(lender.returns(buffer), 2);
    EXPECT_EQ(tier->usage().used_bytes, 0U);
}

TEST(DramTier, ItsEndReturnsWhatItStillHolds) {
    Lender lender;
    const auto first = lender.lend(10);
    const auto second = lender.lend(20);
    {
        const auto tier = dram(kMiB);
        ASSERT_TRUE(tier->adopt(first, lender.release()).has_value());
        ASSERT_TRUE(tier->adopt(second, lender.release()).has_value());
        ASSERT_TRUE(tier->reserve(5000).has_value());
    }
    EXPECT_EQ(lender.returns(first), 1);
    EXPECT_EQ(lender.returns(second), 1);
    std::vector<unsigned char> pages(1);
    EXPECT_NE(::mincore(arena.address, kPageBytes, pages.data()), 0) << "the arena is still mapped";
}

TEST(DramTier, WithoutABudgetEverythingIsRefused) {
    for (const std::uint64_t capacity : {std::uint64_t{0}, kPageBytes - 1}) {
        const auto tier = dram(capacity);
        Lender lender;
        EXPECT_EQ(tier->reserve(1).error().code(), Errc::no_space);
        EXPECT_EQ(tier->adopt(lender.lend(kPageBytes), lender.release()).error().code(),
                  Errc::no_space);
        EXPECT_EQ(tier->usage().peak_bytes, 0U);
    }
}

TEST(DramTier, ALessGenerousSystemGetsASmallerArena) {
    FaultInjection fault({.call = Call::mmap, .nth = 1, .error = ENOMEM});
    const auto tier = dram(kMiB, faulty_system_calls());
    EXPECT_GE(fault.uses(Call::mmap), 2U);
    EXPECT_TRUE(tier->reserve(kMiB).has_value());
}

TEST(DramTier, AnImpossibleBudgetIsAnError) {
    for (const std::uint64_t capacity :
         {std::uint64_t{1} << 62, std::uint64_t{1} << 63, UINT64_MAX}) {
        const auto tier = DramTier::create({TierId{}, capacity, &SystemCalls::real()});
        ASSERT_FALSE(tier.has_value());
        EXPECT_EQ(tier.error().code(), Errc::out_of_memory) << tier.error().message();
    }
}

TEST(DramTier, AdoptingFromManyThreadsReturnsEveryBufferOnce) {
    const auto tier = dram(kMiB);
    std::atomic<std::uint64_t> returned{0};
    std::atomic<std::uint64_t> taken{0};
    const BufferRelease release{[](void* user, std::byte* address, std::uint64_t) {
                                    delete[] address;
                                    ++*static_cast<std::atomic<std::uint64_t>*>(user);
                                },
                                &returned};
    std::vector<std::thread> threads;
    for (std::uint64_t stream = 40; stream < 44; ++stream) {
        threads.emplace_back([&, stream] {
            auto random = random_stream(stream);
            for (int i = 0; i < 500; ++i) {
                const std::uint64_t size = between(random, 1, kMiB / 2);
                auto buffer = std::make_unique_for_overwrite<std::byte[]>(size);
                const auto extent = tier->adopt({buffer.get(), size}, release);
                if (!extent) {
                    ASSERT_EQ(extent.error().code(), Errc::no_space) << extent.error().message();
                    continue;
                }
                ++taken;
                (void)buffer.release();
                ASSERT_LE(tier->usage().used_bytes, kMiB);
                tier->release(*extent);
            }
        });
    }
    for (std::thread& each : threads) each.join();
    EXPECT_EQ(returned, taken);
    EXPECT_EQ(tier->usage().used_bytes, 0U);
}

}  // namespace
}  // namespace frostline
