// Proves that nothing which a previous user of a pmem file or device left there can be read through
// a new extent, unless the content is asked for, and that room is zeroed once and not again.
#include "tests/tiers/fake_dax_device.h"
#include "tests/tiers/tier_specimen.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <optional>
#include <string>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kCapacity = 4 * kMiB;

enum class Medium : std::uint8_t { file, file_without_holes, fake_device, dax_file, device };

std::ostream& operator<<(std::ostream& out, Medium medium) {
    constexpr std::array<const char*, 5> kNames{"file", "file_without_holes", "fake_device",
                                                "dax_file", "device"};
    return out << kNames[static_cast<std::size_t>(medium)];
}

std::vector<Medium> media() {
    std::vector<Medium> all{Medium::file, Medium::file_without_holes, Medium::fake_device};
    if (std::getenv("FROSTLINE_TEST_PMEM") != nullptr) all.push_back(Medium::dax_file);
    if (dax_device() != nullptr) all.push_back(Medium::device);
    return all;
}

class PmemScrub : public testing::TestWithParam<Medium> {
   protected:
    void SetUp() override {
        const std::string path = folder_.file("pool");
        switch (GetParam()) {
            case Medium::fake_device:
                fake_.emplace(path, kCapacity);
                calls_ = fake_->calls();
                break;
            case Medium::file_without_holes:
                calls_.fallocate = [](int, int, off_t, off_t) {
                    errno = EOPNOTSUPP;
                    return -1;
                };
                [[fallthrough]];
            default:
                std::ofstream(path) << "";
                ASSERT_EQ(::truncate(path.c_str(), kCapacity), 0);
                ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
        }
        calls_.pmem_memset = [](void* to, int byte, size_t length, unsigned flags) {
            zeroed_bytes += length;
            return SystemCalls::real().pmem_memset(to, byte, length, flags);
        };
        zeroed_bytes = 0;
    }
    std::unique_ptr<PmemTier> tier(bool keep_content = false) const {
        auto tier = PmemTier::create({.path = path(),
                                      .size_bytes = kCapacity,
                                      .calls = &calls_,
                                      .keep_content = keep_content});
        EXPECT_TRUE(tier.has_value()) << tier.error().message();
        return tier ? *std::move(tier) : nullptr;
    }
    std::string path() const {
        return GetParam() == Medium::device ? dax_device() : folder_.file("pool");
    }
    /// A process that fills the medium with its secret, makes that durable and ends.
    void fill_by_another_process() const {
        const pid_t child = ::fork();
        if (child == 0) {
            const auto tier = this->tier(true);
            const auto whole = tier->reserve(kCapacity);
            const bool done = tier->write(*whole, 0, Bytes(kCapacity, kSecret)).has_value() &&
                              tier->fence(*whole).has_value();
            ::_exit(done ? 0 : 1);
        }
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_EQ(status, 0);
    }
    static std::uint64_t secrets_in(const Bytes& bytes) {
        return static_cast<std::uint64_t>(std::count(bytes.begin(), bytes.end(), kSecret));
    }

    static constexpr std::byte kSecret{0x5e};
    static inline std::uint64_t zeroed_bytes = 0;
    ScratchFolder folder_{GetParam() == Medium::dax_file ? ScratchFolder::On::dax
                                                         : ScratchFolder::On::disk};
    std::optional<FakeDaxDevice> fake_;
    SystemCalls calls_ = SystemCalls::real();
};

TEST_P(PmemScrub, WhatAnotherProcessLeftIsGone) {
    fill_by_another_process();
    const auto tier = this->tier();
    auto random = random_stream(60);
    std::vector<Extent> held;
    std::uint64_t seen_bytes = 0;
    for (;;) {
        const auto extent = tier->reserve(random_size(random, kMiB));
        if (!extent) break;
        const Bytes bytes = read_all(*tier, *extent);
        ASSERT_EQ(secrets_in(bytes), 0U) << "at " << extent->offset;
        const std::byte* const address = tier->address(*extent);
        // The rest of its last page is reachable through the address, too.
        ASSERT_EQ(std::count(address, address + round_up_to_page(bytes.size()), kSecret), 0);
        ASSERT_TRUE(std::all_of(bytes.begin(), bytes.end(),
                                [](std::byte each) { return each == std::byte{0}; }));
        seen_bytes += bytes.size();
        held.push_back(*extent);
        if (between(random, 0, 3) == 0) {
            tier->release(held.front());
            held.erase(held.begin());
            if (seen_bytes > 8 * kCapacity) break;
        }
    }
    EXPECT_GT(seen_bytes, kCapacity / 4);
}

