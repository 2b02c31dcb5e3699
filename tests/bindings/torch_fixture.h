// PyTorch's side of a pluggable allocator, as far as tests need one: an emulated machine, an
// allocator on it with the settings that a test names, and streams.
#pragma once

#include "bindings/torch/torch_allocator.h"
#include "tests/bindings/environment.h"
#include "tests/bindings/framework.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

namespace frostline {

/// The allocator ends before the machine, which then reports what was leaked.
class TorchMachine {
   public:
    static constexpr std::uint64_t kChunk = std::uint64_t{2} << 20;

    explicit TorchMachine(const std::string& settings, const std::string& budget = "32MiB")
        : gpu_(settings), allocator_(std::make_unique<TorchAllocator>()) {
        EXPECT_TRUE(allocator_->configure(budget.c_str(), "2MiB").has_value());
    }

    TorchAllocator& allocator() { return *allocator_; }
    TorchDevice& device(int number = 0) { return **allocator_->device(number); }
    Emulator& emulator() { return Emulator::get(); }
    CUstream stream() { return framework_.stream(); }

    CUdeviceptr allocate(std::uint64_t size_bytes, CUstream stream, int device = 0) {
        const auto block =
            allocator_->allocate(static_cast<std::int64_t>(size_bytes), device, stream);
        EXPECT_TRUE(block.has_value()) << block.error().message();
        return block ? reinterpret_cast<CUdeviceptr>(*block) : 0;
    }
    Errc refused(std::uint64_t size_bytes, CUstream stream) {
        const auto block = allocator_->allocate(static_cast<std::int64_t>(size_bytes), 0, stream);
        EXPECT_FALSE(block.has_value());
        return block ? Errc::cancelled : block.error().code();
    }
    void free(CUdeviceptr block, std::uint64_t size_bytes, int device = 0) {
        const auto freed = allocator_->free(reinterpret_cast<void*>(block), size_bytes, device);
        EXPECT_TRUE(freed.has_value()) << freed.error().message();
    }

   private:
    EmulatedGpu gpu_;
    EnvironmentVariable driver_{"FROSTLINE_CUDA_DRIVER", FROSTLINE_EMULATOR};
    Framework framework_;
    std::unique_ptr<TorchAllocator> allocator_;  // ends first: it waits for the streams
};

}  // namespace frostline
