// Proves with content, on the emulated driver, that a stream may be destroyed while its work is
// queued, if the heap has forgotten it: nothing is overwritten under that work, and the driver is
// asked nothing about it any more. And that without that nothing is lost for good.
#include "tests/allocator/device_heap_fixture.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>

namespace frostline {
namespace {

class DeviceHeapForget : public DeviceHeapTest {
   protected:
    bool says(const Error& error, const std::string& words) {
        return std::strstr(error.message(), words.c_str()) != nullptr;
    }
    std::string name_of(StreamHandle stream) { return fmt::format("stream {:#x}", stream); }

    std::optional<CudaStream> first_ = make_stream();
    const CudaStream second_ = make_stream();
    const StreamHandle one_ = handle_of(*first_);
    const StreamHandle two_ = handle_of(second_);
};

TEST_F(DeviceHeapForget, TheWorkOfAForgottenStreamIsDoneBeforeItsMemoryIsUsedAgain) {
    const auto heap = make_heap(8 * kMiB);
    const HostLanding landing(context_, 8 * kMiB);
    StreamGate gate;
    void* const freed = must_allocate(*heap, 4 * kMiB, one_);
    void* const living = must_allocate(*heap, 4 * kMiB, one_);
    gate.shut(*context_, first_->handle());
    fill(freed, 4 * kMiB, 1, first_->handle());
    fill(living, 4 * kMiB, 2, first_->handle());
    read(freed, landing.bytes().subspan(0, 4 * kMiB), first_->handle());
    read(living, landing.bytes().subspan(4 * kMiB), first_->handle());
    must_free(*heap, freed);
    expect_ok(heap->forget_stream(one_));
    first_.reset();
    EXPECT_EQ(gpu_->misuse(), "");
    must_free(*heap, living);
    void* const next = must_allocate(*heap, 8 * kMiB, two_);  // waits on the device
    fill(next, 8 * kMiB, 3, second_.handle());
    gate.open();
    finish(second_.handle());
    EXPECT_TRUE(all_are(landing.bytes().subspan(0, 4 * kMiB), 1));
    EXPECT_TRUE(all_are(landing.bytes().subspan(4 * kMiB), 2));
    EXPECT_TRUE(all_are(content(next, 8 * kMiB), 3));
    must_free(*heap, next);
}

TEST_F(DeviceHeapForget, AStreamThatWasDestroyedFirstIsNamedAndForgottenAfterTheDeviceIsDone) {
    const auto heap = make_heap(4 * kMiB);
    const HostLanding landing(context_, 4 * kMiB);
    StreamGate gate;
    void* const block = must_allocate(*heap, 4 * kMiB, one_);
    gate.shut(*context_, first_->handle());
    fill(block, 4 * kMiB, 1, first_->handle());
    read(block, landing.bytes(), first_->handle());
    must_free(*heap, block);
    first_.reset();
    const auto refused = heap->allocate(4 * kMiB, two_);
    ASSERT_FALSE(refused.has_value()) << "the stream may still use it, and nothing tells";
    EXPECT_EQ(refused.error().code(), Errc::no_space);
    EXPECT_TRUE(says(refused.error(), name_of(one_) + " was destroyed"))
        << refused.error().message();
    EXPECT_TRUE(says(refused.error(), "call forget_stream()")) << refused.error().message();
    EXPECT_NE(gpu_->misuse(), "") << "the emulated driver has not noticed";
    gpu_->clear_misuse();
    gate.open();
    expect_ok(heap->forget_stream(one_));
    EXPECT_TRUE(all_are(landing.bytes(), 1)) << "the device was not waited for";
    void* const next = must_allocate(*heap, 4 * kMiB, two_);
    fill(next, 4 * kMiB, 2, second_.handle());
    finish(second_.handle());
    EXPECT_EQ(gpu_->misuse(), "") << "the driver was asked about it again";
    must_free(*heap, next);
    const auto late = heap->allocate(4 * kMiB, one_);
    ASSERT_FALSE(late.has_value());
    EXPECT_TRUE(says(late.error(), "it was destroyed")) << late.error().message();
    gpu_->clear_misuse();
}

// A driver may say it in its own ways; the stream itself is there still.
TEST_F(DeviceHeapForget, WhicheverCallSaysThatAStreamWasDestroyedItIsBelieved) {
    for (const char* const function : {"cuStreamIsCapturing", "cuEventRecord"}) {
        for (const CUresult answer : {CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_CONTEXT_IS_DESTROYED}) {
            SCOPED_TRACE(std::string(function) + " " + std::to_string(answer));
            const auto heap = make_heap(4 * kMiB);
            must_free(*heap, must_allocate(*heap, 4 * kMiB, one_));
            gpu_->plant_fault(function, 1, answer);
            const auto refused = heap->allocate(4 * kMiB, two_);
            ASSERT_FALSE(refused.has_value());
            EXPECT_TRUE(says(refused.error(), name_of(one_))) << refused.error().message();
            const std::uint64_t waited = gpu_->calls("cuCtxSynchronize");
            expect_ok(heap->forget_stream(one_));
            EXPECT_EQ(gpu_->calls("cuCtxSynchronize"), waited + 1);
            must_free(*heap, must_allocate(*heap, 4 * kMiB, two_));
        }
    }
}

// The memory is not lost where the driver does not wait either: the next call gets it.
TEST_F(DeviceHeapForget, ADriverThatDoesNotWaitIsAskedAgain) {
    const auto heap = make_heap(4 * kMiB);
    must_free(*heap, must_allocate(*heap, 4 * kMiB, one_));
    gpu_->plant_fault("cuEventRecord", 1, CUDA_ERROR_INVALID_HANDLE);
    gpu_->plant_fault("cuCtxSynchronize", 1, CUDA_ERROR_UNKNOWN);
    EXPECT_FALSE(heap->forget_stream(one_).has_value());
    EXPECT_FALSE(heap->allocate(4 * kMiB, two_).has_value());
    expect_ok(heap->forget_stream(one_));
    must_free(*heap, must_allocate(*heap, 4 * kMiB, two_));
}

TEST_F(DeviceHeapForget, TheHeapsEndWaitsForADestroyedStream) {
    auto heap = make_heap(4 * kMiB);
    const HostLanding landing(context_, 4 * kMiB);
    StreamGate gate;
    void* const block = must_allocate(*heap, 4 * kMiB, one_);
    gate.shut(*context_, first_->handle());
    fill(block, 4 * kMiB, 1, first_->handle());
    read(block, landing.bytes(), first_->handle());
    must_free(*heap, block);
    first_.reset();
    gate.open();
    heap.reset();  // the emulated driver reports memory that is unmapped under work
    EXPECT_TRUE(all_are(landing.bytes(), 1));
    EXPECT_EQ(gpu_->misuse().find("unmap"), std::string::npos) << gpu_->misuse();
    gpu_->clear_misuse();
}

TEST_F(DeviceHeapForget, AStreamOfAPeerIsForgottenInItsOwnContext) {
    std::optional<CudaStream> foreign = make_stream(1);
    auto made = make_device_heap({.context = context_, .capacity_bytes = 8 * kMiB, .peers = {1}});
    ASSERT_TRUE(made.has_value()) << made.error().message();
    DeviceHeap& heap = **made;
    void* const used = must_allocate(heap, 4 * kMiB, one_);
    expect_ok(heap.record_stream(used, handle_of(*foreign)));
    expect_ok(heap.forget_stream(handle_of(*foreign)));
    foreign.reset();
    must_free(heap, used);
    ASSERT_TRUE(heap.trim(true).has_value());
    EXPECT_EQ(heap.statistics().pending, 0U);

    // And without that: its device is waited for, too.
    foreign = make_stream(1);
    void* const again = must_allocate(heap, 4 * kMiB, one_);
    const StreamHandle handle = handle_of(*foreign);
    expect_ok(heap.record_stream(again, handle));
    foreign.reset();
    must_free(heap, again);
    EXPECT_EQ(heap.statistics().pending, 4 * kMiB);
    gpu_->clear_misuse();
    expect_ok(heap.forget_stream(handle));
    ASSERT_TRUE(heap.trim(true).has_value());
    EXPECT_EQ(heap.statistics().pending, 0U);
}

}  // namespace
}  // namespace frostline
