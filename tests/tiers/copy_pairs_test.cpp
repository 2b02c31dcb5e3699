// Proves that the copy engine carries bytes of every size between every pair of tiers, alone and in
// a mix of many threads, and tells their checksum.
#include "tests/tiers/tier_specimen.h"
#include "tiers/checksum.h"
#include "tiers/copy_engine.h"

#include <gtest/gtest.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>
#include <tuple>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// What is instrumented takes several times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kLargest = 16 * kMiB;
#else
constexpr std::uint64_t kLargest = 256 * kMiB;
#endif

std::unique_ptr<CopyEngine> engine_with(std::uint64_t chunk_bytes) {
    return *CopyEngine::create({.chunk_bytes = chunk_bytes});
}

CopyOutcome copy(CopyEngine& engine, Tier& from, const Extent& source, Tier& to,
                 const Extent& target, bool with_checksum = true) {
    std::promise<CopyOutcome> ended;
    const auto ticket =
        engine.submit({&from, source, &to, target, with_checksum,
                       [&](const CopyOutcome& outcome) { ended.set_value(outcome); }});
    if (!ticket) return {ticket.error(), 0};
    return ended.get_future().get();
}

// Computed apart from the code under test.
std::uint64_t sum_of_pages(const Bytes& bytes) {
    std::vector<std::uint64_t> sums;
    for (std::size_t at = 0; at < bytes.size(); at += kPageBytes) {
        sums.push_back(XXH3_64bits(&bytes[at], std::min(kPageBytes, bytes.size() - at)));
    }
    return XXH3_64bits(sums.data(), sums.size() * sizeof(std::uint64_t));
}

using Pair = std::tuple<Specimen, Specimen>;
class CopyPairs : public testing::TestWithParam<Pair> {};

constexpr std::array kSpecimens{
    Specimen::device,        Specimen::pmem_for_gpu, Specimen::dram_pinned,
    Specimen::dram,          Specimen::pmem,         Specimen::swap,
    Specimen::swap_by_pages, Specimen::swap_striped, Specimen::swap_ordinary};

std::string name_of(const testing::TestParamInfo<Pair>& info) {
    return testing::PrintToString(std::get<0>(info.param)) + "_to_" +
           testing::PrintToString(std::get<1>(info.param));
}

