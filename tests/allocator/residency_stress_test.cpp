// Proves the protocol of a move under load: readers and writers under pins, movers and releasers on
// many threads. The bytes are plain memory, so that ThreadSanitizer proves that the word alone
// orders every access to them. Every reader sees one whole content, the newest; every tensor is
// retired exactly once.
#include "allocator/residency.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

namespace frostline {
namespace {

constexpr std::size_t kTiers = 3;
constexpr std::size_t kTensors = 3;
constexpr int kThreads = 4;
constexpr int kLives = 1500;
constexpr int kStepsPerLife = 120;

constexpr std::uint64_t word_of(std::uint64_t version, std::size_t index) {
    return version * 0x9e3779b97f4a7c15 + index;
}

// What a tensor holds in one place: plain memory. One race is meant to be: a writer may write what
// is being copied, and its pin voids the copy. There both sides use relaxed atomic accesses, which
// order nothing; every other pair of accesses must be ordered by the residency word, or
// ThreadSanitizer reports it.
struct Content {
    std::uint64_t version = 0;
    std::array<std::uint64_t, 24> words{};

    void write(std::uint64_t new_version) {
        store(version, new_version);
        for (std::size_t i = 0; i < words.size(); ++i) store(words[i], word_of(new_version, i));
    }
    bool holds(std::uint64_t expected_version) const {
        if (version != expected_version) return false;
        for (std::size_t i = 0; i < words.size(); ++i) {
            if (words[i] != word_of(version, i)) return false;
        }
        return true;
    }
    /// Yields on the way, so that others get in between.
    void copy_to(Content& target) {
        target.version = load(version);
        for (std::size_t i = 0; i < words.size(); ++i) {
            target.words[i] = load(words[i]);
            if (i % 8 == 0) std::this_thread::yield();
        }
    }
    /// Whoever retires a place leaves nothing in it that could pass for a content.
    void poison() {
        version = UINT64_MAX;
        words.fill(0xdeaddeaddeaddead);
    }

   private:
    static void store(std::uint64_t& word, std::uint64_t value) {
        std::atomic_ref(word).store(value, std::memory_order_relaxed);
    }
    static std::uint64_t load(std::uint64_t& word) {
        return std::atomic_ref(word).load(std::memory_order_relaxed);
    }
};

struct Tensor {
    Residency residency;
    std::array<Content, kTiers> places;
    std::uint32_t generation = 0;

    // Pins keep a tensor in its place; they do not order a reader and a writer, who are both users.
    // No part of the protocol: movers never take it.
    std::shared_mutex users;
    std::uint64_t newest_version = 0;  // guarded by `users`: the oracle

    // The engine's lock: under it moves begin and places are given up.
    std::mutex engine;

    std::atomic<int> retired{0};
    std::atomic<int> releases{0};
};

struct Totals {
    std::atomic<std::uint64_t> reads{0};
    std::atomic<std::uint64_t> writes{0};
    std::atomic<std::uint64_t> published{0};
    std::atomic<std::uint64_t> pinned{0};
    std::atomic<std::uint64_t> written{0};
    std::atomic<std::uint64_t> released{0};
    std::atomic<std::uint64_t> wrong_contents{0};
    std::atomic<std::uint64_t> homes_that_moved{0};
};

class Actor {
   public:
    Actor(Totals& totals, std::uint64_t stream) : totals_(totals), random_(random_stream(stream)) {}

    void act(Tensor& tensor, bool may_release) {
        const std::uint64_t choice = between(random_, 0, 99);
        if (choice < 35) {
            use(tensor, Access::read);
        } else if (choice < 50) {
            use(tensor, Access::write);
        } else if (choice < 98 || !may_release) {
            move(tensor);
        } else {
            release(tensor);
        }
    }

    void release(Tensor& tensor) {
        const Residency::ReleaseResult result = tensor.residency.release();
        if (result != Residency::ReleaseResult::already) ++tensor.releases;
        if (result == Residency::ReleaseResult::retire) retire(tensor);
    }

   private:
    void use(Tensor& tensor, Access access) {
        if (tensor.residency.pin(tensor.generation, access) != Residency::PinResult::pinned) return;
        const TierId home = tensor.residency.load().home;
        Content& content = tensor.places[index_of(home)];
        if (access == Access::write) {
            const std::lock_guard lock(tensor.users);
            if (!content.holds(tensor.newest_version)) ++totals_.wrong_contents;
            content.write(++tensor.newest_version);
            ++totals_.writes;
        } else {
            const std::shared_lock lock(tensor.users);
            if (!content.holds(tensor.newest_version)) ++totals_.wrong_contents;
            ++totals_.reads;
        }
        if (between(random_, 0, 3) == 0) std::this_thread::yield();
        if (tensor.residency.load().home != home) ++totals_.homes_that_moved;
        if (tensor.residency.unpin()) retire(tensor);
    }

