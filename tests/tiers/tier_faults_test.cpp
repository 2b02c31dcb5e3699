// Proves, for every call that a tier makes, at every use, for several errors: the failure is either
// absorbed or reported with place and cause, no byte is lost, and no room, descriptor, mapping or
// file stays behind. The same for every allocation.
#include "tests/tiers/allocation_faults.h"
#include "tests/tiers/process_state.h"
#include "tests/tiers/tier_specimen.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace frostline {
namespace {

constexpr std::uint64_t kCapacity = std::uint64_t{1} << 20;

// What happened in one life of a tier.
struct Story {
    std::vector<Error> errors;
    std::uint64_t lost_extents = 0;
    std::uint64_t left_used_bytes = 0;
    bool open_at_end = true;
    std::string fallback;
};

void note(Story& story, const Result<void>& result) {
    if (!result) story.errors.push_back(result.error());
}

// Reserve, write in two parts, fence; what went well must come back, at once and at the end.
Story live(Specimen specimen, const ScratchFolder& folder) {
    Story story;
    auto made = make_tier(specimen, folder, kCapacity);
    if (!made) {
        story.errors.push_back(made.error());
        return story;
    }
    Tier& tier = **made;
    story.fallback = tier.info().fallback;
    struct Held {
        Extent extent;
        Bytes expected;
        bool good;
    };
    std::vector<Held> held;
    const auto check = [&](const Held& each) {
        Bytes back(each.expected.size());
        const auto read = tier.read(each.extent, 0, back);
        if (!read) {
            story.errors.push_back(read.error());
            if (!tier.read(each.extent, 0, back)) return;  // a lasting fault: nothing to compare
        }
        if (each.good && back != each.expected) ++story.lost_extents;
    };
    for (std::uint64_t i = 1; i <= 8; ++i) {
        const std::uint64_t size = kCapacity / 128 * (1 + i % 3) - 100 * i;
        const auto extent = tier.reserve(size);
        if (!extent) {
            story.errors.push_back(extent.error());
            continue;
        }
        Held now{*extent, Bytes(size, static_cast<std::byte>(i)), true};
        const std::span<const std::byte> bytes(now.expected);
        for (const auto& part : {bytes.first(size / 3), bytes.subspan(size / 3)}) {
            const auto at = static_cast<std::uint64_t>(part.data() - bytes.data());
            const auto written = tier.write(*extent, at, part);
            note(story, written);
            now.good = now.good && written.has_value();
        }
        const auto fenced = tier.fence(*extent);
        note(story, fenced);
        held.push_back(std::move(now));
        check(held.back());
        if (i % 4 == 0) {
            tier.release(held.front().extent);
            held.erase(held.begin());
        }
    }
    for (const Held& each : held) check(each);
    story.open_at_end = tier.usage().open;
    for (const Held& each : held) tier.release(each.extent);
    story.left_used_bytes = tier.usage().used_bytes;
    return story;
}

/// Failing these loses nothing and is nobody's business: they only give something back, or advise,
/// or there is another way.
bool may_pass_unnoticed(Call call) {
    switch (call) {
        case Call::close:
        case Call::munmap:
        case Call::pmem_unmap:
        case Call::madvise:
        case Call::unlink:
        case Call::fallocate:
        case Call::ftruncate:
        case Call::getcpu:
        case Call::move_pages:
        case Call::pmem_memcpy:
        case Call::pmem_drain:
        case Call::uring_init:
        case Call::uring_register_files:
        case Call::uring_register_buffers:
        case Call::uring_submit_and_wait:
            return true;
        default:
            return false;
    }
}

/// Every use of a call that is made a few times; of one that is made often, some.
std::uint64_t next_use(std::uint64_t nth) {
    return nth < 8 ? nth + 1 : nth + nth / 4;
}

/// A tier works without them, and says on its card that it does.
bool may_be_done_without(Call call) {
    return call == Call::mbind;
}

class TierFaults : public testing::TestWithParam<Specimen> {
   protected:
    // The GPU is there before memory is made to run out, which is meant for the tiers.
    void SetUp() override {
        if (GetParam() == Specimen::dram_pinned) (void)SpecimenGpu::registration();
    }
    void expect_sound(const Story& story, const std::string& which, bool file_may_stay) const {
        SCOPED_TRACE(which);
        EXPECT_EQ(story.lost_extents, 0U);
        EXPECT_EQ(story.left_used_bytes, 0U);
        EXPECT_EQ(open_descriptors(), descriptors_);
        EXPECT_EQ(mappings_of(folder_.path()), 0U);
        if (!file_may_stay) {
            EXPECT_EQ(folder_.entries(), 0U);
        }
        for (const auto& each : std::filesystem::directory_iterator(folder_.path())) {
            std::filesystem::remove(each.path());
        }
    }
    void expect_names(const Error& error, int native) const {
        if (error.code() == Errc::closed) return;  // the consequence of an earlier one
        const std::string message = error.message();
        EXPECT_EQ(error.native(), native) << message;
        EXPECT_EQ(error.code(), code_of_errno(native)) << message;
        EXPECT_NE(message.find(std::strerror(native)), std::string::npos) << message;
        if (!is_dram(GetParam())) {
            EXPECT_NE(message.find(folder_.path()), std::string::npos) << message;
        }
    }