TEST_P(CopyPairs, BytesArriveAndTheirChecksumIsTold) {
    const ScratchFolder folder;
    const auto from = tier_of(std::get<0>(GetParam()), folder, 4 * kMiB, TierId{1});
    const auto to = tier_of(std::get<1>(GetParam()), folder, 4 * kMiB, TierId{2});
    auto random = random_stream(70);
    const std::uint64_t chunk = 64 * 1024;
    const auto engine = engine_with(chunk);
    for (const std::uint64_t size : {std::uint64_t{1}, chunk - 1, chunk, chunk + 1, 3 * chunk,
                                     random_size(random, kMiB), kMiB + 17}) {
        for (const bool with_checksum : {true, false}) {
            const Extent source = *from->reserve(size);
            const Extent target = *to->reserve(size);
            const Bytes bytes = random_bytes(random, size);
            ASSERT_TRUE(from->write(source, 0, bytes).has_value());
            ASSERT_TRUE(from->fence(source).has_value());
            const CopyOutcome outcome = copy(*engine, *from, source, *to, target, with_checksum);
            ASSERT_TRUE(outcome.status.has_value()) << outcome.status.error().message();
            EXPECT_EQ(outcome.checksum, with_checksum ? sum_of_pages(bytes) : 0);
            EXPECT_EQ(checksum(bytes), sum_of_pages(bytes));
            EXPECT_TRUE(read_all(*to, target) == bytes) << size;
            EXPECT_TRUE(read_all(*from, source) == bytes) << "the source changed";
            from->release(source);
            to->release(target);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(CopyPairs, CopyPairs,
                         testing::Combine(testing::ValuesIn(kSpecimens),
                                          testing::ValuesIn(kSpecimens)),
                         name_of);

using LargeCopyPairs = CopyPairs;

TEST_P(LargeCopyPairs, SizesUpToTheLargestArrive) {
    const ScratchFolder folder(ScratchFolder::On::memory);
    const auto from = tier_of(std::get<0>(GetParam()), folder, kLargest, TierId{1});
    const auto to = tier_of(std::get<1>(GetParam()), folder, kLargest, TierId{2});
    const auto engine = *CopyEngine::create({});
    auto random = random_stream(71);
    for (const std::uint64_t size : {random_size(random, kLargest), kLargest}) {
        const Extent source = *from->reserve(size);
        const Extent target = *to->reserve(size);
        const Bytes bytes = random_bytes(random, size);
        ASSERT_TRUE(from->write(source, 0, bytes).has_value());
        const CopyOutcome outcome = copy(*engine, *from, source, *to, target);
        ASSERT_TRUE(outcome.status.has_value()) << outcome.status.error().message();
        EXPECT_EQ(outcome.checksum, checksum(bytes));
        EXPECT_TRUE(read_all(*to, target) == bytes) << size;
        from->release(source);
        to->release(target);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Pairs, LargeCopyPairs,
    testing::Combine(testing::Values(Specimen::device, Specimen::dram, Specimen::dram_pinned,
                                     Specimen::pmem, Specimen::swap),
                     testing::Values(Specimen::device, Specimen::dram, Specimen::dram_pinned,
                                     Specimen::pmem, Specimen::swap)),
    name_of);

// Persistent memory that the GPU's driver takes needs no staging, and is flushed all the same. Here
// it is taken only where PMEM_IS_PMEM_FORCE makes it so; a file is staged.
TEST(CopyPairsOfGpu, PersistentMemoryIsReachedWithoutStaging) {
    const bool forced = std::getenv("PMEM_IS_PMEM_FORCE") != nullptr;
    const ScratchFolder folder;
    Emulator::get().restart(kSpecimenMachine);
    const auto device = tier_of(Specimen::device, folder, 4 * kMiB, TierId{1});
    const auto pmem = tier_of(Specimen::pmem_for_gpu, folder, 4 * kMiB, TierId{2});
    EXPECT_EQ(pmem->info().gpu_addressable, forced);
    auto random = random_stream(73);
    const Bytes bytes = random_bytes(random, 3 * kMiB + 5);
    const Extent above = *device->reserve(bytes.size());
    const Extent below = *pmem->reserve(bytes.size());
    ASSERT_TRUE(device->write(above, 0, bytes).has_value());
    const auto engine = engine_with(kMiB);
    const std::uint64_t registered = Emulator::get().calls("cuMemHostRegister");
    {
        const FaultInjection counting(Fault{});
        ASSERT_TRUE(copy(*engine, *device, above, *pmem, below).status.has_value());
        EXPECT_EQ(counting.uses(Call::pmem_flush) > 0, forced);
    }
    EXPECT_TRUE(read_all(*pmem, below) == bytes);
    ASSERT_TRUE(device->write(above, 0, Bytes(bytes.size())).has_value());
    ASSERT_TRUE(copy(*engine, *pmem, below, *device, above).status.has_value());
    EXPECT_TRUE(read_all(*device, above) == bytes);
    EXPECT_EQ(Emulator::get().calls("cuMemHostRegister") == registered, forced)
        << "staging, which the driver has to reach";
    device->release(above);
    pmem->release(below);
}

// O_DIRECT wants whole pages; what a program lends lies where it lies.
TEST(CopyLentBuffers, ArriveWhereverTheyLie) {
    const ScratchFolder folder;
    const auto dram = *DramTier::create({.id = TierId{0}, .capacity_bytes = 16 * kMiB});
    auto random = random_stream(72);
    for (const Specimen below : kSpecimens) {
        const auto tier = tier_of(below, folder, 8 * kMiB, TierId{1});
        const auto engine = *CopyEngine::create({});
        for (const std::uint64_t shift :
             {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{64}, kPageBytes - 1}) {
            const std::uint64_t size = random_size(random, 3 * kMiB);
            const Bytes bytes = random_bytes(random, size);
            std::vector<std::byte> lent(size + 2 * kPageBytes, std::byte{0x5a});
            const std::span<std::byte> place(lent.data() + shift, size);
            std::copy(bytes.begin(), bytes.end(), place.begin());
            const BufferRelease nothing{[](void*, std::byte*, std::uint64_t) {}, nullptr};
            const Extent source = *dram->adopt(place, nothing);
            const Extent target = *tier->reserve(size);
            ASSERT_TRUE(copy(*engine, *dram, source, *tier, target).status.has_value());
            EXPECT_TRUE(read_all(*tier, target) == bytes) << below << ", shifted by " << shift;
            std::fill(place.begin(), place.end(), std::byte{0});
            const CopyOutcome back = copy(*engine, *tier, target, *dram, source);
            ASSERT_TRUE(back.status.has_value()) << back.status.error().message();
            EXPECT_EQ(back.checksum, checksum(bytes));
            EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), place.begin()));
            for (std::uint64_t i = 0; i < shift; ++i) ASSERT_EQ(lent[i], std::byte{0x5a});
            for (std::uint64_t i = shift + size; i < lent.size(); ++i) {
                ASSERT_EQ(lent[i], std::byte{0x5a}) << "written beyond its end";
            }
            dram->release(source);
            tier->release(target);
        }
    }
}

TEST(CopyMix, ManySubmittersGetEveryCopyDoneOnce) {
    const ScratchFolder folder;
    std::vector<std::unique_ptr<Tier>> tiers;
    for (const Specimen each : kSpecimens) {
        tiers.push_back(tier_of(each, folder, 8 * kMiB, TierId{static_cast<std::uint8_t>(each)}));
    }
    const auto engine = engine_with(4096);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (std::uint64_t stream = 80; stream < 84; ++stream) {
        threads.emplace_back([&, stream] {
            auto random = random_stream(stream);
            for (int i = 0; i < 100; ++i) {
                Tier& from = *tiers[between(random, 0, tiers.size() - 1)];
                Tier& to = *tiers[between(random, 0, tiers.size() - 1)];
                const std::uint64_t size = random_size(random, 100000);
                const Extent source = *from.reserve(size);
                const Extent target = *to.reserve(size);
                const Bytes bytes = random_bytes(random, size);
                ASSERT_TRUE(from.write(source, 0, bytes).has_value());
                std::promise<CopyOutcome> ended;  // set twice, it would throw
                auto ticket =
                    engine->submit({&from, source, &to, target, true,
                                    [&](const CopyOutcome& outcome) { ended.set_value(outcome); }});
                ASSERT_TRUE(ticket.has_value());
                if (i % 7 == 0) ticket->cancel();
                const CopyOutcome outcome = ended.get_future().get();
                if (outcome.status) {
                    wrong += outcome.checksum != checksum(bytes) || read_all(to, target) != bytes;
                } else {
                    wrong += outcome.status.error().code() != Errc::cancelled || i % 7 != 0;
                }
                from.release(source);
                to.release(target);
            }
        });
    }
    for (std::thread& each : threads) each.join();
    EXPECT_EQ(wrong, 0);
    for (const auto& tier : tiers) EXPECT_EQ(tier->usage().used_bytes, 0U);
}

}  // namespace
}  // namespace frostline
