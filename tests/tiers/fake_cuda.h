// A CUDA driver for tests: the fake library, its books, and what a tier needs to be pinned with it.
#pragma once

#include "tests/tiers/fake_driver/fake_cuda_state.h"
#include "tiers/cuda_driver.h"
#include "tiers/host_registration.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace frostline {

/// One process has one fake driver: a new object starts its books afresh.
class FakeCuda {
   public:
    FakeCuda() : driver_(load()), state_(find_state()) { *state_ = FakeCudaState{}; }
    FakeCuda(const FakeCuda&) = delete;
    FakeCuda& operator=(const FakeCuda&) = delete;

    const CudaDriver& driver() const { return driver_; }
    FakeCudaState& state() const { return *state_; }
    std::uint64_t registered_bytes() const {
        std::uint64_t bytes = 0;
        for (const auto& [address, size] : state_->registered) bytes += size;
        return bytes;
    }
    std::shared_ptr<CudaContext> context() const {
        auto made = CudaContext::create(driver_, 0);
        if (!made) {
            ADD_FAILURE() << made.error().message();
            std::abort();
        }
        return *std::move(made);
    }
    std::unique_ptr<HostRegistration> registration(std::uint64_t chunk_bytes = std::uint64_t{64}
                                                                               << 20) const {
        auto made = HostRegistration::create({.context = context(), .chunk_bytes = chunk_bytes});
        if (!made) {
            ADD_FAILURE() << made.error().message();
            std::abort();
        }
        return *std::move(made);
    }
    /// Whether the driver was used as it must be, and nothing of it is left.
    void expect_clean() const {
        EXPECT_EQ(state_->bad_calls, 0);
        EXPECT_EQ(state_->calls_without_context, 0);
        EXPECT_EQ(state_->calls_unsafe_in_capture, 0);
        EXPECT_EQ(state_->primary_retained, 0);
        EXPECT_TRUE(state_->registered.empty());
    }

   private:
    static CudaDriver load() {
        auto driver = CudaDriver::load(FROSTLINE_FAKE_CUDA);
        if (!driver) {
            ADD_FAILURE() << driver.error().message();
            std::abort();
        }
        return *std::move(driver);
    }
    static FakeCudaState* find_state() {
        void* const library = dlopen(FROSTLINE_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
        using GetState = FakeCudaState* (*)();
        return reinterpret_cast<GetState>(dlsym(library, "fake_cuda_state"))();
    }

    CudaDriver driver_;
    FakeCudaState* state_;
};

}  // namespace frostline
