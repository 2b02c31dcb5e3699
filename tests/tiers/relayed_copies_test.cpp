// Proves that a copy between device and swap either arrives whole or says that it did not,
// whichever transfer of either side fails, and that neither its failure nor its being given up
// spoils the next.
#include "tests/tiers/emulated_gpu.h"
#include "tests/tiers/tier_specimen.h"
#include "tiers/checksum.h"
#include "tiers/copy_engine.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// Six pieces, the last of which ends within a page.
constexpr std::uint64_t kSize = 5 * kMiB + 17;

class RelayedCopiesTest : public testing::TestWithParam<Specimen> {
   protected:
    void start_engine() {
        engine_.reset();
        swap_ = tier_of(GetParam(), folder_, 8 * kMiB, TierId{1});
        below_ = *swap_->reserve(kSize);
        engine_ = *CopyEngine::create({.workers = false});
    }
    Tier& source(bool down) const { return down ? *device_ : *swap_; }
    Tier& target(bool down) const { return down ? *swap_ : *device_; }
    const Extent& source_extent(bool down) const { return down ? above_ : below_; }
    const Extent& target_extent(bool down) const { return down ? below_ : above_; }

    CopyTicket submit(bool down) {
        ended_.reset();
        return *engine_->submit({.source_tier = &source(down),
                                 .source = source_extent(down),
                                 .target_tier = &target(down),
                                 .target = target_extent(down),
                                 .checksum = true,
                                 .done = [this](const CopyOutcome& outcome) {
                                     EXPECT_FALSE(ended_.has_value());
                                     ended_ = outcome;
                                 }});
    }
    /// Fresh bytes at the source; nothing of them is at the target.
    void prepare(bool down) {
        bytes_ = random_bytes(random_, kSize);
        ASSERT_TRUE(source(down).write(source_extent(down), 0, bytes_).has_value());
    }
    /// True if it says that it arrived, and then it has.
    bool copied(bool down) {
        submit(down);
        while (engine_->run_step(0)) {
        }
        if (!ended_) {
            ADD_FAILURE() << "a copy has no end";
            return false;
        }
        return ended_->status.has_value();
    }
    void expect_arrived(bool down, const std::string& which) {
        EXPECT_EQ(ended_->checksum, checksum(bytes_)) << which;
        EXPECT_TRUE(read_all(target(down), target_extent(down)) == bytes_) << which;
    }
    void expect_next_is_right(bool down, const std::string& which) {
        prepare(down);
        ASSERT_TRUE(copied(down)) << which << ": " << ended_->status.error().message();
        expect_arrived(down, which);
    }

    EmulatedGpu gpu_{"memory=64MiB,jitter_us=20"};
    ScratchFolder folder_{ScratchFolder::On::memory};
    std::unique_ptr<DeviceTier> device_ =
        *DeviceTier::create({.context = gpu_->context(), .capacity_bytes = 16 * kMiB});
    Extent above_ = *device_->reserve(kSize);
    std::unique_ptr<Tier> swap_;
    Extent below_;
    std::unique_ptr<CopyEngine> engine_;
    std::mt19937_64 random_ = random_stream(94);
    Bytes bytes_;
    std::optional<CopyOutcome> ended_;
};

