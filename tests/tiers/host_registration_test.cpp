// Proves that host memory is registered in pieces that the driver takes, or not at all, and that
// the caller's CUDA context, capture mode and capture are untouched. On the emulated driver, which
// reports whatever is misused, and is asked what it has registered.
#include "tiers/host_registration.h"
#include "tests/tiers/allocation_faults.h"
#include "tests/tiers/emulated_gpu.h"
#include "tests/tiers/registered_memory.h"
#include "tiers/cuda_stream.h"
#include "tiers/page.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// The caller has another device current, and a capture mode of its own.
class HostRegistrationTest : public testing::Test {
   protected:
    HostRegistrationTest() {
        void* const mapped = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        memory_ = {static_cast<std::byte*>(mapped), kBytes};
        EXPECT_EQ(gpu_->driver().cuCtxPushCurrent(callers_->context()), CUDA_SUCCESS);
        CUstreamCaptureMode mode = kCallersMode;
        EXPECT_EQ(gpu_->driver().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
        callers_former_mode_ = mode;
    }
    ~HostRegistrationTest() override {
        CUstreamCaptureMode mode = callers_former_mode_;
        EXPECT_EQ(gpu_->driver().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
        EXPECT_EQ(mode, kCallersMode);
        CUcontext popped = nullptr;
        EXPECT_EQ(gpu_->driver().cuCtxPopCurrent(&popped), CUDA_SUCCESS);
        EXPECT_EQ(popped, callers_->context());
        ::munmap(memory_.data(), memory_.size());
    }
    std::unique_ptr<HostRegistration> registration(std::uint64_t chunk_bytes) const {
        auto made = HostRegistration::create({.context = context_, .chunk_bytes = chunk_bytes});
        if (!made) {
            ADD_FAILURE() << made.error().message();
            std::abort();
        }
        return *std::move(made);
    }
    std::vector<RegisteredPiece> registered() const {
        return registered_pieces(gpu_->driver(), memory_);
    }
    std::uint64_t calls() const { return gpu_->calls("cuMemHostRegister"); }

    static constexpr std::uint64_t kBytes = 64 * kMiB;
    static constexpr CUstreamCaptureMode kCallersMode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    EmulatedGpu gpu_{"memory=16MiB,devices=2"};
    std::shared_ptr<CudaContext> context_ = gpu_->context();
    std::shared_ptr<CudaContext> callers_ = gpu_->context(1);
    CUstreamCaptureMode callers_former_mode_{};
    std::span<std::byte> memory_;
};

TEST_F(HostRegistrationTest, MemoryIsRegisteredInChunks) {
    const auto pins = registration(16 * kMiB);
    ASSERT_TRUE(pins->add(memory_.first(40 * kMiB)).has_value());
    const auto expect_piece = [&](const std::byte* address, std::uint64_t bytes, bool registered) {
        const HostRegistration::Piece piece = pins->piece_from(address);
        EXPECT_EQ(piece.size_bytes, bytes);
        EXPECT_EQ(piece.registered, registered);
    };
    expect_piece(memory_.data(), 16 * kMiB, true);
    expect_piece(&memory_[32 * kMiB - 1], 1, true);
    expect_piece(&memory_[39 * kMiB], kMiB, true);
    expect_piece(&memory_[40 * kMiB], UINT64_MAX, false);
    expect_piece(memory_.data() - 1, 1, false);
    EXPECT_EQ(calls(), 3U);
    const auto pieces = registered();
    ASSERT_EQ(pieces.size(), 3U);
    for (const RegisteredPiece& each : pieces) EXPECT_EQ(each.context, context_->context());
    EXPECT_EQ(registered_bytes(gpu_->driver(), memory_), 40 * kMiB);
    EXPECT_EQ(pins->registered_bytes(), 40 * kMiB);
    ASSERT_TRUE(pins->add(memory_.subspan(40 * kMiB, kPageBytes)).has_value());
    ASSERT_TRUE(pins->remove(memory_.first(40 * kMiB)).has_value());
    EXPECT_EQ(pins->registered_bytes(), kPageBytes) << "only what was asked for";
    ASSERT_TRUE(pins->remove(memory_).has_value());
    EXPECT_TRUE(registered().empty());
}

TEST_F(HostRegistrationTest, WhatShallBeOnePieceIsOneOrNone) {
    const auto pins = registration(2 * kMiB);
    ASSERT_TRUE(pins->add_whole(memory_.first(12 * kMiB)).has_value());
    EXPECT_EQ(registered().size(), 1U);
    EXPECT_EQ(pins->piece_from(memory_.data()).size_bytes, 12 * kMiB);
    gpu_->plant_fault("cuMemHostRegister", 1, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_FALSE(pins->add_whole(memory_.subspan(12 * kMiB, 8 * kMiB)).has_value());
    EXPECT_EQ(registered().size(), 1U) << "halves would not do";
    EXPECT_EQ(pins->registered_bytes(), 12 * kMiB);
    ASSERT_TRUE(pins->remove(memory_.first(12 * kMiB)).has_value());
    EXPECT_TRUE(registered().empty());
}

TEST_F(HostRegistrationTest, ItsEndUnregistersWhatIsLeft) {
    auto pins = registration(2 * kMiB);
    ASSERT_TRUE(pins->add(memory_.first(5 * kMiB)).has_value());
    EXPECT_EQ(registered().size(), 3U);
    pins.reset();
    EXPECT_TRUE(registered().empty());
}

// A stream of the same thread, captured in the mode that forbids the most.
TEST_F(HostRegistrationTest, ACaptureOfTheCallersIsNotDisturbed) {
    const CudaStream stream = *CudaStream::create(callers_);
    ASSERT_EQ(
        FROSTLINE_EMULATED(cuStreamBeginCapture)(stream.handle(), CU_STREAM_CAPTURE_MODE_GLOBAL),
        CUDA_SUCCESS);
    auto pins = registration(2 * kMiB);
    ASSERT_TRUE(pins->add(memory_.first(8 * kMiB)).has_value());
    ASSERT_TRUE(pins->remove(memory_.first(4 * kMiB)).has_value());
    gpu_->plant_fault("cuMemHostRegister", 2, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_FALSE(pins->add(memory_.first(4 * kMiB)).has_value());
    pins.reset();
    CUgraph graph = nullptr;
    ASSERT_EQ(FROSTLINE_EMULATED(cuStreamEndCapture)(stream.handle(), &graph), CUDA_SUCCESS);
    EXPECT_EQ(FROSTLINE_EMULATED(cuGraphDestroy)(graph), CUDA_SUCCESS);
}

TEST_F(HostRegistrationTest, WhatIsTooMuchAtOnceIsTriedInHalves) {
    const auto pins = registration(64 * kMiB);
    gpu_->limit_registration(8 * kMiB);
    ASSERT_TRUE(pins->add(memory_).has_value());
    EXPECT_EQ(registered().size(), 8U);
    EXPECT_EQ(calls(), 3U + 8) << "what was learnt is not tried again";
}

TEST_F(HostRegistrationTest, ARefusalOfEverythingLeavesNothing) {
    const auto pins = registration(64 * kMiB);
    gpu_->limit_registration(1);
    const auto refused = pins->add(memory_);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Errc::no_space);
    EXPECT_NE(std::string(refused.error().message()).find("cuMemHostRegister"), std::string::npos);
    EXPECT_EQ(calls(), 6U) << "64, 32, 16, 8, 4 and 2 MiB";
    EXPECT_EQ(pins->registered_bytes(), 0U);
}

TEST_F(HostRegistrationTest, ARefusalOfOnePieceTakesBackTheOthers) {
    for (unsigned nth = 1; nth <= 4; ++nth) {
        const auto pins = registration(2 * kMiB);
        gpu_->plant_fault("cuMemHostRegister", nth, CUDA_ERROR_OUT_OF_MEMORY);
        EXPECT_FALSE(pins->add(memory_.first(8 * kMiB)).has_value());
        EXPECT_TRUE(registered().empty()) << "refused at " << nth;
        EXPECT_TRUE(pins->add(memory_.first(8 * kMiB)).has_value()) << "the next try may work";
    }
}

TEST_F(HostRegistrationTest, WhatCannotBeUnregisteredIsKeptInTheBooks) {
    const auto pins = registration(2 * kMiB);
    ASSERT_TRUE(pins->add(memory_.first(6 * kMiB)).has_value());
    gpu_->plant_fault("cuMemHostUnregister", 1, CUDA_ERROR_UNKNOWN);
    EXPECT_FALSE(pins->remove(memory_).has_value());
    EXPECT_EQ(pins->registered_bytes(), 2 * kMiB) << "the others went";
    EXPECT_EQ(registered().size(), 1U);
    EXPECT_TRUE(pins->remove(memory_).has_value());
    EXPECT_EQ(pins->registered_bytes(), 0U);
}

TEST_F(HostRegistrationTest, AContextThatCannotBeMadeCurrentIsAnError) {
    const auto pins = registration(64 * kMiB);
    for (const char* function : {"cuCtxPushCurrent", "cuThreadExchangeStreamCaptureMode"}) {
        // Asked for once for each size that is tried.
        for (unsigned nth = 1; nth <= 6; ++nth) {
            gpu_->plant_fault(function, nth, CUDA_ERROR_INVALID_CONTEXT);
        }
        const auto refused = pins->add(memory_);
        ASSERT_FALSE(refused.has_value());
        EXPECT_NE(std::string(refused.error().message()).find(function), std::string::npos);
    }
    EXPECT_EQ(calls(), 0U);
}

TEST_F(HostRegistrationTest, MemoryThatRunsOutIsAnErrorAndNothingIsRegistered) {
    const auto pins = registration(2 * kMiB);
    spare_allocations_of(reinterpret_cast<const void*>(gpu_->driver().cuInit));
    for (std::uint64_t nth = 1; nth < 20; ++nth) {
        bool struck = false;
        bool added = false;
        {
            const AllocationFault fault(nth, true);
            added = pins->add(memory_.first(6 * kMiB)).has_value();
            struck = fault.struck();
        }
        EXPECT_EQ(pins->registered_bytes(), added ? 6 * kMiB : 0);
        EXPECT_TRUE(pins->remove(memory_).has_value());
        if (!struck) return;
    }
    ADD_FAILURE() << "a registration allocates without end";
}

TEST_F(HostRegistrationTest, WhatCannotWorkIsRefusedAtTheStart) {
    for (const std::uint64_t chunk : {std::uint64_t{0}, kMiB, 3 * kMiB}) {
        const auto made = HostRegistration::create({.context = context_, .chunk_bytes = chunk});
        EXPECT_EQ(made.error().code(), Errc::invalid_argument);
    }
    for (const int device : {-1, 2}) {
        EXPECT_EQ(CudaContext::create(gpu_->driver(), device).error().code(),
                  Errc::invalid_argument);
    }
}

TEST_F(HostRegistrationTest, ADriverWithoutTheFunctionsWorksOtherwiseAndNamesOne) {
    CudaDriver old = gpu_->driver();
    old.cuMemHostRegister = nullptr;
    {
        const std::shared_ptr<CudaContext> context = *CudaContext::create(old, 0);
        const auto made = HostRegistration::create({.context = context});
        ASSERT_FALSE(made.has_value());
        EXPECT_EQ(made.error().code(), Errc::unsupported);
        EXPECT_NE(std::string(made.error().message()).find("cuMemHostRegister"), std::string::npos);
    }
    old.cuDevicePrimaryCtxRetain = nullptr;
    EXPECT_EQ(*old.version(), 13000);
    EXPECT_EQ(old.devices()->size(), 2U);
    const auto made = CudaContext::create(old, 0);
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code(), Errc::unsupported);
    EXPECT_NE(std::string(made.error().message()).find("cuDevicePrimaryCtx"), std::string::npos);
}

}  // namespace
}  // namespace frostline
