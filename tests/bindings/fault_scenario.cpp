// Moves down and up through every tier, both devices, and all ways to end a pin.
#include "tests/bindings/fault_scenario.h"

#include "tests/bindings/writes_beside_copies.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

namespace frostline {
namespace {

constexpr int kAttempts = 4;

// A tier that had to close keeps what it could not give back.
bool is_empty(const Manager& manager) {
    bool empty = *manager.pins() == 0;
    for (const TierStats& tier : manager.stats().tiers) {
        // Of pinned DRAM whole pieces stay resident, and count.
        if (!tier.open || std::string_view(tier.name) == "dram") continue;
        empty &= tier.used_bytes == 0;
    }
    return empty;
}

}  // namespace

FaultScenario::FaultScenario(bool on_device) : on_device_(on_device), host_(kBytes) {
    const auto memory = [](Framework& device, CUstream stream) {
        device.use();
        return Memory{&device, stream, Framework::allocate(kBytes, stream)};
    };
    // Streams that need not be made, because the fault would strike here as well.
    memories_ = {memory(first_, nullptr), memory(second_, nullptr),
                 memory(first_, CU_STREAM_PER_THREAD)};
    first_.use();
}

FaultScenario::~FaultScenario() {
    for (const Memory& each : memories_) {
        each.device->use();
        Framework::free(each.address, each.stream);
    }
}

bool FaultScenario::in_the_end(const char* what, const std::function<Result<void>()>& call) {
    for (int i = 0; i < kAttempts; ++i) {
        const Result<void> done = call();
        if (done) return true;
        errors_.push_back(std::string(what) + ": " + done.error().message());
    }
    given_up_.push_back(errors_.back());
    return false;
}

void FaultScenario::fill(const Memory& memory, CUdeviceptr address, unsigned char value) {
    memory.device->use();
    EXPECT_EQ(FROSTLINE_EMULATED(cuMemsetD32Async)(address, value * 0x01010101U, kBytes / 4,
                                                   memory.stream),
              CUDA_SUCCESS);
}

void FaultScenario::expect_holds(const Memory& memory, CUdeviceptr address, unsigned char value,
                                 const char* what) {
    memory.device->use();
    EXPECT_EQ(FROSTLINE_EMULATED(cuMemcpyAsync)(reinterpret_cast<CUdeviceptr>(host_.data()),
                                                address, kBytes, memory.stream),
              CUDA_SUCCESS);
    EXPECT_EQ(FROSTLINE_EMULATED(cuCtxSynchronize)(), CUDA_SUCCESS);
    EXPECT_EQ(host_, std::vector<unsigned char>(kBytes, value)) << what;
}

void FaultScenario::write(PinnedTensor pin, const Memory& by, unsigned char value) const {
    if (on_device_) {
        fill(by, reinterpret_cast<CUdeviceptr>(pin.bytes().data()), value);
    } else {
        std::memset(pin.bytes().data(), value, pin.bytes().size());
    }
    pin.release_after(by.stream);
}

void FaultScenario::allocate(Manager& manager, unsigned char value) {
    (void)in_the_end("allocate", [&]() -> Result<void> {
        FROSTLINE_TRY(AllocatedTensor made, manager.allocate(kBytes));
        write(std::move(made.pin), memories_[0], value);
        tensors_.push_back({made.id, value});
        return ok();
    });
}

void FaultScenario::put(Manager& manager, unsigned char value) {
    (void)in_the_end("put", [&]() -> Result<void> {
        const std::vector<std::byte> bytes(kBytes, std::byte{value});
        FROSTLINE_TRY(const TensorId id, manager.put(bytes));
        tensors_.push_back({id, value});
        return ok();
    });
}

void FaultScenario::put_device(Manager& manager, const Memory& from, unsigned char value,
                               DeviceSource use) {
    (void)in_the_end("put_device", [&]() -> Result<void> {
        fill(from, from.address, value);
        FROSTLINE_TRY(const TensorId id, manager.put_device(reinterpret_cast<void*>(from.address),
                                                            kBytes, from.stream, use));
        tensors_.push_back({id, value});
        if (use == DeviceSource::kept) {
            (void)in_the_end("release_source",
                             [&] { return manager.release_source(id, from.stream); });
        }
        fill(from, from.address, 0xee);  // the next user of the memory
        return ok();
    });
}

void FaultScenario::rewrite(Manager& manager, Tensor& tensor, unsigned char value) {
    (void)in_the_end("pin to write", [&]() -> Result<void> {
        FROSTLINE_TRY(PinnedTensor pin, manager.pin(tensor.id, Access::write));
        write(std::move(pin), memories_[2], value);
        tensor.value = value;
        return ok();
    });
}

void FaultScenario::look_at(Manager& manager, const Tensor& tensor) {
    (void)in_the_end("pin to read", [&]() -> Result<void> {
        FROSTLINE_TRY(const PinnedTensor pin, manager.pin(tensor.id, Access::read));
        if (on_device_) {
            expect_holds(memories_[0], reinterpret_cast<CUdeviceptr>(pin.bytes().data()),
                         tensor.value, "pinned");
        } else {
            const std::vector<std::byte> expected(kBytes, std::byte{tensor.value});
            EXPECT_TRUE(std::equal(expected.begin(), expected.end(), pin.bytes().begin()));
        }
        return ok();
    });
}

// Whatever has failed, the bytes can be had.
void FaultScenario::get(Manager& manager, const Tensor& tensor) {
    EXPECT_TRUE(in_the_end("get", [&] {
        return manager.get(tensor.id, std::as_writable_bytes(std::span(host_)));
    })) << errors_.back();
    EXPECT_EQ(host_, std::vector<unsigned char>(kBytes, tensor.value)) << "got by the host";
}

void FaultScenario::get_device(Manager& manager, const Tensor& tensor, const Memory& to) {
    if (!in_the_end("get_device", [&] {
            return manager.get_device(tensor.id, reinterpret_cast<void*>(to.address), kBytes,
                                      to.stream);
        })) {
        return;
    }
    expect_holds(to, to.address, tensor.value, "got on a device");
}

void FaultScenario::store_all(Manager& manager) {
    allocate(manager, 1);
    put(manager, 2);
    put_device(manager, memories_[0], 3, DeviceSource::given_back);
    put_device(manager, memories_[1], 4, DeviceSource::given_back);
    put_device(manager, memories_[2], 5, DeviceSource::kept);
    put(manager, 6);
    allocate(manager, 7);
    put(manager, 8);
}

void FaultScenario::run(Manager& manager) {
    store_all(manager);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        if (i % 3 == 0) look_at(manager, tensors_[i]);
        if (i % 3 == 1) get_device(manager, tensors_[i], memories_[i % 2]);
        if (i % 3 == 2) {
            (void)in_the_end("prefetch", [&]() -> Result<void> {
                const Result<void> hinted = manager.prefetch(tensors_[i].id);
                // A hint may come when there is no room for it.
                if (!hinted && hinted.error().code() == Errc::no_space) return ok();
                return hinted;
            });
        }
    }
    if (kWritesBesideCopies && !tensors_.empty()) rewrite(manager, tensors_[0], 9);
    for (const Tensor& each : tensors_) get(manager, each);
    for (std::size_t i = tensors_.size(); i-- > 0;) {
        get_device(manager, tensors_[i], memories_[i % 3]);
    }
    drop_all(manager);
}

void FaultScenario::drop_all(Manager& manager) {
    for (const Tensor& each : tensors_) EXPECT_TRUE(manager.drop(each.id).has_value());
    tensors_.clear();
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!is_empty(manager) && std::chrono::steady_clock::now() < give_up) {
        std::this_thread::yield();
    }
    EXPECT_TRUE(is_empty(manager)) << "something is left, or moves for ever";
}

void FaultScenario::expect_own_context() {
    first_.use();
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    EXPECT_EQ(FROSTLINE_EMULATED(cuThreadExchangeStreamCaptureMode)(&mode), CUDA_SUCCESS);
    EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL) << "the thread's capture mode was changed";
    CUcontext current = nullptr;
    CUcontext popped = nullptr;
    EXPECT_EQ(FROSTLINE_EMULATED(cuCtxPopCurrent)(&popped), CUDA_SUCCESS);
    EXPECT_EQ(FROSTLINE_EMULATED(cuCtxGetCurrent)(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, nullptr) << "a context was left on the thread's stack";
    first_.use();
}

}  // namespace frostline
