// Proves that looking after pins costs what ends: of each stream only the oldest event is asked
// about, however many wait behind it, and no stream's pins wait for another's.
#include "bindings/stream_pins.h"
#include "migration/policies/lru_policy.h"
#include "tests/bindings/framework.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kMi = std::uint64_t{1} << 20;
constexpr std::size_t kMany = 200;

// What the driver is asked about events.
struct Questions {
    std::mutex mutex;
    std::size_t count = 0;
    std::set<CUevent> events;
};
Questions questions;
decltype(CudaFunctions::cuEventQuery) original_query = nullptr;

CUresult query(CUevent event) {
    {
        const std::lock_guard lock(questions.mutex);
        ++questions.count;
        questions.events.insert(event);
    }
    return original_query(event);
}

CudaDriver watched(const CudaDriver& driver) {
    original_query = driver.cuEventQuery;
    CudaDriver changed = driver;
    changed.cuEventQuery = query;
    return changed;
}

class StreamPinsTest : public testing::Test {
   protected:
    StreamPinsTest() {
        const std::lock_guard lock(questions.mutex);
        questions.count = 0;
        questions.events.clear();
    }
    // A new tensor whose pin ends with what the stream has been given.
    TensorId pinned_until(CUstream stream) {
        const auto made = engine_->allocate(64, PinEnd::later);
        auto event = CudaEvent::create(context_);
        if (!made || !event || !event->record(stream)) {
            ADD_FAILURE() << "no tensor, or no event";
            std::abort();
        }
        pins_->unpin_after(made->pinned, std::make_shared<const CudaEvent>(*std::move(event)),
                           stream);
        return made->id;
    }
    bool has_ended(TensorId id) { return pins_->events_before(id, Access::write).empty(); }
    static void wait_for_questions(std::size_t more) {
        const auto asked = [] {
            const std::lock_guard lock(questions.mutex);
            return questions.count;
        };
        for (const std::size_t before = asked(); asked() < before + more;) {
            std::this_thread::yield();
        }
    }

    EmulatedGpu gpu_{"memory=64MiB"};
    CudaDriver driver_ = watched(gpu_->driver());
    std::shared_ptr<const CudaContext> context_ = *CudaContext::create(driver_, 0);
    Framework framework_;
    std::unique_ptr<DramTier> dram_ = *DramTier::create({.capacity_bytes = 4 * kMi});
    std::array<Tier*, 1> order_{dram_.get()};
    LruPolicy policy_;
    std::unique_ptr<CopyEngine> copies_ = *CopyEngine::create({});
    std::optional<MigrationEngine> engine_{
        std::in_place, MigrationEngine::Options{.tiers = order_,
                                                .dram = dram_.get(),
                                                .copies = copies_.get(),
                                                .policy = &policy_,
                                                .now_ns = [] { return std::uint64_t{1}; }}};
    std::optional<StreamPins> pins_{std::in_place, *engine_};
};

TEST_F(StreamPinsTest, OnlyAStreamsOldestEventIsAskedAbout) {
    const CUstream stream = framework_.stream();
    std::vector<TensorId> tensors;
    {
        const StreamGate gate(stream);
        for (std::size_t i = 0; i < kMany; ++i) tensors.push_back(pinned_until(stream));
        wait_for_questions(20);
        const std::lock_guard lock(questions.mutex);
        EXPECT_EQ(questions.events.size(), 1U);
    }
    for (const TensorId each : tensors) {
        while (!has_ended(each)) std::this_thread::yield();
    }
    const std::lock_guard lock(questions.mutex);
    EXPECT_EQ(questions.events.size(), kMany);
}

TEST_F(StreamPinsTest, AStreamThatIsHeldUpHoldsUpNoOther) {
    const CUstream busy = framework_.stream();
    const CUstream idle = framework_.stream();
    const StreamGate gate(busy);
    const TensorId first = pinned_until(busy);
    for (std::size_t i = 0; i < kMany; ++i) {
        const TensorId each = pinned_until(idle);
        while (!has_ended(each)) std::this_thread::yield();
    }
    EXPECT_FALSE(has_ended(first));
}

TEST_F(StreamPinsTest, EachThreadHasADefaultStreamOfItsOwn) {
    std::optional<StreamGate> gate;
    gate.emplace(CU_STREAM_PER_THREAD);
    const TensorId first = pinned_until(CU_STREAM_PER_THREAD);
    std::thread([this] {
        framework_.use();
        const TensorId other = pinned_until(CU_STREAM_PER_THREAD);
        while (!has_ended(other)) std::this_thread::yield();
    }).join();
    EXPECT_FALSE(has_ended(first));
    gate.reset();
    while (!has_ended(first)) std::this_thread::yield();
}

TEST_F(StreamPinsTest, TheEndWaitsForEveryPin) {
    const CUstream stream = framework_.stream();
    for (std::size_t i = 0; i < kMany; ++i) (void)pinned_until(i % 2 == 0 ? stream : nullptr);
    pins_.reset();
    EXPECT_EQ(engine_->pins(), 0U);
    EXPECT_TRUE(engine_->drop(engine_->put(std::vector<std::byte>(64)).value()).has_value());
}

}  // namespace
}  // namespace frostline
