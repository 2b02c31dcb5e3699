// One GPU through the driver API: a context, a stream, and the module of kernels. Everything that
// the trainer does on a device goes through here, in the order of that one stream.
#pragma once

#include "bench/train/device.h"
#include "tiers/cuda_context.h"

#include <cuda.h>

#include <memory>
#include <string>
#include <unordered_map>

namespace frostline::train {

class Gpu final : public Device {
   public:
    /// The `device`-th GPU of the driver, which outlives this. `module` is a file that the driver
    /// loads; it must have every kernel of kKernelNames. Errors: those of the driver, and
    /// unsupported if a function or a kernel is missing.
    static Result<std::unique_ptr<Gpu>> create(const CudaDriver& driver, int device,
                                               const std::string& module);
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;
    ~Gpu() override;

    Result<DeviceAddress> allocate(std::uint64_t size_bytes) override;
    void release(DeviceAddress address) noexcept override;
    Result<void> launch(const char* kernel, const LaunchShape& shape,
                        std::span<const std::byte> arguments) override;
    Result<void> upload(DeviceAddress to, std::span<const std::byte> from) override;
    Result<void> download(std::span<std::byte> to, DeviceAddress from) override;
    Result<void> clear(DeviceAddress address, std::uint64_t size_bytes) override;

    const std::shared_ptr<CudaContext>& context() const noexcept { return context_; }
    CUstream stream() const noexcept { return stream_; }
    /// As the driver names it.
    Result<std::string> name() const;
    Label label() const noexcept { return context_->driver().label(); }

   private:
    explicit Gpu(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {}

    Result<void> load(const std::string& module);
    const CudaDriver& driver() const noexcept { return context_->driver(); }
    Result<void> synchronise() const;

    std::shared_ptr<CudaContext> context_;
    CUstream stream_ = nullptr;
    CUmodule module_ = nullptr;
    std::unordered_map<std::string, CUfunction> kernels_;
};

}  // namespace frostline::train
