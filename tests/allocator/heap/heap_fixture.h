// A heap over recorded memory, and what every test of it asks at its end: that no rule was broken
// and that nothing is left behind.
#pragma once

#include "tests/allocator/heap/recorded_backing.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace frostline {

template <class Backing>
class HeapFixture : public testing::Test {
   protected:
    static constexpr std::uint64_t kKi = 1024;
    static constexpr std::uint64_t kChunk = 256 * kKi;

    void make(RecordedMemory::Options memory = {}, HeapOptions options = {}) {
        heap_.reset();
        memory_ = std::make_shared<RecordedMemory>(memory);
        options.stitch_from_bytes = 1;
        auto made = Heap<Backing>::create(std::make_unique<Backing>(memory_), options);
        ASSERT_TRUE(made) << made.error().message();
        heap_ = *std::move(made);
    }
    void SetUp() override { make(); }
    void TearDown() override {
        if (heap_ != nullptr) end();
    }
    /// What still lives dies with the heap.
    void end() {
        heap_->check();
        expect_sums();
        heap_.reset();
        EXPECT_EQ(memory_->backed_chunks(), 0U);
        EXPECT_EQ(memory_->window_chunks(), 0U);
        EXPECT_EQ(memory_->misuse(), "");
    }

    void* get(std::uint64_t size_bytes, StreamHandle stream = 1, std::uint64_t alignment = 512) {
        auto block = heap_->allocate(size_bytes, stream, alignment);
        EXPECT_TRUE(block) << size_bytes << ": " << block.error().message();
        return block ? *block : nullptr;
    }
    void put(void* block) {
        const Result<void> freed = heap_->free(block);
        EXPECT_TRUE(freed) << freed.error().message();
    }
    /// Work on the stream that is not done until the test says so.
    void queue(StreamHandle stream) {
        const std::lock_guard lock(memory_->mutex);
        memory_->streams.queue(stream);
    }
    void finish(StreamHandle stream) {
        const std::lock_guard lock(memory_->mutex);
        memory_->streams.finish(stream);
    }
    void capture(StreamHandle stream, bool begins) {
        const std::lock_guard lock(memory_->mutex);
        memory_->streams.capture(stream, begins);
    }
    /// Every mapped byte is accounted for once, but for what is left over in spans.
    void expect_sums() {
        const HeapStatistics now = heap_->statistics();
        const std::uint64_t known = now.live_block + now.cached + now.free + now.pending;
        EXPECT_LE(known, now.mapped);
        EXPECT_LE(now.mapped - known, now.mapped / 12);
        EXPECT_EQ(now.mapped, memory_->backed_chunks() * memory_->options().chunk_bytes);
        EXPECT_GE(now.peak_mapped, now.mapped);
    }
    static std::uint64_t number(const void* block) {
        return reinterpret_cast<std::uint64_t>(block);
    }
    static std::string words(const Result<void>& result) {
        return result ? "it succeeded" : result.error().message();
    }

    std::shared_ptr<RecordedMemory> memory_;
    std::unique_ptr<Heap<Backing>> heap_;
};

using DeviceHeapFixture = HeapFixture<RecordedDevice>;
using HostHeapFixture = HeapFixture<RecordedHost>;

}  // namespace frostline