TEST_P(RelayedCopiesTest, WhateverTheDriverRefusesIsToldAndTheNextCopyIsRight) {
    for (const bool down : {true, false}) {
        for (const auto& [function, times] :
             {std::pair("cuStreamCreate", 1U),
              {"cuEventCreate", 2U},
              {"cuMemHostRegister", 2U},
              {"cuEventRecord", 6U},
              {down ? "cuMemcpyDtoHAsync" : "cuMemcpyHtoDAsync", 6U},
              {"cuEventSynchronize", 6U}}) {
            const bool is_wait = std::string(function) == "cuEventSynchronize";
#if defined(__SANITIZE_THREAD__)
            // A device whose waits fail for good is taken for dead, and its buffers are used again;
            // the emulated one lives on, and copies.
            if (is_wait) continue;
#endif
            const bool is_staging = std::string(function) == "cuMemHostRegister";
            for (unsigned nth = 1; nth <= times; nth += nth == 2 ? 4 : 1) {
                const std::string which =
                    std::string(function) + " " + std::to_string(nth) + (down ? " down" : " up");
                start_engine();
                prepare(down);
                const std::uint64_t before = gpu_->calls(function);
                gpu_->plant_fault(function, nth, CUDA_ERROR_UNKNOWN);
                // A wait that fails is asked for again.
                if (is_wait) gpu_->plant_fault(function, nth + 1, CUDA_ERROR_UNKNOWN);
                // What cannot be registered is allocated instead.
                if (is_staging) gpu_->plant_fault("cuMemHostAlloc", 1, CUDA_ERROR_UNKNOWN);
                EXPECT_FALSE(copied(down)) << which;
                EXPECT_GE(gpu_->calls(function) - before, nth) << which;
                EXPECT_TRUE(read_all(source(down), source_extent(down)) == bytes_) << which;
                expect_next_is_right(down, which);
            }
        }
    }
}

TEST_P(RelayedCopiesTest, WhateverTheSystemRefusesIsAbsorbedOrToldAndTheNextCopyIsRight) {
    int told = 0;
    for (const bool down : {true, false}) {
        for (const Call call : {Call::pread, Call::pwrite, Call::uring_result}) {
            for (std::uint64_t nth = 1; nth <= 12; nth += nth / 3 + 1) {
                for (const bool for_good : {false, true}) {
                    const std::string which = std::string(name(call)) + " " + std::to_string(nth) +
                                              (down ? " down" : " up") +
                                              (for_good ? ", for good" : ", once");
                    start_engine();
                    prepare(down);
                    {
                        const FaultInjection fault(
                            {.call = call, .nth = nth, .from_then_on = for_good});
                        (void)copied(down);
                    }
                    if (ended_->status) expect_arrived(down, which);
                    told += ended_->status ? 0 : 1;
                    expect_next_is_right(down, which);
                }
            }
        }
    }
    EXPECT_GT(told, 0);
}

// What is in staging then is nobody's business, and may be another tensor's.
TEST_P(RelayedCopiesTest, WhatCouldNotBeReadIsNotWrittenElsewhere) {
    start_engine();
    const Bytes before = random_bytes(random_, kSize);
    ASSERT_TRUE(swap_->write(below_, 0, before).has_value());
    prepare(true);
    for (unsigned nth = 1; nth <= 6; ++nth) {
        gpu_->plant_fault("cuMemcpyDtoHAsync", nth, CUDA_ERROR_UNKNOWN);
    }
    EXPECT_FALSE(copied(true));
    EXPECT_TRUE(read_all(*swap_, below_) == before);
}

TEST_P(RelayedCopiesTest, ACopyThatIsGivenUpStartsNothingMore) {
    for (const bool down : {true, false}) {
        start_engine();
        prepare(down);
        CopyTicket ticket = submit(down);
        ASSERT_TRUE(engine_->run_step(0));
        const char* const function = down ? "cuMemcpyDtoHAsync" : "cuMemcpyHtoDAsync";
        const std::uint64_t started = gpu_->calls("cuMemcpyDtoHAsync");
        ticket.cancel();
        while (engine_->run_step(0)) {
        }
        ASSERT_TRUE(ended_.has_value());
        EXPECT_EQ(ended_->status.error().code(), Errc::cancelled);
        if (down) {
            EXPECT_EQ(gpu_->calls(function), started);
        }
        expect_next_is_right(down, "after a cancelled copy");
    }
}

INSTANTIATE_TEST_SUITE_P(Swap, RelayedCopiesTest,
                         testing::Values(Specimen::swap, Specimen::swap_ordinary),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace frostline
