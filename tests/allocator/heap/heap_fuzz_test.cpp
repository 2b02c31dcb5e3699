// Proves that at random, with streams that come and go, captures, waits, trims, a device that
// others use and calls that fail, no byte is in two hands, none is used again too early, and every
// one is accounted for. FROSTLINE_SOAK=FIRST-LAST runs that range of seeds in full; ./run soak
// does.
#include "tests/allocator/heap/heap_fixture.h"
#include "tests/allocator/heap/heap_oracle.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace frostline {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kQuickOperations = 3000;
#else
constexpr std::size_t kQuickOperations = 20000;
#endif
constexpr std::size_t kOperations = 100000;

// One heap under one seeded program.
template <class Backing>
class HeapFuzz : public HeapFixture<Backing> {
   protected:
    using HeapFixture<Backing>::heap_;
    using HeapFixture<Backing>::memory_;
    // Host memory knows no streams.
    static constexpr std::uint64_t kStreams = Backing::kHasStreams ? 3 : 1;

    void run(std::uint64_t seed, std::size_t operations) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        random_.seed(seed);
        // Small chunks and a tight budget, because what is rare elsewhere is common there.
        const std::uint64_t chunk_bytes = std::uint64_t{64 << 10} << between(random_, 0, 2);
        this->make({chunk_bytes, 256, 64, 256, between(random_, 8, 48)});
        oracle_ = std::make_unique<HeapOracle>(memory_, Backing::kHasStreams);
        blocks_.clear();
        faults_ = false;
        destroyed_.clear();
        for (StreamHandle& stream : streams_) stream = ++last_stream_;
        for (std::size_t i = 0; i < operations && !this->HasFailure(); ++i) {
            step();
            if (i % 64 == 0) look();
        }
        memory_->leave_chunks(UINT64_MAX);
        look();
        while (!blocks_.empty()) free_one();
        for (const StreamHandle stream : streams_) this->capture(stream, false);
        clear_faults();
        while (!destroyed_.empty()) forget_a_destroyed_stream();
        look();
        EXPECT_TRUE(heap_->trim(true));
        EXPECT_EQ(heap_->statistics().mapped, 0U);
        this->end();
        oracle_.reset();
    }

   private:
    void step() {
        switch (between(random_, 0, 99) == 0 ? 100 : between(random_, 0, 24)) {
            case 100:
                return between(random_, 0, 1) == 0 ? replace_a_stream()
                                                   : forget_a_destroyed_stream();
            case 0:
                return with_streams();
            case 1:
                EXPECT_TRUE(heap_->trim(between(random_, 0, 1) != 0));
                return;
            case 2:
                return change_budget();
            case 3:
                return misuse();
            case 4:
            case 5:
            case 6:
                return use_elsewhere();
            default:
                // Up and down, so that the heap is full at times and nearly empty at others.
                if (between(random_, 0, 99) < (++phase_ / 400 % 2 == 0 ? 65U : 35U)) {
                    return allocate_one();
                }
                return free_one();
        }
    }

    StreamHandle any_stream() { return streams_[between(random_, 0, kStreams - 1)]; }

    bool captured(StreamHandle stream) {
        const std::lock_guard lock(memory_->mutex);
        return memory_->streams.captured(stream);
    }

    // Destroyed as it should be, after the heap has forgotten it, or without that.
    void replace_a_stream() {
        StreamHandle& stream = streams_[between(random_, 0, kStreams - 1)];
        if (captured(stream)) return;
        if (between(random_, 0, 3) == 0) {
            destroyed_.push_back(stream);
        } else if (!heap_->forget_stream(stream)) {
            EXPECT_TRUE(faults_);
            return;
        }
        const std::lock_guard lock(memory_->mutex);
        if (between(random_, 0, 1) == 0) memory_->streams.finish(stream);
        memory_->streams.destroy(stream);
        stream = ++last_stream_;
    }
    void forget_a_destroyed_stream() {
        if (destroyed_.empty()) return;
        if (heap_->forget_stream(destroyed_.back())) {
            destroyed_.pop_back();
        } else {
            EXPECT_TRUE(std::any_of(streams_.begin(), streams_.end(),
                                    [&](StreamHandle stream) { return captured(stream); }));
        }
    }

    std::uint64_t any_size() {
        const std::uint64_t most = std::uint64_t{1} << between(random_, 9, 20);
        return between(random_, 1, most);
    }

    void allocate_one() {
        const std::uint64_t size = any_size();
        const StreamHandle stream = any_stream();
        const std::uint64_t alignment =
            between(random_, 0, 9) != 0 ? 512 : std::uint64_t{1} << between(random_, 0, 21);
        auto block = heap_->allocate(size, stream, alignment);
        if (!block) {
            if (faults_) return clear_faults();
            EXPECT_EQ(block.error().code(), Errc::no_space) << block.error().message();
            const std::string words = block.error().message();
            // What a trim would have made available must have been there for the request.
            EXPECT_TRUE(heap_->trim(true));
            block = heap_->allocate(size, stream, alignment);
            EXPECT_FALSE(block) << size << " bytes, aligned to " << alignment << ", after\n"
                                << words;
            if (!block) return;
        }
        const auto address = reinterpret_cast<std::uint64_t>(*block);
        EXPECT_TRUE(heap_->owns(*block));
        oracle_->birth(address, size, stream, alignment);
        blocks_.push_back(address);
    }

    std::uint64_t pick() {
        const std::size_t index = between(random_, 0, blocks_.size() - 1);
        std::swap(blocks_[index], blocks_.back());
        return blocks_.back();
    }

    void free_one() {
        if (blocks_.empty()) return;
        const std::uint64_t address = pick();
        blocks_.pop_back();
        const std::uint64_t size = oracle_->lives().at(address).size_bytes;
        oracle_->death(address);
        void* const block = reinterpret_cast<void*>(address);
        const Result<void> freed =
            between(random_, 0, 1) != 0 ? heap_->free(block) : heap_->free(block, size);
        EXPECT_TRUE(freed) << freed.error().message();
    }

    void use_elsewhere() {
        if (blocks_.empty()) return;
        const std::uint64_t address = pick();
        const StreamHandle stream = any_stream();
        EXPECT_TRUE(heap_->record_stream(reinterpret_cast<void*>(address), stream));
        oracle_->use(address, stream);
    }

    void with_streams() {
        const StreamHandle stream = any_stream();
        const std::lock_guard lock(memory_->mutex);
        RecordedStreams& streams = memory_->streams;
        switch (between(random_, 0, 3)) {
            case 0:
                return streams.capture(stream, !streams.captured(stream));
            case 1:
                return streams.finish(stream);
            default:
                streams.reach(stream, between(random_, 0, streams.queued(stream)));
        }
    }

    void change_budget() {
        if (between(random_, 0, 3) != 0) {
            // Others can take what the heap does not have.
            memory_->leave_chunks(memory_->backed_chunks() + between(random_, 0, 8));
            return;
        }
        // Not the removals: what they fail to remove is lost, which has a test of its own.
        constexpr BackingCall kCalls[] = {BackingCall::back, BackingCall::map, BackingCall::mark,
                                          BackingCall::passed, BackingCall::order};
        memory_->refuse(kCalls[between(random_, 0, 4)],
                        static_cast<unsigned>(between(random_, 1, 3)), Errc::io,
                        between(random_, 0, 3) == 0);
        faults_ = true;
    }
    void clear_faults() {
        for (std::size_t i = 0; i < kBackingCalls; ++i) {
            memory_->refuse(static_cast<BackingCall>(i), 0);
        }
        faults_ = false;
    }

    void misuse() {
        if (blocks_.empty()) return;
        const std::uint64_t before = heap_->statistics().misuses;
        const std::uint64_t address = pick();
        const std::uint64_t size = oracle_->lives().at(address).size_bytes;
        if (!oracle_->lives().contains(address + 512)) {
            EXPECT_FALSE(heap_->free(reinterpret_cast<void*>(address + 512)));
        }
        EXPECT_FALSE(heap_->free(reinterpret_cast<void*>(address), size + 1));
        EXPECT_GE(heap_->statistics().misuses, before + 1);
    }

    void look() {
        heap_->check();
        this->expect_sums();
        const HeapStatistics now = heap_->statistics();
        EXPECT_EQ(now.live, oracle_->live_bytes());
        EXPECT_EQ(now.live_blocks, blocks_.size());
        EXPECT_EQ(memory_->misuse(), "");
        const auto lives = oracle_->lives();
        const std::vector<HeapAllocation> living = heap_->live();
        EXPECT_EQ(living.size(), lives.size());
        for (std::size_t i = 0; i < living.size(); ++i) {
            const auto life = lives.find(living[i].address);
            ASSERT_NE(life, lives.end());
            EXPECT_EQ(life->second.size_bytes, living[i].size_bytes);
            EXPECT_TRUE(i == 0 || living[i - 1].birth < living[i].birth);
        }
    }

    std::mt19937_64 random_;
    std::unique_ptr<HeapOracle> oracle_;
    std::vector<std::uint64_t> blocks_;
    std::array<StreamHandle, kStreams> streams_{};
    StreamHandle last_stream_ = 0;
    std::vector<StreamHandle> destroyed_;  // and not forgotten yet
    std::uint64_t phase_ = 0;
    bool faults_ = false;
};

