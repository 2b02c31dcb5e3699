// Proves what is particular to the pmem tier: fenced bytes are in the file, pages of a file that
// stands in for pmem leave the process, and a failed fence closes the tier but loses nothing.
#include "tests/tiers/process_state.h"
#include "tests/tiers/tier_specimen.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// Real, or what libpmem was told to take for it: flushed and drained, not synced.
bool is_pmem(const Tier& tier) {
    return tier.info().access.find("msync") == std::string::npos;
}

Bytes file_bytes(const std::string& path, std::uint64_t offset, std::uint64_t size_bytes) {
    Bytes bytes(size_bytes);
    std::ifstream file(path, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size_bytes));
    return bytes;
}

TEST(PmemTier, FencedBytesAreInTheFile) {
    const ScratchFolder folder;
    const auto tier = tier_of(Specimen::pmem, folder, 4 * kMiB);
    auto random = random_stream(50);
    for (int i = 0; i < 20; ++i) {
        const auto extent = tier->reserve(random_size(random, kMiB / 8));
        ASSERT_TRUE(extent.has_value());
        const Bytes bytes = random_bytes(random, extent->length_bytes);
        ASSERT_TRUE(tier->write(*extent, 0, bytes).has_value());
        ASSERT_TRUE(tier->fence(*extent).has_value());
        EXPECT_EQ(file_bytes(folder.file("pmem-0"), extent->offset, bytes.size()), bytes);
    }
}

TEST(PmemTier, AFenceOnAFileIsAnMsyncAndOnPmemIsNot) {
    const ScratchFolder folder;
    FaultInjection calls(Fault{});
    const auto tier = tier_of(Specimen::pmem, folder, kMiB);
    const auto extent = tier->reserve(100);
    ASSERT_TRUE(tier->write(*extent, 0, Bytes(100, std::byte{9})).has_value());
    EXPECT_EQ(calls.uses(Call::pmem_msync), 0U);
    ASSERT_TRUE(tier->fence(*extent).has_value());
    EXPECT_EQ(calls.uses(Call::pmem_msync), is_pmem(*tier) ? 0U : 1U);
    EXPECT_EQ(calls.uses(Call::pmem_drain), is_pmem(*tier) ? 1U : 0U);
}

TEST(PmemTier, OnlyABudgetsWorthOfALargerFileIsUsed) {
    const ScratchFolder folder;
    const std::string path = folder.file("pmem-0");
    std::ofstream(path) << "";
    ASSERT_EQ(::truncate(path.c_str(), 8 * kMiB), 0);
    ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
    const auto tier = tier_of(Specimen::pmem, folder, 2 * kMiB);
    EXPECT_EQ(tier->info().capacity_bytes, 2 * kMiB);
    EXPECT_EQ(tier->info().location, path);
    const auto whole = PmemTier::create({TierId{}, folder.file("second"), kMiB + 1});
    EXPECT_EQ((*whole)->info().capacity_bytes, kMiB) << "whole pages";
}

TEST(PmemTier, WrittenPagesLeaveTheProcess) {
    const ScratchFolder folder;
    const auto tier = tier_of(Specimen::pmem, folder, 32 * kMiB);
    if (is_pmem(*tier)) return;  // persistent memory is no memory of the process
    const auto other = tier->reserve(kMiB - 7);
    const auto extent = tier->reserve(16 * kMiB + 7);
    const std::byte* const address = tier->address(*extent);
    auto random = random_stream(51);
    const Bytes bytes = random_bytes(random, extent->length_bytes);
    ASSERT_TRUE(tier->write(*other, 0, std::span(bytes).first(kMiB - 7)).has_value());
    ASSERT_TRUE(tier->write(*extent, 0, bytes).has_value());
    EXPECT_GE(mapping_bytes(address, "Rss"), 16 * kMiB) << "the measurement sees nothing";
    ASSERT_TRUE(tier->fence(*extent).has_value());
    EXPECT_LE(mapping_bytes(address, "Rss"), 2 * kMiB) << "what was fenced still counts as ours";
    ASSERT_TRUE(tier->fence(*other).has_value());
    // A fault also maps cached pages around it, up to 64 KiB, which may be a neighbour's.
    EXPECT_LE(mapping_bytes(address, "Rss"), 128U * 1024);
    EXPECT_TRUE(read_all(*tier, *extent) == bytes);
    EXPECT_LE(mapping_bytes(address, "Rss"), 128U * 1024) << "what was read stayed";
    EXPECT_EQ(read_all(*tier, *other), Bytes(bytes.begin(), bytes.begin() + kMiB - 7));
}

TEST(PmemTier, AFailedFenceClosesItAndWhatItHoldsStaysReadable) {
    const ScratchFolder folder;
    auto random = random_stream(52);
    FaultInjection fault({.call = Call::pmem_msync, .nth = 2, .error = EIO});
    const auto tier = tier_of(Specimen::pmem, folder, 2 * kMiB);
    if (is_pmem(*tier)) return;  // a drain cannot fail
    const auto first = tier->reserve(10000);
    const auto second = tier->reserve(20000);
    const Bytes first_bytes = random_bytes(random, 10000);
    const Bytes second_bytes = random_bytes(random, 20000);
    ASSERT_TRUE(tier->write(*first, 0, first_bytes).has_value());
    ASSERT_TRUE(tier->fence(*first).has_value());
    ASSERT_TRUE(tier->write(*second, 0, second_bytes).has_value());
    const auto fenced = tier->fence(*second);
    ASSERT_FALSE(fenced.has_value());
    EXPECT_EQ(fenced.error().code(), Errc::io);
    EXPECT_EQ(fenced.error().native(), EIO);
    EXPECT_NE(std::strstr(fenced.error().message(), folder.path().c_str()), nullptr);
    EXPECT_FALSE(tier->usage().open);
    EXPECT_EQ(tier->reserve(1).error().code(), Errc::closed);
    EXPECT_TRUE(read_all(*tier, *first) == first_bytes);
    EXPECT_TRUE(read_all(*tier, *second) == second_bytes);
    tier->release(*second);
    tier->release(*first);
    EXPECT_EQ(tier->usage().used_bytes, 0U);
    EXPECT_EQ(tier->reserve(1).error().code(), Errc::closed) << "it opened itself again";
}

TEST(PmemTier, PagesThatCannotBeAdvisedAwayDoNoHarm) {
    const ScratchFolder folder;
    const FaultInjection fault({.call = Call::madvise, .error = EINVAL, .from_then_on = true});
    const auto tier = tier_of(Specimen::pmem, folder, kMiB);
    const auto extent = tier->reserve(5000);
    auto random = random_stream(53);
    const Bytes bytes = random_bytes(random, 5000);
    ASSERT_TRUE(tier->write(*extent, 0, bytes).has_value());
    ASSERT_TRUE(tier->fence(*extent).has_value());
    EXPECT_TRUE(read_all(*tier, *extent) == bytes);
}

// What is left where a process was killed in the middle of making one.
TEST(PmemTier, AnEmptyFileIsAsGoodAsNone) {
    const ScratchFolder folder;
    const std::string path = folder.file("pmem");
    const int file = ::open(path.c_str(), O_CREAT | O_WRONLY, 0600);
    ASSERT_GE(file, 0);
    ::close(file);
    {
        const auto tier = PmemTier::create({TierId{}, path, std::uint64_t{2} << 20});
        ASSERT_TRUE(tier.has_value()) << tier.error().message();
    }
    EXPECT_EQ(folder.entries(), 0U) << "and goes as one that was made";
}

}  // namespace
}  // namespace frostline
