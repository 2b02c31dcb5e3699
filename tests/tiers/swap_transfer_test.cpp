// Proves, for each way to reach the swap files (io_uring or ordinary calls, O_DIRECT or the page
// cache), that transfers that fall short are continued, that failures are told and close the tier
// only where they must, and that what lies badly in memory arrives all the same.
#include "tests/tiers/process_state.h"
#include "tests/tiers/tier_specimen.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <string>
#include <thread>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

struct Way {
    bool ring;
    bool direct;
};

std::ostream& operator<<(std::ostream& out, const Way& way) {
    return out << (way.ring ? "ring" : "ordinary") << (way.direct ? "_direct" : "_cached");
}

class SwapTransfer : public testing::TestWithParam<Way> {
   protected:
    std::unique_ptr<SwapTier> create(std::uint64_t block_bytes = 16 * kPageBytes) {
        auto tier = SwapTier::create({.places = {folder_.path()},
                                      .size_bytes = 4 * kMiB,
                                      .growth_bytes = kMiB,
                                      .calls = &faulty_system_calls(),
                                      .queue_depth = 4,
                                      .block_bytes = block_bytes,
                                      .ring = GetParam().ring,
                                      .direct = GetParam().direct});
        EXPECT_TRUE(tier.has_value()) << tier.error().message();
        return *std::move(tier);
    }
    /// The call that moves bytes, and which use of it is the first after the tier was made.
    Call call(Transfer::Direction direction) const {
        if (GetParam().ring) return Call::uring_result;
        return direction == Transfer::Direction::write ? Call::pwrite : Call::pread;
    }
    /// That a tier which was made a moment ago has done, to see what its files take.
    std::uint64_t uses_before(Transfer::Direction direction) const {
        const bool probed = GetParam().direct && call(direction) == Call::pwrite;
        return probed ? 1 : 0;
    }
    Fault fault(Transfer::Direction direction, std::uint64_t nth, int error) const {
        return {.call = call(direction), .nth = uses_before(direction) + nth, .error = error};
    }
    Bytes fill(Tier& tier, const Extent& extent) {
        Bytes bytes = random_bytes(random_, extent.length_bytes);
        const auto written = tier.write(extent, 0, bytes);
        EXPECT_TRUE(written.has_value()) << written.error().message();
        return bytes;
    }

    static constexpr auto kWrite = Transfer::Direction::write;
    static constexpr auto kRead = Transfer::Direction::read;
    ScratchFolder folder_{ScratchFolder::On::disk};
    std::mt19937_64 random_ = random_stream(61);
};

TEST_P(SwapTransfer, ShortTransfersAreContinued) {
    FaultInjection calls(Fault{});
    const auto tier = create();
    const Extent extent = *tier->reserve(50 * kPageBytes + 123);
    // With O_DIRECT whole pages; otherwise any number of bytes.
    calls.limit_transfers(GetParam().direct ? kPageBytes : 777);
    const Bytes bytes = fill(*tier, extent);
    EXPECT_TRUE(read_all(*tier, extent) == bytes);
    EXPECT_GE(calls.uses(call(kWrite)), 50U);
    calls.limit_transfers(SIZE_MAX);
    EXPECT_TRUE(read_all(*tier, extent) == bytes);
}

TEST_P(SwapTransfer, OneThatNeverMakesProgressEndsWithAnError) {
    for (const int error : {EAGAIN, EINTR}) {
        Fault forever = fault(kWrite, 1, error);
        forever.from_then_on = true;
        const FaultInjection fault(forever);
        const auto tier = create();
        const Extent extent = *tier->reserve(9000);
        const auto written = tier->write(extent, 0, Bytes(9000));
        ASSERT_FALSE(written.has_value());
        EXPECT_EQ(written.error().native(), error);
    }
}

TEST_P(SwapTransfer, InterruptedCallsAreRepeated) {
    for (const auto direction : {kWrite, kRead}) {
        for (const int error : {EINTR, EAGAIN}) {
            for (std::uint64_t nth = 1; nth <= 3; ++nth) {
                const FaultInjection fault(this->fault(direction, nth, error));
                const auto tier = create();
                const Extent extent = *tier->reserve(40 * kPageBytes);
                const Bytes bytes = fill(*tier, extent);
                EXPECT_TRUE(read_all(*tier, extent) == bytes);
                EXPECT_EQ(fault.injected(), 1U);
                EXPECT_TRUE(tier->usage().open);
            }
        }
    }
}

