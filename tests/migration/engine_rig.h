// An engine over real tiers with budgets of the test's choice, and a way to call what may wait
// while the test itself decides which copy goes on when.
#pragma once

#include "migration/policies/lru_policy.h"
#include "migration/migration_engine.h"
#include "tests/tiers/tier_specimen.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace frostline {

inline constexpr std::uint64_t kKi = 1024;
inline constexpr std::uint64_t kMi = kKi * kKi;
inline constexpr TierId kTop{0};

/// Syncing a file that stands in for pmem costs a disk's time; where faults of it do not matter it
/// is left out.
inline const SystemCalls& calls_without_sync() {
    static const SystemCalls calls = [] {
        SystemCalls table = faulty_system_calls();
        table.pmem_msync = [](const void*, std::size_t) { return 0; };
        return table;
    }();
    return calls;
}

/// One thread that makes calls for the test, one after the other.
class CallThread {
   public:
    static CallThread& instance() {
        static CallThread thread;
        return thread;
    }
    void make(std::function<void()> call) {
        const std::lock_guard lock(mutex_);
        call_ = std::move(call);
        changed_.notify_one();
    }

   private:
    CallThread() : thread_([this] { work(); }) {}
    ~CallThread() {
        {
            const std::lock_guard lock(mutex_);
            over_ = true;
            changed_.notify_one();
        }
        thread_.join();
    }
    void work() {
        std::unique_lock lock(mutex_);
        while (true) {
            changed_.wait(lock, [this] { return over_ || call_; });
            if (!call_) return;
            const std::function<void()> call = std::exchange(call_, nullptr);
            lock.unlock();
            call();
            lock.lock();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::function<void()> call_;
    bool over_ = false;
    std::thread thread_;  // last: it uses the others
};

/// Has `action` called on another thread while `meanwhile` runs here, again and again, until it has
/// returned. A call that never returns would hang the tests silently: it ends them loudly.
template <class Action>
auto while_pumping(Action action, const std::function<void()>& meanwhile) {
    auto task =
        std::make_shared<std::packaged_task<std::invoke_result_t<Action>()>>(std::move(action));
    auto result = task->get_future();
    CallThread::instance().make([task] { (*task)(); });
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (result.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
        meanwhile();
        std::this_thread::yield();
        if (std::chrono::steady_clock::now() > give_up) {
            std::fprintf(stderr, "a call has hung for 60 s; seed %llu\n",
                         static_cast<unsigned long long>(test_seed()));
            std::abort();
        }
    }
    return result.get();
}

/// As above with nothing to do meanwhile.
template <class Action>
auto without_hanging(Action action) {
    return while_pumping(std::move(action), [] {});
}

struct RigOptions {
    std::uint64_t dram_bytes = 4 * kMi;
    std::uint64_t pmem_bytes = 4 * kMi;   ///< 0: no such tier
    std::uint64_t swap_bytes = 64 * kMi;  ///< 0: no such tier
    bool workers = true;
    bool verify = true;
    std::uint64_t chunk_bytes = 64 * kKi;
    /// Whether swap goes through io_uring; else every transfer is one pread or pwrite, at once.
    bool ring = false;
    bool sync = false;  ///< whether pmem_msync is really called (and can be made to fail)
};

class EngineRig {
   public:
    explicit EngineRig(const RigOptions& options) : options_(options) {
        const SystemCalls* const calls =
            options.sync ? &faulty_system_calls() : &calls_without_sync();
        auto dram = DramTier::create({kTop, options.dram_bytes, calls});
        dram_ = dram->get();
        add(std::move(*dram));
        if (options.pmem_bytes > 0) {
            auto pmem =
                PmemTier::create({next_id(), folder_.file("pmem"), options.pmem_bytes, calls});
            if (!pmem) give_up(pmem.error());
            add(std::move(*pmem));
        }
        if (options.swap_bytes > 0) {
            auto swap = SwapTier::create({.id = next_id(),
                                          .places = {folder_.path()},
                                          .size_bytes = options.swap_bytes,
                                          .growth_bytes = 256 * kKi,
                                          .calls = calls,
                                          .block_bytes = options.chunk_bytes,
                                          .ring = options.ring,
                                          .direct = options.ring});
            if (!swap) give_up(swap.error());
            add(std::move(*swap));
        }
        restart();
    }
    ~EngineRig() { stop(); }
    EngineRig(const EngineRig&) = delete;
    EngineRig& operator=(const EngineRig&) = delete;

    /// A fresh engine over the same tiers.
    void restart() {
        stop();
        auto copies =
            CopyEngine::create({.chunk_bytes = options_.chunk_bytes, .workers = options_.workers});
        copies_ = *std::move(copies);
        engine_.emplace(MigrationEngine::Options{.tiers = order_,
                                                 .dram = dram_,
                                                 .copies = copies_.get(),
                                                 .policy = &policy_,
                                                 .verify = options_.verify,
                                                 .now_ns = [this] { return ++clock_ns_; }});
    }
    /// Ends the engine; what it held must be free then.
    void stop() {
        if (!engine_) return;
        // Without workers somebody has to carry the copies to their end meanwhile.
        while_pumping([this] { engine_.reset(); }, [this] { step(); });
        copies_.reset();
        for (Tier* const tier : order_) {
            EXPECT_EQ(tier->usage().used_bytes, 0U) << name(tier->info().kind) << " leaks";
        }
    }

    MigrationEngine& engine() { return *engine_; }
    CopyEngine& copies() { return *copies_; }
    DramTier& dram() { return *dram_; }
    Tier& tier(std::size_t index) { return *order_[index]; }
    /// Goes on with every look that the engine takes at its clock.
    std::uint64_t clock_ns() const { return clock_ns_; }
    std::size_t tiers() const { return order_.size(); }
    std::uint64_t used(std::size_t index) const { return order_[index]->usage().used_bytes; }

    /// One chunk of some copy.
    bool step(std::size_t pick = 0) { return !options_.workers && copies_->run_step(pick); }
    void run_all_copies() {
        while (step()) {
        }
    }
    /// Whether every budget is kept, to the byte.
    testing::AssertionResult budgets_hold() const {
        for (const Tier* const tier : order_) {
            const TierUsage usage = tier->usage();
            if (usage.used_bytes > tier->info().capacity_bytes ||
                usage.peak_bytes > tier->info().capacity_bytes) {
                return testing::AssertionFailure()
                       << name(tier->info().kind) << " holds " << usage.used_bytes << ", peak "
                       << usage.peak_bytes << ", of " << tier->info().capacity_bytes;
            }
        }
        return testing::AssertionSuccess();
    }

    /// Calls what may wait, and carries copies on meanwhile if nobody else does.
    template <class Action>
    auto pumping(Action action) {
        if (options_.workers) return without_hanging(std::move(action));
        return while_pumping(std::move(action), [this] { step(); });
    }

    Result<TensorId> put(std::span<const std::byte> bytes) {
        return pumping([&] { return engine_->put(bytes); });
    }
    Result<PinnedBytes> pin(TensorId id, Access access = Access::read) {
        return pumping([&] { return engine_->pin(id, access); });
    }
    /// Stores bytes that must fit.
    TensorId stored(std::span<const std::byte> bytes) {
        const auto id = put(bytes);
        if (!id) ADD_FAILURE() << id.error().message();
        return id ? *id : TensorId{};
    }
    Bytes read(TensorId id, std::uint64_t size_bytes) {
        Bytes out(size_bytes);
        const auto done = engine_->read(id, out);
        if (!done) ADD_FAILURE() << done.error().message();
        return out;
    }

   private:
    TierId next_id() const { return static_cast<TierId>(tiers_.size()); }
    void add(std::unique_ptr<Tier> tier) {
        order_.push_back(tier.get());
        tiers_.push_back(std::move(tier));
    }
    [[noreturn]] static void give_up(const Error& error) {
        std::fprintf(stderr, "no rig: %s\n", error.message());
        std::abort();
    }

    RigOptions options_;
    ScratchFolder folder_;
    std::vector<std::unique_ptr<Tier>> tiers_;
    std::vector<Tier*> order_;
    DramTier* dram_ = nullptr;
    LruPolicy policy_;
    std::atomic<std::uint64_t> clock_ns_{0};
    std::unique_ptr<CopyEngine> copies_;
    std::optional<MigrationEngine> engine_;
};

/// Counts how often a buffer was given back, and spoils it then: whoever reads it later is caught.
struct LentBuffer {
    Bytes bytes;
    std::atomic<int> released{0};

    BufferRelease release() {
        return {[](void* user, std::byte* address, std::uint64_t size_bytes) {
                    auto& self = *static_cast<LentBuffer*>(user);
                    EXPECT_EQ(address, self.bytes.data());
                    EXPECT_EQ(size_bytes, self.bytes.size());
                    std::memset(address, 0xee, size_bytes);
                    ++self.released;
                },
                this};
    }
};

}  // namespace frostline
