// Copies from and to the host wait for their end: the host's memory is not pinned, and the little
// that is copied in a step (a batch, its losses) is copied when the stream is or becomes idle.
#include "bench/train/gpu.h"

#include "bench/train/launches.h"

#include <array>

namespace frostline::train {

Result<std::unique_ptr<Gpu>> Gpu::create(const CudaDriver& driver, int device,
                                         const std::string& module) {
    FROSTLINE_TRY_VOID(
        driver.need({CudaFeature::contexts, CudaFeature::streams, CudaFeature::kernels}));
    FROSTLINE_TRY(auto context, CudaContext::create(driver, device));
    std::unique_ptr<Gpu> gpu(new Gpu(std::move(context)));
    FROSTLINE_TRY_VOID(gpu->context_->run([&] { return gpu->load(module); }));
    return gpu;
}

Result<void> Gpu::load(const std::string& module) {
    FROSTLINE_TRY_VOID(driver().check("cuStreamCreate",
                                      driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING)));
    if (const auto loaded =
            driver().check("cuModuleLoad", driver().cuModuleLoad(&module_, module.c_str()));
        !loaded) {
        return Error(loaded.error().code(), 0, "cannot load the kernels {}: {}", module,
                     loaded.error().message());
    }
    for (const char* name : kKernelNames) {
        CUfunction function = nullptr;
        const auto found = driver().check("cuModuleGetFunction",
                                          driver().cuModuleGetFunction(&function, module_, name));
        if (!found) {
            return Error(Errc::unsupported, 0, "{} is not of this build, without a kernel {}: {}",
                         module, name, found.error().message());
        }
        kernels_.emplace(name, function);
    }
    return ok();
}

Gpu::~Gpu() {
    const CudaContext::Scope scope(*context_);
    if (!scope.entered()) return;
    if (stream_ != nullptr) {
        (void)synchronise();
        (void)driver().cuStreamDestroy(stream_);
    }
    if (module_ != nullptr) (void)driver().cuModuleUnload(module_);
}

Result<void> Gpu::synchronise() const {
    return driver().check("cuStreamSynchronize", driver().cuStreamSynchronize(stream_));
}

Result<DeviceAddress> Gpu::allocate(std::uint64_t size_bytes) {
    CUdeviceptr address = 0;
    FROSTLINE_TRY_VOID(context_->run(
        [&] { return driver().check("cuMemAlloc", driver().cuMemAlloc(&address, size_bytes)); }));
    return DeviceAddress{address};
}

void Gpu::release(DeviceAddress address) noexcept {
    (void)context_->run([&]() -> Result<void> {
        (void)synchronise();
        return driver().check("cuMemFree", driver().cuMemFree(address));
    });
}

Result<void> Gpu::launch(const char* kernel, const LaunchShape& shape,
                         std::span<const std::byte> arguments) {
    const auto found = kernels_.find(kernel);
    if (found == kernels_.end()) {
        return Error(Errc::invalid_argument, 0, "no kernel {}", kernel);
    }
    // The driver takes pointers to writable arguments, and copies them before it returns.
    std::array<void*, 1> parameters{const_cast<std::byte*>(arguments.data())};
    return context_->run([&] {
        return driver().check(
            kernel, driver().cuLaunchKernel(found->second, shape.grid.x, shape.grid.y, shape.grid.z,
                                            shape.block.x, shape.block.y, shape.block.z, 0, stream_,
                                            parameters.data(), nullptr));
    });
}

Result<void> Gpu::upload(DeviceAddress to, std::span<const std::byte> from) {
    return context_->run([&]() -> Result<void> {
        FROSTLINE_TRY_VOID(
            driver().check("cuMemcpyHtoDAsync",
                           driver().cuMemcpyHtoDAsync(to, from.data(), from.size(), stream_)));
        return synchronise();
    });
}

Result<void> Gpu::download(std::span<std::byte> to, DeviceAddress from) {
    return context_->run([&]() -> Result<void> {
        FROSTLINE_TRY_VOID(driver().check(
            "cuMemcpyDtoHAsync", driver().cuMemcpyDtoHAsync(to.data(), from, to.size(), stream_)));
        return synchronise();
    });
}

Result<void> Gpu::clear(DeviceAddress address, std::uint64_t size_bytes) {
    return context_->run([&] {
        return driver().check("cuMemsetD8Async",
                              driver().cuMemsetD8Async(address, 0, size_bytes, stream_));
    });
}

Result<std::string> Gpu::name() const {
    std::array<char, 256> name{};
    FROSTLINE_TRY_VOID(driver().check(
        "cuDeviceGetName",
        driver().cuDeviceGetName(name.data(), static_cast<int>(name.size()), context_->handle())));
    return std::string(name.data());
}

}  // namespace frostline::train