TEST_P(SwapTransfer, AFailedWriteClosesItAndOldDataStaysReadable) {
    for (const int error : {EIO, ENOSPC, EDQUOT}) {
        const auto tier = create();
        const Extent old = *tier->reserve(30000);
        const Bytes bytes = fill(*tier, old);
        const Extent fresh = *tier->reserve(500);
        {
            const FaultInjection fault({.call = call(kWrite), .error = error});
            const auto written = tier->write(fresh, 0, Bytes(500));
            ASSERT_FALSE(written.has_value());
            EXPECT_EQ(written.error().code(), code_of_errno(error));
            EXPECT_EQ(written.error().native(), error);
            EXPECT_NE(std::strstr(written.error().message(), folder_.path().c_str()), nullptr);
        }
        EXPECT_FALSE(tier->usage().open);
        EXPECT_EQ(tier->reserve(1).error().code(), Errc::closed);
        EXPECT_TRUE(read_all(*tier, old) == bytes);
        tier->release(fresh);
        tier->release(old);
        EXPECT_EQ(tier->usage().used_bytes, 0U);
    }
}

TEST_P(SwapTransfer, WhatTheKernelCancelsIsDoneWithoutIt) {
    if (!GetParam().ring) return;  // nothing is left to it
    for (std::uint64_t nth = 1; nth <= 4; ++nth) {
        const FaultInjection fault({.call = Call::uring_result, .nth = nth, .error = ECANCELED});
        const auto tier = create(4 * kPageBytes);
        const Extent extent = *tier->reserve(9 * kPageBytes);
        const Bytes bytes = fill(*tier, extent);
        EXPECT_TRUE(read_all(*tier, extent) == bytes);
        EXPECT_EQ(fault.injected(), 1U);
        EXPECT_TRUE(tier->usage().open);
    }
}

TEST_P(SwapTransfer, AFailedReadIsAnErrorAndNoReasonToClose) {
    const auto tier = create();
    const Extent extent = *tier->reserve(9000);
    const Bytes bytes = fill(*tier, extent);
    {
        const FaultInjection fault({.call = call(kRead), .error = EIO});
        Bytes back(9000);
        EXPECT_EQ(tier->read(extent, 0, back).error().code(), Errc::io);
    }
    EXPECT_TRUE(tier->usage().open);
    EXPECT_TRUE(read_all(*tier, extent) == bytes) << "the next try";
}

TEST_P(SwapTransfer, AFileThatGotShorterIsCorruptAndNotZeros) {
    const auto tier = create();
    const Extent extent = *tier->reserve(3 * kPageBytes);
    const Bytes bytes = fill(*tier, extent);
    int file = -1;
    for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        const std::string target = std::filesystem::read_symlink(each.path(), gone);
        if (target.compare(0, folder_.path().size(), folder_.path()) == 0) {
            file = std::stoi(each.path().filename());
        }
    }
    ASSERT_EQ(::ftruncate(file, kPageBytes), 0);
    Bytes back(bytes.size());
    const auto read = tier->read(extent, 0, back);
    ASSERT_FALSE(read.has_value());
    EXPECT_EQ(read.error().code(), Errc::corrupt) << read.error().message();
}

TEST_P(SwapTransfer, EveryOffsetAndLengthArrives) {
    const auto tier = create();
    const std::uint64_t size = 6 * kPageBytes + 77;
    const Extent extent = *tier->reserve(size);
    Bytes expected = fill(*tier, extent);
    std::vector<std::uint64_t> places{0,
                                      1,
                                      100,
                                      kPageBytes - 1,
                                      kPageBytes,
                                      kPageBytes + 1,
                                      3 * kPageBytes,
                                      5 * kPageBytes + 9,
                                      size - 78,
                                      size - 1};
    for (const std::uint64_t from : places) {
        for (const std::uint64_t length :
             {std::uint64_t{1}, std::uint64_t{78}, kPageBytes, 2 * kPageBytes + 5, size}) {
            const std::uint64_t fits = std::min(length, size - from);
            const Bytes bytes = random_bytes(random_, fits);
            ASSERT_TRUE(tier->write(extent, from, bytes).has_value());
            std::copy(bytes.begin(), bytes.end(), expected.begin() + static_cast<long>(from));
            ASSERT_TRUE(read_all(*tier, extent) == expected) << from << ", " << fits;
            Bytes part(fits);
            ASSERT_TRUE(tier->read(extent, from, part).has_value());
            ASSERT_TRUE(part == bytes) << from << ", " << fits;
        }
    }
}