template <class Run>
void each_seed(Run&& run) {
    const char* const soak = std::getenv("FROSTLINE_SOAK");
    if (soak == nullptr) {
        auto random = random_stream(510);
        for (int i = 0; i < 4 && !testing::Test::HasFailure(); ++i) {
            run(between(random, 1, 1000000), kQuickOperations);
        }
        return;
    }
    unsigned long long first = 1;
    unsigned long long last = 1000;
    ASSERT_EQ(std::sscanf(soak, "%llu-%llu", &first, &last), 2)
        << "FROSTLINE_SOAK is FIRST-LAST, as 1-1000";
    for (auto seed = first; seed <= last && !testing::Test::HasFailure(); ++seed) {
        run(seed, kOperations);
    }
}

using DeviceHeapFuzz = HeapFuzz<RecordedDevice>;
using HostHeapFuzz = HeapFuzz<RecordedHost>;

TEST_F(DeviceHeapFuzz, NoByteIsInTwoHandsNoneIsUsedTooEarlyAndAllAreAccountedFor) {
    each_seed([&](std::uint64_t seed, std::size_t operations) { run(seed, operations); });
}

TEST_F(HostHeapFuzz, NoByteIsInTwoHandsAndAllAreAccountedFor) {
    each_seed([&](std::uint64_t seed, std::size_t operations) { run(seed, operations); });
}

}  // namespace
}  // namespace frostline
