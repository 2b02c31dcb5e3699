// Proves the rule of streams with content: memory that was freed is used again on its own stream at
// once, and on another only behind the work that it was freed under, also where streams are
// captured and where the device is another's.
#include "tests/allocator/device_heap_fixture.h"

#include <array>
#include <random>
#include <thread>

namespace frostline {
namespace {

class DeviceHeapStreams : public DeviceHeapTest {
   protected:
    explicit DeviceHeapStreams(const std::string& settings = "memory=64MiB,devices=2")
        : DeviceHeapTest(settings) {}

    static bool overlap(const void* a, const void* b, std::uint64_t size_bytes) {
        const auto first = device_address(a);
        const auto second = device_address(b);
        return first < second + size_bytes && second < first + size_bytes;
    }
    std::uint64_t waits() const { return gpu_->calls("cuEventSynchronize"); }
    std::uint64_t orders() const { return gpu_->calls("cuStreamWaitEvent"); }
    std::uint64_t marks() const { return gpu_->calls("cuEventRecord"); }

    const CudaStream first_ = make_stream();
    const CudaStream second_ = make_stream();
    const StreamHandle one_ = handle_of(first_);
    const StreamHandle two_ = handle_of(second_);
};

TEST_F(DeviceHeapStreams, MemoryUnderWorkGoesToItsOwnStreamOnly) {
    const auto heap = make_heap(32 * kMiB);
    StreamGate gate;
    void* const block = must_allocate(*heap, 4 * kMiB, one_);
    gate.shut(*context_, first_.handle());
    fill(block, 4 * kMiB, 1, first_.handle());
    must_free(*heap, block);
    void* const other = must_allocate(*heap, 4 * kMiB, two_);
    EXPECT_FALSE(overlap(block, other, 4 * kMiB));
    EXPECT_EQ(must_allocate(*heap, 4 * kMiB, one_), block) << "its own stream needs no event";
    EXPECT_EQ(waits(), 0U);
    EXPECT_EQ(orders(), 0U);
    gate.open();
}

TEST_F(DeviceHeapStreams, OnceTheWorkIsDoneItGoesToAnyoneWithoutAnOrder) {
    const auto heap = make_heap(4 * kMiB);
    void* const block = must_allocate(*heap, 4 * kMiB, one_);
    fill(block, 4 * kMiB, 1, first_.handle());
    must_free(*heap, block);
    finish(first_.handle());
    // The event is marked now, behind work that has ended; the driver tells so when it is asked.
    ASSERT_TRUE(heap->trim(true).has_value());
    EXPECT_NE(must_allocate(*heap, 4 * kMiB, two_), nullptr);
    EXPECT_EQ(orders(), 0U);
}

TEST_F(DeviceHeapStreams, WithTheBudgetUsedUpAnotherStreamWaitsOnTheDeviceAndNobodyElse) {
    const auto heap = make_heap(4 * kMiB);
    const HostLanding landing(context_, 4 * kMiB);
    StreamGate gate;
    void* const block = must_allocate(*heap, 4 * kMiB, one_);
    gate.shut(*context_, first_.handle());
    fill(block, 4 * kMiB, 1, first_.handle());
    read(block, landing.bytes(), first_.handle());
    must_free(*heap, block);
    void* const next = must_allocate(*heap, 4 * kMiB, two_);
    EXPECT_EQ(next, block) << "there is no other memory";
    EXPECT_EQ(orders(), 1U);
    EXPECT_EQ(waits(), 0U) << "the stream waits, and not the program";
    fill(next, 4 * kMiB, 2, second_.handle());
    gate.open();
    finish(first_.handle());
    finish(second_.handle());
    EXPECT_TRUE(all_are(landing.bytes(), 1)) << "it was overwritten before its last use";
    EXPECT_TRUE(all_are(content(next, 4 * kMiB), 2));
}

TEST_F(DeviceHeapStreams, ARecordedStreamHoldsMemoryUntilItsWorkOfThenIsDone) {
    const auto heap = make_heap(32 * kMiB);
    const HostLanding landing(context_, 4 * kMiB);
    StreamGate gate;
    StreamGate later;
    void* const block = must_allocate(*heap, 4 * kMiB, one_);
    fill(block, 4 * kMiB, 1, first_.handle());
    finish(first_.handle());
    gate.shut(*context_, second_.handle());
    read(block, landing.bytes(), second_.handle());
    ASSERT_TRUE(heap->record_stream(block, two_).has_value());
    must_free(*heap, block);
    EXPECT_EQ(heap->statistics().pending, 4 * kMiB);
    void* const other = must_allocate(*heap, 4 * kMiB, one_);
    EXPECT_FALSE(overlap(block, other, 4 * kMiB)) << "the other stream still reads it";
    fill(other, 4 * kMiB, 2, first_.handle());
    // What is queued after the free does not hold it.
    gate.open();
    finish(second_.handle());
    later.shut(*context_, second_.handle());
    EXPECT_EQ(must_allocate(*heap, 4 * kMiB, one_), block);
    EXPECT_EQ(heap->statistics().pending, 0U);
    later.open();
    EXPECT_TRUE(all_are(landing.bytes(), 1));
}

TEST_F(DeviceHeapStreams, WhatNoStreamCanBeOrderedBehindIsWaitedFor) {
    const auto heap = make_heap(4 * kMiB);
    StreamGate gate;
    void* const block = must_allocate(*heap, 4 * kMiB, one_);
    gate.shut(*context_, second_.handle());
    fill(block, 4 * kMiB, 1, second_.handle());
    ASSERT_TRUE(heap->record_stream(block, two_).has_value());
    must_free(*heap, block);
    std::thread opener([&] {
        while (waits() == 0) std::this_thread::yield();
        gate.open();
    });
    EXPECT_EQ(must_allocate(*heap, 4 * kMiB, one_), block);
    opener.join();
    EXPECT_GE(waits(), 1U);
}

// The emulated driver refuses what a capture forbids, and reports work on memory that is gone.
TEST_F(DeviceHeapStreams, WhileItsStreamIsCapturedMemoryStaysWithIt) {
    const auto heap = make_heap(32 * kMiB);
    void* const block = must_allocate(*heap, 4 * kMiB, one_);
    void* const shared = must_allocate(*heap, 4 * kMiB, two_);
    ASSERT_TRUE(heap->record_stream(shared, one_).has_value());
    CUgraph graph = nullptr;
    const auto capture = [&](const char* what, auto&& call) {
        expect_ok(context_->run([&] { return context_->driver().check(what, call()); }));
    };
    const auto begin = FROSTLINE_EMULATED(cuStreamBeginCapture);
    const auto end = FROSTLINE_EMULATED(cuStreamEndCapture);
    capture("begin", [&] { return begin(first_.handle(), CU_STREAM_CAPTURE_MODE_GLOBAL); });
    const std::uint64_t before = marks();
    must_free(*heap, block);
    must_free(*heap, shared);
    EXPECT_EQ(heap->statistics().pending, 4 * kMiB);
    void* const other = must_allocate(*heap, 20 * kMiB, two_);  // grows meanwhile
    EXPECT_FALSE(overlap(other, shared, 4 * kMiB));
    const auto refused = heap->allocate(8 * kMiB, two_);
    ASSERT_FALSE(refused.has_value()) << "the rest belongs to the captured stream";
    EXPECT_EQ(refused.error().code(), Errc::no_space);
    EXPECT_NE(must_allocate(*heap, 4 * kMiB, one_), nullptr) << "on it, it can be used";
    EXPECT_EQ(heap->statistics().pending, 4 * kMiB);
    EXPECT_LE(marks() - before, 2U) << "on the other stream only";
    capture("end", [&] { return end(first_.handle(), &graph); });
    ASSERT_NE(graph, nullptr) << "the capture was spoilt";
    EXPECT_NE(must_allocate(*heap, 4 * kMiB, two_), nullptr);
    EXPECT_EQ(heap->statistics().pending, 0U);
    capture("destroy", [&] { return FROSTLINE_EMULATED(cuGraphDestroy)(graph); });
}

// Whoever asks the legacy default stream for anything then, spoils the capture.
TEST_F(DeviceHeapStreams, TheLegacyDefaultStreamIsLeftAloneWhileABlockingStreamIsCaptured) {
    const auto heap = make_heap(8 * kMiB);
    void* const block = must_allocate(*heap, 4 * kMiB, 0);
    CUstream blocking = nullptr;
    CUgraph graph = nullptr;
    const auto call = [&](const char* what, auto&& function) {
        expect_ok(context_->run([&] { return context_->driver().check(what, function()); }));
    };
    call("create", [&] { return context_->driver().cuStreamCreate(&blocking, CU_STREAM_DEFAULT); });
    call("begin", [&] {
        return FROSTLINE_EMULATED(cuStreamBeginCapture)(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL);
    });
    must_free(*heap, block);
    EXPECT_NE(must_allocate(*heap, 4 * kMiB, one_), nullptr);
    EXPECT_FALSE(heap->allocate(4 * kMiB, one_).has_value());
    call("end", [&] { return FROSTLINE_EMULATED(cuStreamEndCapture)(blocking, &graph); });
    ASSERT_NE(graph, nullptr) << "the capture was spoilt";
    EXPECT_EQ(must_allocate(*heap, 4 * kMiB, one_), block);
    call("destroy", [&] { return FROSTLINE_EMULATED(cuGraphDestroy)(graph); });
    call("destroy", [&] { return context_->driver().cuStreamDestroy(blocking); });
}

TEST_F(DeviceHeapStreams, StreamsThatCannotUseTheMemoryAreRefusedByName) {
    const auto heap = make_heap(16 * kMiB);
    const auto per_thread =
        heap->allocate(kMiB, reinterpret_cast<StreamHandle>(CU_STREAM_PER_THREAD));
    ASSERT_FALSE(per_thread.has_value());
    EXPECT_EQ(per_thread.error().code(), Errc::invalid_argument);
    const CudaStream foreign = make_stream(1);
    const auto elsewhere = heap->allocate(kMiB, handle_of(foreign));
    ASSERT_FALSE(elsewhere.has_value());
    EXPECT_EQ(elsewhere.error().code(), Errc::invalid_argument);
    EXPECT_NE(std::string(elsewhere.error().message()).find("name it among the peers"),
              std::string::npos);
    EXPECT_FALSE(heap->allocate(kMiB, 0xBAD'0000).has_value()) << "no stream at all";
    gpu_->clear_misuse();  // to ask for it was one
    void* const block = must_allocate(*heap, kMiB, one_);
    EXPECT_FALSE(heap->record_stream(block, handle_of(foreign)).has_value());
    must_free(*heap, block);
}

TEST_F(DeviceHeapStreams, AStreamOfAPeerHoldsMemoryLikeOneOfItsOwn) {
    const CudaStream foreign = make_stream(1);  // outlives the heap
    auto made = make_device_heap({.context = context_, .capacity_bytes = 8 * kMiB, .peers = {1}});
    ASSERT_TRUE(made.has_value()) << made.error().message();
    const auto peer = gpu_->context(1);
    const HostLanding landing(context_, 4 * kMiB);
    StreamGate gate;
    void* const block = must_allocate(**made, 4 * kMiB, one_);
    fill(block, 4 * kMiB, 1, first_.handle());
    finish(first_.handle());
    gate.shut(*peer, foreign.handle());
    expect_ok(peer->run([&] {
        return peer->driver().check(
            "cuMemcpyDtoHAsync",
            peer->driver().cuMemcpyDtoHAsync(landing.bytes().data(), device_address(block),
                                             4 * kMiB, foreign.handle()));
    }));
    expect_ok((*made)->record_stream(block, handle_of(foreign)));
    must_free(**made, block);
    void* const other = must_allocate(**made, 4 * kMiB, one_);
    EXPECT_FALSE(overlap(block, other, 4 * kMiB));
    fill(other, 4 * kMiB, 2, first_.handle());
    gate.open();
    expect_ok(foreign.synchronize());
    EXPECT_EQ(must_allocate(**made, 4 * kMiB, one_), block);
    EXPECT_TRUE(all_are(landing.bytes(), 1));
    expect_ok(first_.synchronize());
}

TEST_F(DeviceHeapStreams, InASteadyStateNoEventIsMade) {
    const auto heap = make_heap(8 * kMiB);
    const auto steps = [&] {
        for (int i = 0; i < 16; ++i) {
            const CudaStream& stream = i % 2 == 0 ? first_ : second_;
            void* const block = must_allocate(*heap, 6 * kMiB, handle_of(stream));
            fill(block, 6 * kMiB, 1, stream.handle());
            must_free(*heap, block);
            finish(stream.handle());
        }
    };
    steps();
    const std::uint64_t made = gpu_->calls("cuEventCreate");
    const std::uint64_t marked = marks();
    steps();
    EXPECT_EQ(gpu_->calls("cuEventCreate"), made);
    EXPECT_GT(marks(), marked);
}

// Every operation is late, by an amount of its own.
class DeviceHeapLateStreams : public DeviceHeapStreams {
   protected:
    DeviceHeapLateStreams()
        : DeviceHeapStreams("memory=64MiB,devices=2,latency_us=100,jitter_us=300,seed=5") {}
};

// The emulated driver reports memory that is unmapped under work.
TEST_F(DeviceHeapLateStreams, TheHeapsEndWaitsForTheWorkOnWhatWasFreedAndOnWhatWasNot) {
    auto heap = make_heap(32 * kMiB);
    void* const freed = must_allocate(*heap, 4 * kMiB, one_);
    void* const alive = must_allocate(*heap, 4 * kMiB, one_);
    for (int i = 0; i < 20; ++i) fill(freed, 4 * kMiB, 1, first_.handle());
    must_free(*heap, freed);
    for (int i = 0; i < 20; ++i) fill(alive, 4 * kMiB, 2, first_.handle());
    heap.reset();
    EXPECT_EQ(gpu_->misuse(), "");
}

TEST_F(DeviceHeapLateStreams, NothingIsOverwrittenBeforeItsLastUse) {
    constexpr std::size_t kSteps = 600;
    constexpr std::size_t kSeen = 64;  // at each end of a block, and in its middle
    const auto heap = make_heap(40 * kMiB);
    const HostLanding landing(context_, kSteps * 3 * kSeen);
    const std::array<const CudaStream*, 2> streams{&first_, &second_};
    struct Living {
        std::byte* address;
        std::uint64_t size_bytes;
        std::size_t number;
        std::size_t stream;
    };
    std::vector<Living> living;
    std::mt19937 random(11);
    const auto below = [&](std::uint64_t n) { return random() % n; };
    // Reads it on a stream, which need not be its own, and frees it with the reads still queued.
    const auto end = [&](std::size_t index) {
        const Living block = living[index];
        living.erase(living.begin() + static_cast<std::ptrdiff_t>(index));
        CUstream reader = streams[block.stream]->handle();
        if (below(3) == 0) {
            reader = streams[1 - block.stream]->handle();
            const auto event = CudaEvent::create(context_);
            expect_ok(event->record(streams[block.stream]->handle()));
            expect_ok(wait_for(*context_, reader, *event));
            expect_ok(heap->record_stream(block.address, handle_of(*streams[1 - block.stream])));
        }
        const std::uint64_t offsets[] = {0, (block.size_bytes - kSeen) / 2,
                                         block.size_bytes - kSeen};
        for (std::size_t i = 0; i < 3; ++i) {
            read(block.address + offsets[i],
                 landing.bytes().subspan((block.number * 3 + i) * kSeen, kSeen), reader);
        }
        must_free(*heap, block.address);
    };
    std::uint64_t windows = 0;
    for (std::size_t number = 0; number < kSteps; ++number) {
        constexpr std::uint64_t kSizes[] = {700, 5000, 90'000, 600'000, 3 * kMiB, 7 * kMiB};
        const std::uint64_t size = kSizes[below(6)] + below(512);
        const std::size_t stream = below(2);
        auto block = heap->allocate(size, handle_of(*streams[stream]));
        while (!block && !living.empty()) {
            ASSERT_EQ(block.error().code(), Errc::no_space) << block.error().message();
            end(below(living.size()));
            block = heap->allocate(size, handle_of(*streams[stream]));
        }
        ASSERT_TRUE(block.has_value()) << block.error().message();
        fill(*block, size, static_cast<unsigned char>(number), streams[stream]->handle());
        living.push_back({static_cast<std::byte*>(*block), size, number, stream});
        windows += heap->statistics().windows;
        if (below(4) == 0) end(below(living.size()));
    }
    while (!living.empty()) end(living.size() - 1);
    finish(first_.handle());
    finish(second_.handle());
    for (std::size_t number = 0; number < kSteps; ++number) {
        ASSERT_TRUE(all_are(landing.bytes().subspan(number * 3 * kSeen, 3 * kSeen),
                            static_cast<unsigned char>(number)))
            << "block " << number;
    }
    EXPECT_GT(windows, 0U) << "no block was stitched";
    EXPECT_GT(orders(), 0U);
    heap->check();
}

}  // namespace
}  // namespace frostline
