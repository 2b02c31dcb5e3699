// Proves by the emulated driver's timeline that kernels go on working on one tensor while another
// one leaves the device: an eviction holds up nothing but those who wait for its room.
#include "bindings/manager.h"
#include "tests/bindings/environment.h"
#include "tests/tiers/emulated_gpu.h"
#include "tiers/cuda_stream.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kMi = std::uint64_t{1} << 20;
constexpr unsigned kThreads = 64;

class EvictionOverlapTest : public testing::Test {
   protected:
    void SetUp() override {
        auto opened = Manager::open(
            {.device_bytes = 4 * kMi, .dram_bytes = 16 * kMi, .pin = true, .calibrate = false});
        ASSERT_TRUE(opened.has_value()) << opened.error().message();
        manager_.emplace(*std::move(opened));
        stream_.emplace(*CudaStream::create(context_));
    }
    void TearDown() override {
        stream_.reset();
        manager_.reset();
    }
    template <class Call>
    void driver_call(const char* function, const Call& call) const {
        EXPECT_TRUE(context_->run([&] { return driver_.check(function, call()); }).has_value());
    }
    // Once over all of the tensor's first integers, and to its end.
    void add_one(CUfunction kernel, const PinnedTensor& pin) const {
        auto* data = reinterpret_cast<int*>(pin.bytes().data());
        int count = kThreads;
        std::array<void*, 2> parameters{&data, &count};
        driver_call("cuLaunchKernel", [&] {
            return driver_.cuLaunchKernel(kernel, 1, 1, 1, kThreads, 1, 1, 0, stream_->handle(),
                                          parameters.data(), nullptr);
        });
        EXPECT_TRUE(stream_->synchronize().has_value());
    }

    EnvironmentVariable library_{"FROSTLINE_CUDA_DRIVER", FROSTLINE_EMULATOR};
    // A tensor takes half a second to leave.
    EmulatedGpu gpu_{"memory=64MiB,d2h_bytes_per_s=2MiB"};
    const CudaDriver& driver_ = gpu_->driver();
    std::shared_ptr<CudaContext> context_ = gpu_->context();
    std::optional<Manager> manager_;
    std::optional<CudaStream> stream_;
};

TEST_F(EvictionOverlapTest, KernelsWorkOnOtherTensorsMeanwhile) {
    CUmodule module = nullptr;
    CUfunction kernel = nullptr;
    driver_call("cuModuleLoad",
                [&] { return driver_.cuModuleLoad(&module, FROSTLINE_EMULATOR_KERNELS); });
    driver_call("cuModuleGetFunction",
                [&] { return driver_.cuModuleGetFunction(&kernel, module, "add_one"); });
    const std::vector<std::byte> zeros(kMi);
    const auto cold = manager_->put(zeros);
    const auto hot = manager_->put(zeros);
    ASSERT_TRUE(cold.has_value() && hot.has_value());
    auto pin = manager_->pin(*hot, Access::write);
    ASSERT_TRUE(pin.has_value()) << pin.error().message();

    std::atomic<bool> over{false};
    int launched = 0;
    std::thread training([&] {
        while (!over) {
            add_one(kernel, *pin);
            ++launched;
        }
    });
    // More than there is room for: the cold tensor has to leave.
    std::vector<TensorId> more;
    for (int i = 0; i < 3; ++i) {
        const auto id = manager_->put(zeros);
        EXPECT_TRUE(id.has_value());
        if (id) more.push_back(*id);
    }
    over = true;
    training.join();
    pin->release_after(stream_->handle());

    std::vector<std::byte> bytes(kMi);
    EXPECT_TRUE(manager_->get(*hot, bytes).has_value());
    int first = 0;
    std::memcpy(&first, bytes.data(), sizeof first);
    EXPECT_EQ(first, launched);

    const auto timeline = gpu_->timeline();
    const auto eviction = std::find_if(timeline.begin(), timeline.end(), [](const auto& each) {
        return each.kind == FROSTLINE_EMULATOR_COPY_D2H;
    });
    ASSERT_NE(eviction, timeline.end()) << "nothing was evicted";
    const auto within = std::count_if(timeline.begin(), timeline.end(), [&](const auto& each) {
        return each.kind == FROSTLINE_EMULATOR_KERNEL && each.start_ns >= eviction->start_ns &&
               each.end_ns <= eviction->end_ns;
    });
    EXPECT_GE(eviction->end_ns - eviction->start_ns, 400'000'000U);
    EXPECT_GE(within, 10) << "kernels ran while the tensor left";

    for (const TensorId id : more) EXPECT_TRUE(manager_->drop(id).has_value());
    driver_call("cuModuleUnload", [&] { return driver_.cuModuleUnload(module); });
}

}  // namespace
}  // namespace frostline