TEST_P(SwapTransfer, ARingThatTakesNothingMoreIsDoneWithout) {
    if (!GetParam().ring) return;  // there is none
    for (std::uint64_t nth = 1; nth <= 6; ++nth) {
        const FaultInjection fault({.call = Call::uring_submit_and_wait,
                                    .nth = nth,
                                    .error = EAGAIN,
                                    .from_then_on = true});
        const auto tier = create(kPageBytes);
        const Extent extent = *tier->reserve(20 * kPageBytes);
        const Bytes bytes = fill(*tier, extent);
        EXPECT_TRUE(read_all(*tier, extent) == bytes) << nth;
    }
}

TEST_P(SwapTransfer, ARingThatCannotBeHadLaterIsDoneWithout) {
    const auto tier = create();
    const Extent extent = *tier->reserve(20 * kPageBytes);
    const Bytes bytes = fill(*tier, extent);
    const FaultInjection fault({.call = Call::uring_init, .error = EMFILE, .from_then_on = true});
    const auto queue = tier->open_queue();
    ASSERT_TRUE(queue.has_value()) << queue.error().message();
    Bytes back(bytes.size());
    const TransferPiece piece = (*queue)->next_piece(extent, 0, nullptr);
    const auto staging = (*queue)->staging(0);
    (*queue)->push({kRead, extent, 0, staging->first(piece.size_bytes), 7});
    const TransferEnd end = (*queue)->wait();
    EXPECT_EQ(end.tag, 7U);
    ASSERT_TRUE(end.status.has_value()) << end.status.error().message();
    EXPECT_TRUE(std::equal(staging->begin(), staging->begin() + static_cast<long>(piece.size_bytes),
                           bytes.begin()));
}

// Staging is registered with the ring of a copy worker, once more than a page goes through it.
TEST_P(SwapTransfer, WithoutRegistrationItWorksAsWell) {
    for (const Call call : {Call::none, Call::uring_register_files, Call::uring_register_buffers}) {
        FaultInjection fault({.call = call, .error = ENOMEM, .from_then_on = true});
        const auto tier = create();
        const Extent extent = *tier->reserve(12 * kPageBytes);
        const auto queue = *tier->open_queue();
        const auto staging = (*queue).staging(1)->first(12 * kPageBytes);
        const Bytes bytes = random_bytes(random_, staging.size());
        for (int round = 0; round < 2; ++round) {
            std::copy(bytes.begin(), bytes.end(), staging.begin());
            queue->push({kWrite, extent, 0, staging, 1});
            ASSERT_TRUE(queue->wait().status.has_value());
            std::fill(staging.begin(), staging.end(), std::byte{0});
            queue->push({kRead, extent, 0, staging, 2});
            ASSERT_TRUE(queue->wait().status.has_value());
            EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), staging.begin()));
        }
        EXPECT_EQ(fault.uses(Call::uring_register_buffers), GetParam().ring ? 1U : 0U);
        EXPECT_TRUE(read_all(*tier, extent) == bytes);
    }
}

TEST_P(SwapTransfer, ManyThreadsAtOnce) {
    const auto tier = create();
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (std::uint64_t stream = 62; stream < 68; ++stream) {
        threads.emplace_back([&, stream] {
            auto random = random_stream(stream);
            for (int i = 0; i < 30; ++i) {
                const Extent extent = *tier->reserve(random_size(random, 200000));
                const Bytes bytes = random_bytes(random, extent.length_bytes);
                Bytes back(bytes.size());
                wrong +=
                    !tier->write(extent, 0, bytes) || !tier->read(extent, 0, back) || back != bytes;
                tier->release(extent);
            }
        });
    }
    for (std::thread& each : threads) each.join();
    EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, SwapTransfer,
                         testing::Values(Way{true, true}, Way{true, false}, Way{false, true},
                                         Way{false, false}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace frostline