    ScratchFolder folder_{place_of(GetParam(), ScratchFolder::On::memory)};
    std::size_t descriptors_ = open_descriptors();
};

TEST_P(TierFaults, EveryCallThatFailsOnceOrForGood) {
    std::array<std::uint64_t, kCalls> uses{};
    {
        FaultInjection counting(Fault{});
        const Story story = live(GetParam(), folder_);
        ASSERT_TRUE(story.errors.empty()) << story.errors.front().message();
        for (std::size_t i = 0; i < kCalls; ++i) uses[i] = counting.uses(static_cast<Call>(i));
        expect_sound(story, "no fault", false);
    }
    std::uint64_t tried = 0;
    for (std::size_t i = 1; i < kCalls; ++i) {
        const Call call = static_cast<Call>(i);
        // How often the ring is entered depends on how fast the kernel is.
        const std::uint64_t sure = call == Call::uring_submit_and_wait ? uses[i] / 2 : uses[i];
        for (std::uint64_t nth = 1; nth <= sure; nth = next_use(nth)) {
            for (const int error : {EIO, ENOSPC, ENOMEM, EACCES}) {
                for (const bool for_good : {false, true}) {
                    const std::string which = std::string(name(call)) + " use " +
                                              std::to_string(nth) + ": " + std::strerror(error) +
                                              (for_good ? ", for good" : ", once");
                    FaultInjection fault(
                        {.call = call, .nth = nth, .error = error, .from_then_on = for_good});
                    const Story story = live(GetParam(), folder_);
                    expect_sound(story, which, call == Call::unlink);
                    SCOPED_TRACE(which);
                    EXPECT_GT(fault.injected(), 0U);
                    for (const Error& each : story.errors) expect_names(each, error);
                    if (may_be_done_without(call)) {
                        EXPECT_NE(story.fallback.find(std::strerror(error)), std::string::npos)
                            << story.fallback;
                    } else if (for_good && !may_pass_unnoticed(call)) {
                        EXPECT_FALSE(story.errors.empty()) << "a failure went unnoticed";
                    }
                    ++tried;
                }
            }
        }
    }
    EXPECT_GE(tried, 20U);
}

TEST_P(TierFaults, TransfersThatFallShortLoseNothing) {
    for (const Call call : {Call::pread, Call::pwrite, Call::uring_result}) {
        for (std::uint64_t nth = 1; nth <= 18; ++nth) {
            FaultInjection fault({.call = call, .nth = nth, .falls_short = true});
            const Story story = live(GetParam(), folder_);
            EXPECT_TRUE(story.errors.empty()) << story.errors.front().message();
            expect_sound(story, std::string(name(call)) + " short at " + std::to_string(nth),
                         false);
        }
    }
}

TEST_P(TierFaults, MemoryThatRunsOutIsAnErrorAndTheRoomComesBack) {
    // Reserving is refused at each allocation in turn.
    for (std::uint64_t nth = 1; nth < 40; ++nth) {
        const auto tier = tier_of(GetParam(), folder_, kCapacity);
        std::vector<Extent> held;
        for (int i = 0; i < 12; ++i) held.push_back(*tier->reserve(kPageBytes * 3));
        for (std::size_t i = 0; i < held.size(); i += 2) tier->release(held[i]);
        const std::uint64_t used = tier->usage().used_bytes;
        bool struck = false;
        std::optional<Extent> extent;
        {
            const AllocationFault fault(nth, true);
            const auto reserved = tier->reserve(kPageBytes * 2);
            struck = fault.struck();
            if (reserved) {
                extent = *reserved;
            } else {
                EXPECT_EQ(reserved.error().code(), Errc::out_of_memory);
            }
        }
        EXPECT_EQ(tier->usage().used_bytes, used + (extent ? 2 * kPageBytes : 0));
        if (extent) tier->release(*extent);
        for (std::size_t i = 1; i < held.size(); i += 2) tier->release(held[i]);
        EXPECT_EQ(tier->usage().used_bytes, 0U);
        EXPECT_TRUE(tier->reserve(kCapacity).has_value()) << "room leaked at allocation " << nth;
        if (!struck) return;
    }
    ADD_FAILURE() << "a reservation allocates without end";
}

TEST_P(TierFaults, MemoryThatRunsOutWhileRoomIsGivenBackEndsNothing) {
    for (std::uint64_t nth = 1; nth < 40; ++nth) {
        const auto tier = tier_of(GetParam(), folder_, kCapacity);
        std::vector<Extent> held;
        for (int i = 0; i < 12; ++i) held.push_back(*tier->reserve(kPageBytes * 3));
        bool struck = false;
        {
            const AllocationFault fault(nth, true);
            for (std::size_t i = 0; i < held.size(); i += 2) tier->release(held[i]);
            struck = fault.struck();
        }
        // What could not be noted as free stays charged, and everything else goes on.
        EXPECT_LE(tier->usage().used_bytes, kPageBytes * 3 * 12);
        EXPECT_GE(tier->usage().used_bytes, kPageBytes * 3 * 6);
        const auto extent = tier->reserve(kPageBytes * 2);
        ASSERT_TRUE(extent.has_value()) << extent.error().message();
        const Bytes bytes(kPageBytes * 2, std::byte{5});
        ASSERT_TRUE(tier->write(*extent, 0, bytes).has_value());
        EXPECT_TRUE(read_all(*tier, *extent) == bytes);
        if (!struck) return;
    }
    ADD_FAILURE() << "giving back allocates without end";
}

TEST_P(TierFaults, MemoryThatRunsOutInCreationIsAnError) {
    for (std::uint64_t nth = 1; nth < 200; ++nth) {
        bool struck = false;
        bool made = false;
        {
            const std::string path = folder_.file("pmem-0");  // made outside of the fault
            const DramTier::Options dram = dram_options(GetParam(), kCapacity, TierId{});
            PmemTier::Options pmem{TierId{}, path, kCapacity, &SystemCalls::real()};
            SwapTier::Options swap{
                TierId{}, {folder_.path()}, kCapacity, kCapacity, &SystemCalls::real()};
            const auto judge = [&](const auto& tier) {
                made = tier.has_value();
                if (!made) {
                    EXPECT_EQ(tier.error().code(), Errc::out_of_memory) << tier.error().message();
                }
            };
            const AllocationFault fault(nth, true);
            if (is_dram(GetParam())) judge(DramTier::create(dram));
            if (GetParam() == Specimen::pmem || GetParam() == Specimen::pmem_dax) {
                judge(PmemTier::create(pmem));
            }
            if (is_swap(GetParam())) judge(SwapTier::create(swap));
            struck = fault.struck();
        }
        EXPECT_EQ(open_descriptors(), descriptors_);
        EXPECT_EQ(folder_.entries(), 0U);
        EXPECT_EQ(mappings_of(folder_.path()), 0U);
        if (!struck) {
            EXPECT_TRUE(made);
            return;
        }
    }
    ADD_FAILURE() << "a creation allocates without end";
}

INSTANTIATE_TEST_SUITE_P(Tiers, TierFaults,
                         testing::ValuesIn(with_dax_files(
                             {Specimen::dram, Specimen::dram_small_pages, Specimen::dram_bound,
                              Specimen::dram_pinned, Specimen::pmem, Specimen::swap,
                              Specimen::swap_by_pages, Specimen::swap_striped,
                              Specimen::swap_ordinary, Specimen::swap_cached})),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace frostline