TEST_P(PmemScrub, ContentThatIsWantedStays) {
    fill_by_another_process();
    {
        const auto tier = this->tier(true);
        const auto whole = tier->reserve(kCapacity);
        ASSERT_TRUE(whole.has_value());
        EXPECT_EQ(secrets_in(read_all(*tier, *whole)), kCapacity);
        EXPECT_EQ(zeroed_bytes, 0U);
    }
    EXPECT_EQ(::access(path().c_str(), F_OK), 0);
}

TEST_P(PmemScrub, RoomIsZeroedOnceAndWhatWasWrittenStays) {
    fill_by_another_process();
    const auto tier = this->tier();
    const auto first = tier->reserve(kMiB);
    ASSERT_TRUE(first.has_value());
    const Bytes ours(kMiB, std::byte{7});
    ASSERT_TRUE(tier->write(*first, 0, ours).has_value());
    const auto second = tier->reserve(kMiB / 2);
    ASSERT_TRUE(second.has_value());
    EXPECT_TRUE(read_all(*tier, *first) == ours) << "a neighbour's scrubbing reached too far";
    const std::uint64_t zeroed = zeroed_bytes;
    tier->release(*second);
    const auto again = tier->reserve(kMiB / 2);
    ASSERT_EQ(again->offset, second->offset) << "not the same room: the test proves nothing";
    EXPECT_EQ(zeroed_bytes, zeroed);
    // Half of it is new.
    tier->release(*again);
    const auto more = tier->reserve(kMiB);
    ASSERT_EQ(more->offset, second->offset);
    // An ordinary file is zeroed by ordinary stores, which are not counted.
    const bool counted = tier->info().access.find("msync") == std::string::npos;
    const bool erased = GetParam() == Medium::file || GetParam() == Medium::dax_file;
    const bool scrubs = counted && !erased;
    EXPECT_EQ(zeroed_bytes - zeroed, scrubs ? kMiB / 2 : 0);
    EXPECT_EQ(secrets_in(read_all(*tier, *more)), 0U);
}

INSTANTIATE_TEST_SUITE_P(Pmem, PmemScrub, testing::ValuesIn(media()),
                         testing::PrintToStringParamName());

TEST(PmemErase, AFileThatCannotBeErasedIsAnErrorAndASignalIsNot) {
    const ScratchFolder folder;
    const std::string path = folder.file("pool");
    std::ofstream(path) << "";
    ASSERT_EQ(::truncate(path.c_str(), kCapacity), 0);
    ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
    const PmemFile::Options options{path, 0, &faulty_system_calls()};
    {
        const FaultInjection fault({.call = Call::fallocate, .error = EIO});
        const auto file = PmemFile::open(options);
        ASSERT_FALSE(file.has_value()) << "old content would be readable";
        EXPECT_EQ(file.error().code(), Errc::io);
        EXPECT_NE(std::strstr(file.error().message(), "cannot be erased"), nullptr);
    }
    const FaultInjection fault({.call = Call::fallocate, .error = EINTR});
    const auto file = PmemFile::open(options);
    ASSERT_TRUE(file.has_value());
    EXPECT_EQ(fault.injected(), 1U);
    EXPECT_FALSE(file->needs_scrubbing());
}

TEST(PmemErase, AFileWhoseContentIsWantedOutlivesWhoCreatedIt) {
    const ScratchFolder folder;
    for (const bool keep : {false, true}) {
        const std::string path = folder.file(keep ? "kept" : "gone");
        ASSERT_TRUE(
            PmemFile::open({.path = path, .size_bytes = kMiB, .keep_content = keep}).has_value());
        EXPECT_EQ(::access(path.c_str(), F_OK) == 0, keep);
    }
}

}  // namespace
}  // namespace frostline
