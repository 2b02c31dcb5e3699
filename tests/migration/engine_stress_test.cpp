// Proves under real workers and several threads at once that contents survive, budgets hold at
// every moment, buffers come back once, and nothing hangs or leaks. Runs under the sanitizers, too.
#include "tests/migration/engine_rig.h"

#include <algorithm>
#include <deque>
#include <mutex>

namespace frostline {
namespace {

constexpr std::uint64_t kLargestBytes = 3 * kMi / 2;
constexpr std::size_t kThreads = 4;
constexpr std::size_t kSlots = 24;

// The contents of a tensor follow from one word, so that any thread can check any tensor.
std::uint64_t content_word(std::uint64_t key, std::uint64_t at) {
    std::uint64_t word = (key + at) * 0x9e3779b97f4a7c15U;
    word ^= word >> 29;
    return word * 0xbf58476d1ce4e5b9U;
}

// Not instrumented: a copy of the tensor may read the bytes meanwhile. That is allowed, because
// such a copy is thrown away; ThreadSanitizer cannot know it.
__attribute__((no_sanitize("thread"), noinline)) void fill(std::span<std::byte> bytes,
                                                           std::uint64_t key) {
    volatile std::byte* const out = bytes.data();
    for (std::size_t at = 0; at < bytes.size(); ++at) {
        const std::uint64_t word =
            (key + at / 8) * 0x9e3779b97f4a7c15U ^ (((key + at / 8) * 0x9e3779b97f4a7c15U) >> 29);
        out[at] = static_cast<std::byte>(word * 0xbf58476d1ce4e5b9U >> (at % 8 * 8));
    }
}

bool matches(std::span<const std::byte> bytes, std::uint64_t key) {
    std::size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) {
        std::uint64_t found = 0;
        std::memcpy(&found, &bytes[at], sizeof found);
        if (found != content_word(key, at / 8)) return false;
    }
    for (; at < bytes.size(); ++at) {
        if (bytes[at] != static_cast<std::byte>(content_word(key, at / 8) >> (at % 8 * 8))) {
            return false;
        }
    }
    return true;
}

TEST(ContentWord, filling_and_checking_agree) {
    for (const std::size_t size : {1, 7, 8, 9, 1000}) {
        Bytes bytes(size);
        fill(bytes, 42);
        EXPECT_TRUE(matches(bytes, 42));
        EXPECT_FALSE(matches(bytes, 43));
        bytes[size - 1] ^= std::byte{1};
        EXPECT_FALSE(matches(bytes, 42));
    }
}

// What all threads may use. A tensor in a slot is never written; who takes it out drops it.
class Shared {
   public:
    struct Tensor {
        TensorId id;
        std::uint64_t key = 0;
        std::uint64_t size_bytes = 0;
    };
    Tensor look(std::size_t slot) {
        const std::lock_guard lock(mutex_);
        return slots_[slot];
    }
    Tensor exchange(std::size_t slot, Tensor tensor) {
        const std::lock_guard lock(mutex_);
        return std::exchange(slots_[slot], tensor);
    }

   private:
    std::mutex mutex_;
    std::array<Tensor, kSlots> slots_;
};

class Worker {
   public:
    Worker(EngineRig& rig, Shared& shared, std::uint64_t stream)
        : engine_(rig.engine()), shared_(shared), random_(random_stream(stream)) {}

    void run(std::size_t operations) {
        for (std::size_t i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
            switch (between(random_, 0, 7)) {
                case 0:
                case 1:
                    store(false);
                    break;
                case 2:
                    store(true);
                    break;
                case 3:
                case 4:
                    pin();
                    break;
                case 5:
                    read();
                    break;
                case 6:
                    (void)engine_.prefetch(any().id);
                    break;
                default:
                    write();
            }
        }
        for (const Shared::Tensor& each : mine_) EXPECT_TRUE(engine_.drop(each.id).has_value());
    }
    void expect_buffers_back() const {
        for (const LentBuffer& buffer : buffers_) EXPECT_EQ(buffer.released, 1);
    }
    std::size_t done = 0;

   private:
    Shared::Tensor any() { return shared_.look(between(random_, 0, kSlots - 1)); }