    // As the mover does it: reserve, begin, copy, fence, publish, retire the old place.
    void move(Tensor& tensor) {
        const auto target = static_cast<TierId>(between(random_, 0, kTiers - 1));
        TierId home{};
        {
            const std::lock_guard lock(tensor.engine);
            if (tensor.residency.load().written && !tensor.residency.clear_written()) return;
            if (!tensor.residency.begin_move(target)) return;
            home = tensor.residency.load().home;
        }
        Content& from = tensor.places[index_of(home)];
        Content& to = tensor.places[index_of(target)];
        from.copy_to(to);
        const Residency::PublishResult result = tensor.residency.publish();
        if (result == Residency::PublishResult::published) {
            ++totals_.published;
            retire_place(tensor, from, home);
            return;
        }
        ++(result == Residency::PublishResult::pinned    ? totals_.pinned
           : result == Residency::PublishResult::written ? totals_.written
                                                         : totals_.released);
        if (tensor.residency.end_move()) retire(tensor);
    }

    // The old place is free when the move is published: nobody can hold it. The next mover may come
    // here at once, so the place is poisoned only while nobody can move.
    void retire_place(Tensor& tensor, Content& place, TierId was_home) {
        const std::lock_guard lock(tensor.engine);
        const ResidencyState now = tensor.residency.load();
        if (now.home != was_home && !now.moving) place.poison();
    }

    void retire(Tensor& tensor) {
        ++tensor.retired;
        const std::lock_guard lock(tensor.engine);
        for (Content& each : tensor.places) each.poison();
    }

    Totals& totals_;
    std::mt19937_64 random_;
};

TEST(ResidencyStress, ReadersSeeTheNewestWholeContentWhateverMoves) {
    Totals totals;
    std::array<Tensor, kTensors> tensors;
    const auto begin_life = [&] {
        for (Tensor& each : tensors) {
            each.residency.reset(TierId{0}, ++each.generation);
            each.newest_version = 1;
            each.places[0].write(1);
            each.retired = 0;
            each.releases = 0;
        }
    };
    std::uint64_t wrong_retirements = 0;
    const auto end_life = [&]() noexcept {
        for (Tensor& each : tensors) {
            if (each.retired != 1 || each.releases != 1) ++wrong_retirements;
        }
        begin_life();
    };
    begin_life();
    std::barrier life(kThreads, end_life);
    std::vector<std::thread> threads;
    for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
            Actor actor(totals, 300 + thread);
            for (int i = 0; i < kLives; ++i) {
                for (int step = 0; step < kStepsPerLife; ++step) {
                    actor.act(tensors[static_cast<std::size_t>(step) % kTensors],
                              step > kStepsPerLife / 2);
                }
                for (Tensor& each : tensors) actor.release(each);
                life.arrive_and_wait();
            }
        });
    }
    for (std::thread& each : threads) each.join();
    EXPECT_EQ(totals.wrong_contents, 0U);
    EXPECT_EQ(totals.homes_that_moved, 0U);
    EXPECT_EQ(wrong_retirements, 0U) << "retired twice, or never";
    std::printf(
        "%llu reads, %llu writes; moves: %llu published, %llu pinned, %llu written, "
        "%llu released\n",
        static_cast<unsigned long long>(totals.reads),
        static_cast<unsigned long long>(totals.writes),
        static_cast<unsigned long long>(totals.published),
        static_cast<unsigned long long>(totals.pinned),
        static_cast<unsigned long long>(totals.written),
        static_cast<unsigned long long>(totals.released));
    // A run in which nothing collided would prove nothing.
    EXPECT_GT(totals.published, 100U);
    EXPECT_GT(totals.pinned, 0U);
    EXPECT_GT(totals.written, 0U);
    EXPECT_GT(totals.released, 0U);
}

TEST(ResidencyStress, APinNeverHoldsALaterTenantOfTheSlot) {
    Residency residency;
    std::atomic<std::uint32_t> generation{1};
    std::atomic<std::uint32_t> retired{0};
    std::atomic<bool> finished{false};
    std::atomic<std::uint64_t> pinned{0};
    std::atomic<std::uint64_t> wrong{0};
    std::uint64_t content = 1;  // plain: what belongs to the living generation
    residency.reset(TierId{0}, 1);
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&] {
            while (!finished.load(std::memory_order_relaxed)) {
                const std::uint32_t mine = generation.load(std::memory_order_relaxed);
                if (residency.pin(mine, Access::read) != Residency::PinResult::pinned) {
                    std::this_thread::yield();
                    continue;
                }
                ++pinned;
                if (residency.load().generation != mine || content != mine) ++wrong;
                if (residency.unpin()) retired.store(mine, std::memory_order_release);
            }
        });
    }
    for (std::uint32_t life = 1; life < 3000 || pinned < 100; ++life) {
        if (life % 64 == 0) std::this_thread::yield();
        if (residency.release() == Residency::ReleaseResult::retired_later) {
            while (retired.load(std::memory_order_acquire) != life) std::this_thread::yield();
        }
        content = life + 1;
        residency.reset(TierId{0}, life + 1);
        generation.store(life + 1, std::memory_order_relaxed);
    }
    finished = true;
    for (std::thread& each : threads) each.join();
    EXPECT_EQ(wrong, 0U);
}

}  // namespace
}  // namespace frostline
