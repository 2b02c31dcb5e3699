// The lock of a thread's cache: its owner and others never hold it at once, with the kernel's
// barrier and without.
#include "allocator/heap/cache_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

namespace frostline {
namespace {

class CacheLockTest : public testing::TestWithParam<bool> {};

TEST_P(CacheLockTest, OwnerAndOthersExcludeEachOther) {
    constexpr int kOthersTurns = 500;
    CacheLock lock(GetParam());
    int count = 0;  // plain: whoever touches it has the lock
    int owners = 0;
    std::atomic<bool> done{false};
    std::thread owner([&] {
        while (!done) {
            lock.lock();
            ++count;
            lock.unlock();
            ++owners;
        }
    });
    for (int i = 0; i < kOthersTurns; ++i) {
        lock.want();
        process_barrier();
        lock.wait_for_owner();
        ++count;
        lock.give_back();
    }
    done = true;
    owner.join();
    EXPECT_EQ(count, kOthersTurns + owners);
}

TEST_P(CacheLockTest, TheOwnerTakesItAgainAfterOthersHadIt) {
    CacheLock lock(GetParam());
    lock.want();
    process_barrier();
    lock.wait_for_owner();
    lock.give_back();
    lock.lock();
    lock.unlock();
}

std::string words(const testing::TestParamInfo<bool>& ordered) {
    return ordered.param ? "OrderedByItself" : "WithTheKernelsBarrier";
}

INSTANTIATE_TEST_SUITE_P(Both, CacheLockTest, testing::Bool(), words);

}  // namespace
}  // namespace frostline