    void store(bool adopt) {
        const Shared::Tensor fresh{{}, random_(), random_size(random_, kLargestBytes)};
        Bytes bytes(fresh.size_bytes);
        fill(bytes, fresh.key);
        Result<TensorId> id = Error(Errc::cancelled, 0, "not tried");
        bool held = false;
        if (adopt) {
            LentBuffer& buffer = buffers_.emplace_back();
            buffer.bytes = std::move(bytes);
            held = between(random_, 0, 1) == 0;
            id = engine_.adopt(buffer.bytes, buffer.release(), held);
            if (!id) buffers_.pop_back();
        } else {
            id = engine_.put(bytes);
        }
        if (!id) {
            EXPECT_EQ(id.error().code(), Errc::no_space) << id.error().message();
            return;
        }
        ++done;
        if (held) {
            EXPECT_TRUE(engine_.settle(*id).has_value());
        }
        if (mine_.size() < 4) {
            mine_.push_back({*id, fresh.key, fresh.size_bytes});
            return;
        }
        const Shared::Tensor old =
            shared_.exchange(between(random_, 0, kSlots - 1), {*id, fresh.key, fresh.size_bytes});
        if (old.id.valid()) {
            EXPECT_TRUE(engine_.drop(old.id).has_value());
        }
    }
    void pin() {
        const Shared::Tensor tensor = any();
        const auto pinned = engine_.pin(tensor.id, Access::read);
        if (!pinned) return expect_excuse(pinned.error());
        ++done;
        EXPECT_EQ(pinned->bytes.size(), tensor.size_bytes);
        EXPECT_TRUE(matches(pinned->bytes, tensor.key)) << "pinned " << tensor.size_bytes;
        engine_.unpin(*pinned);
    }
    void read() {
        const Shared::Tensor tensor = any();
        Bytes out(tensor.size_bytes);
        const auto got = engine_.read(tensor.id, out);
        if (!got) return expect_excuse(got.error());
        EXPECT_TRUE(matches(out, tensor.key)) << "read " << tensor.size_bytes;
    }
    void write() {
        if (mine_.empty()) return;
        Shared::Tensor& tensor = mine_[between(random_, 0, mine_.size() - 1)];
        const auto pinned = engine_.pin(tensor.id, Access::write);
        if (!pinned) {
            EXPECT_EQ(pinned.error().code(), Errc::no_space) << pinned.error().message();
            return;
        }
        EXPECT_TRUE(matches(pinned->bytes, tensor.key)) << "before a write";
        tensor.key = random_();
        fill(pinned->bytes, tensor.key);
        engine_.unpin(*pinned);
    }
    // Another thread may have dropped it; and pins of others may leave no room.
    static void expect_excuse(const Error& error) {
        EXPECT_TRUE(error.code() == Errc::not_found || error.code() == Errc::no_space)
            << error.message();
    }

    MigrationEngine& engine_;
    Shared& shared_;
    std::mt19937_64 random_;
    std::vector<Shared::Tensor> mine_;
    std::deque<LentBuffer> buffers_;
};

void hammer(const RigOptions& options, std::uint64_t stream, std::size_t operations) {
    EngineRig rig(options);
    Shared shared;
    std::deque<Worker> workers;
    for (std::size_t i = 0; i < kThreads; ++i) workers.emplace_back(rig, shared, stream + i);
    std::atomic<bool> over{false};
    std::thread observer([&] {
        while (!over) {
            if (!rig.budgets_hold()) {
                ADD_FAILURE() << rig.budgets_hold().message();
                return;
            }
            (void)rig.engine().stats();
            (void)rig.engine().timeline();
            std::this_thread::yield();
        }
    });
    std::vector<std::future<void>> running;
    for (Worker& each : workers) {
        running.push_back(std::async(std::launch::async, [&] { each.run(operations); }));
    }
    for (auto& each : running) without_hanging([&] { each.get(); });
    over = true;
    observer.join();
    EXPECT_TRUE(rig.budgets_hold());
    const EngineStats stats = rig.engine().stats();
    EXPECT_GT(stats.moves, operations / 10) << "too little moved to prove anything";
    EXPECT_EQ(stats.failed_moves, 0U);
    rig.stop();  // with the shared tensors still in; expects that every tier is empty
    for (const Worker& each : workers) {
        each.expect_buffers_back();
        EXPECT_GT(each.done, operations / 10);
    }
}

TEST(EngineStress, three_tiers) {
    hammer({.ring = true}, 100, 300);
}
TEST(EngineStress, pmem_alone_below) {
    hammer({.pmem_bytes = 40 * kMi, .swap_bytes = 0}, 200, 200);
}
TEST(EngineStress, almost_no_dram) {
    hammer({.dram_bytes = 2 * kMi, .pmem_bytes = kMi, .ring = true}, 300, 200);
}
TEST(EngineStress, without_checksums) {
    hammer({.verify = false, .ring = true}, 400, 200);
}

}  // namespace
}  // namespace frostline
