// Proves under load, for ThreadSanitizer too, that threads that allocate, free each other's blocks,
// name streams and trim never get a byte that another holds, and that no free is refused.
#include "tests/allocator/heap/heap_fixture.h"
#include "tests/allocator/heap/heap_oracle.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace frostline {
namespace {

constexpr std::size_t kThreads = 4;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSteps = 3000;
#else
constexpr int kSteps = 20000;
#endif

// Blocks on their way from the thread that got them to one that frees them.
class Exchange {
   public:
    /// Leaves a block, and takes whatever was in its place.
    std::uint64_t swap(std::size_t place, std::uint64_t block) {
        const std::lock_guard lock(mutex_);
        return std::exchange(blocks_[place % blocks_.size()], block);
    }
    std::size_t size() const { return blocks_.size(); }

   private:
    std::mutex mutex_;
    std::array<std::uint64_t, 64> blocks_{};
};

class HeapStress : public DeviceHeapFixture {
   protected:
    void work(std::uint64_t seed) {
        auto random = random_stream(seed);
        for (int step = 0; step < kSteps; ++step) {
            const StreamHandle stream = between(random, 1, 3);
            const std::uint64_t size =
                between(random, 1, std::uint64_t{1} << between(random, 9, 19));
            const auto made = heap_->allocate(size, stream);
            std::uint64_t block = 0;
            if (made) {
                block = reinterpret_cast<std::uint64_t>(*made);
                oracle_->birth(block, size, stream, 512);
                if (between(random, 0, 15) == 0) {
                    const StreamHandle other = between(random, 1, 3);
                    if (!heap_->record_stream(*made, other)) ++refused_;
                    oracle_->use(block, other);
                }
                if (!heap_->describe(*made)) ++refused_;
            }
            drop(exchange_.swap(between(random, 0, 63), block));
            if (between(random, 0, 7) == 0) finish(stream);
            if (between(random, 0, 255) == 0) (void)heap_->trim(step % 2 == 0);
            if (between(random, 0, 255) == 0) (void)heap_->statistics();
        }
    }
    void drop(std::uint64_t block) {
        if (block == 0) return;
        oracle_->death(block);
        if (!heap_->free(reinterpret_cast<void*>(block))) ++refused_;
    }

    std::unique_ptr<HeapOracle> oracle_;
    Exchange exchange_;
    std::atomic<int> refused_{0};
};

TEST_F(HeapStress, NoByteIsInTwoHandsAndNoFreeIsRefused) {
    oracle_ = std::make_unique<HeapOracle>(memory_, true);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreads; ++i) threads.emplace_back([&, i] { work(520 + i); });
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < exchange_.size(); ++i) drop(exchange_.swap(i, 0));
    EXPECT_EQ(refused_, 0);
    EXPECT_EQ(heap_->statistics().live_blocks, 0U);
    EXPECT_EQ(heap_->statistics().live, 0U);
    EXPECT_EQ(heap_->statistics().misuses, 0U);
    EXPECT_TRUE(heap_->trim(true));
    EXPECT_EQ(heap_->statistics().mapped, 0U);
    EXPECT_EQ(memory_->misuse(), "");
    end();
}

// A removal from the index moves its neighbours' entries, which a reader may miss just then.
TEST_F(HeapStress, AFreeBesideOthersRemovalsFindsItsBlock) {
    make({kChunk, 1024, 64, 512, 1024});
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < 3; ++i) {
        threads.emplace_back([&, i] {
            auto random = random_stream(540 + i);
            std::vector<void*> blocks(100);
            for (int step = 0; step < kSteps * 10; ++step) {
                void*& block = blocks[between(random, 0, blocks.size() - 1)];
                if (block != nullptr) {
                    if (!heap_->free(block)) ++refused_;
                    block = nullptr;
                } else if (const auto made = heap_->allocate(9000 + between(random, 0, 30000), i)) {
                    block = *made;
                }
            }
            for (void* const block : blocks) (void)heap_->free(block);
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(refused_, 0);
    EXPECT_EQ(heap_->statistics().misuses, 0U);
    end();
}

}  // namespace
}  // namespace frostline
