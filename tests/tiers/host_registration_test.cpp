// Proves that host memory is registered in pieces that the driver takes, or not at all, and that
// the caller's CUDA context and capture mode are untouched. The driver is a fake.
#include "tests/tiers/allocation_faults.h"
#include "tests/tiers/fake_cuda.h"
#include "tiers/page.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace frostline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class HostRegistrationTest : public testing::Test {
   protected:
    HostRegistrationTest() {
        void* const mapped = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        memory_ = {static_cast<std::byte*>(mapped), kBytes};
        cuda_.state().current_context = &callers_context_;
    }
    ~HostRegistrationTest() override {
        EXPECT_EQ(cuda_.state().current_context, &callers_context_);
        EXPECT_EQ(cuda_.state().capture_mode, 0);
        cuda_.expect_clean();
        ::munmap(memory_.data(), memory_.size());
    }

    static constexpr std::uint64_t kBytes = 64 * kMiB;
    FakeCuda cuda_;
    char callers_context_ = 0;
    std::span<std::byte> memory_;
};

TEST_F(HostRegistrationTest, MemoryIsRegisteredInChunks) {
    const auto pins = cuda_.registration(16 * kMiB);
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
    EXPECT_EQ(cuda_.state().registrations, 3);
    EXPECT_EQ(cuda_.registered_bytes(), 40 * kMiB);
    EXPECT_EQ(pins->registered_bytes(), 40 * kMiB);
    ASSERT_TRUE(pins->add(memory_.subspan(40 * kMiB, kPageBytes)).has_value());
    ASSERT_TRUE(pins->remove(memory_.first(40 * kMiB)).has_value());
    EXPECT_EQ(pins->registered_bytes(), kPageBytes) << "only what was asked for";
    ASSERT_TRUE(pins->remove(memory_).has_value());
    EXPECT_EQ(cuda_.state().registered.size(), 0U);
}

TEST_F(HostRegistrationTest, ItsEndUnregistersWhatIsLeft) {
    const auto pins = cuda_.registration(2 * kMiB);
    ASSERT_TRUE(pins->add(memory_.first(5 * kMiB)).has_value());
    EXPECT_EQ(cuda_.state().registered.size(), 3U);
    EXPECT_EQ(cuda_.state().primary_retained, 1);
}

TEST_F(HostRegistrationTest, WhatIsTooMuchAtOnceIsTriedInHalves) {
    const auto pins = cuda_.registration(64 * kMiB);
    cuda_.state().refuse_registrations_above = 8 * kMiB;
    ASSERT_TRUE(pins->add(memory_).has_value());
    EXPECT_EQ(cuda_.state().registered.size(), 8U);
    EXPECT_EQ(cuda_.state().registrations, 3 + 8) << "what was learnt is not tried again";
}

TEST_F(HostRegistrationTest, ARefusalOfEverythingLeavesNothing) {
    const auto pins = cuda_.registration(64 * kMiB);
    cuda_.state().refuse_registrations_above = 0;
    const auto refused = pins->add(memory_);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Errc::no_space);
    EXPECT_NE(std::string(refused.error().message()).find("cuMemHostRegister"), std::string::npos);
    EXPECT_EQ(cuda_.state().registrations, 6) << "64, 32, 16, 8, 4 and 2 MiB";
    EXPECT_EQ(pins->registered_bytes(), 0U);
}

TEST_F(HostRegistrationTest, ARefusalOfOnePieceTakesBackTheOthers) {
    for (int nth = 1; nth <= 4; ++nth) {
        const auto pins = cuda_.registration(2 * kMiB);
        cuda_.state().registrations = 0;
        cuda_.state().refuse_registration_from = nth;
        EXPECT_FALSE(pins->add(memory_.first(8 * kMiB)).has_value());
        EXPECT_TRUE(cuda_.state().registered.empty()) << "refused from " << nth;
        cuda_.state().refuse_registration_from = 0;
        EXPECT_TRUE(pins->add(memory_.first(8 * kMiB)).has_value()) << "the next try may work";
    }
}

TEST_F(HostRegistrationTest, WhatCannotBeUnregisteredIsKeptInTheBooks) {
    const auto pins = cuda_.registration(2 * kMiB);
    ASSERT_TRUE(pins->add(memory_.first(6 * kMiB)).has_value());
    cuda_.state().refuse_unregistrations = 1;
    EXPECT_FALSE(pins->remove(memory_).has_value());
    EXPECT_EQ(pins->registered_bytes(), 2 * kMiB) << "the others went";
    EXPECT_TRUE(pins->remove(memory_).has_value());
    EXPECT_EQ(pins->registered_bytes(), 0U);
}

TEST_F(HostRegistrationTest, AContextThatCannotBeMadeCurrentIsAnError) {
    const auto pins = cuda_.registration();
    cuda_.state().refuse_push = 1;
    EXPECT_FALSE(pins->add(memory_).has_value());
    cuda_.state().refuse_push = 0;
    EXPECT_EQ(cuda_.state().registrations, 0);
}

TEST_F(HostRegistrationTest, MemoryThatRunsOutIsAnErrorAndNothingIsRegistered) {
    const auto pins = cuda_.registration(2 * kMiB);
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
    const auto context = cuda_.context();
    for (const std::uint64_t chunk : {std::uint64_t{0}, kMiB, 3 * kMiB}) {
        const auto made = HostRegistration::create({.context = context, .chunk_bytes = chunk});
        EXPECT_EQ(made.error().code(), Errc::invalid_argument);
    }
    for (const int device : {-1, 1}) {
        EXPECT_EQ(CudaContext::create(cuda_.driver(), device).error().code(),
                  Errc::invalid_argument);
    }
}

TEST_F(HostRegistrationTest, ADriverWithoutTheFunctionsWorksOtherwiseAndNamesOne) {
    const auto old = CudaDriver::load(FROSTLINE_OLD_FAKE_CUDA);
    ASSERT_TRUE(old.has_value()) << old.error().message();
    EXPECT_EQ(*old->version(), 12040);
    EXPECT_EQ(old->devices()->size(), 1U);
    const auto made = CudaContext::create(*old, 0);
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code(), Errc::unsupported);
    EXPECT_NE(std::string(made.error().message()).find("cuDevicePrimaryCtx"), std::string::npos);
}

}  // namespace
}  // namespace frostline
