// What GPU memory costs to come and go, by the size of a physical handle, and how fast the copy
// engine carries it to and from DRAM, beside one plain copy of pinned memory in the same run. On
// the driver that programs would use; one that stands in for it makes the rows `emulated`.
#include "bench/media.h"
#include "bench/suite.h"
#include "tiers/cuda_context.h"
#include "tiers/cuda_driver.h"
#include "tiers/cuda_stream.h"
#include "tiers/device_tier.h"
#include "tiers/dram_tier.h"
#include "tiers/host_registration.h"

#include <fmt/core.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace frostline::bench {
namespace {

constexpr int kRepetitions = 9;
constexpr std::uint64_t kMib = std::uint64_t{1} << 20;
constexpr std::uint64_t kCopiedBytes = 256 * kMib;
constexpr double kUsPerSecond = 1e6;

struct Gpu {
    CudaDriver driver = expect(CudaDriver::load());
    std::shared_ptr<CudaContext> context = expect(CudaContext::create(driver, 0));
    std::string label = std::string(name(driver.label()));

    void call(const char* function, CUresult result) const {
        expect(driver.check(function, result));
    }
};

// One handle at one address, each step timed apart.
class OneChunk {
   public:
    OneChunk(const Gpu& gpu, std::uint64_t size_bytes) : gpu_(gpu), size_bytes_(size_bytes) {
        properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        properties_.location.id = gpu.context->device();
        access_.location = properties_.location;
        access_.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        gpu_.call("cuMemAddressReserve",
                  gpu_.driver.cuMemAddressReserve(&address_, size_bytes, 0, 0, 0));
    }
    OneChunk(const OneChunk&) = delete;
    OneChunk& operator=(const OneChunk&) = delete;
    ~OneChunk() { (void)gpu_.driver.cuMemAddressFree(address_, size_bytes_); }

    struct Times {
        std::vector<double> create, map, set_access, unmap, release;
    };
    void time_once(Times& times) {
        const CudaDriver& driver = gpu_.driver;
        CUmemGenericAllocationHandle handle = 0;
        const auto timed = [&](std::vector<double>& into, const char* function, const auto& call) {
            CUresult result = CUDA_SUCCESS;
            into.push_back(seconds([&] { result = call(); }) * kUsPerSecond);
            gpu_.call(function, result);
        };
        timed(times.create, "cuMemCreate",
              [&] { return driver.cuMemCreate(&handle, size_bytes_, &properties_, 0); });
        timed(times.map, "cuMemMap",
              [&] { return driver.cuMemMap(address_, size_bytes_, 0, handle, 0); });
        timed(times.set_access, "cuMemSetAccess",
              [&] { return driver.cuMemSetAccess(address_, size_bytes_, &access_, 1); });
        timed(times.unmap, "cuMemUnmap", [&] { return driver.cuMemUnmap(address_, size_bytes_); });
        timed(times.release, "cuMemRelease", [&] { return driver.cuMemRelease(handle); });
    }

   private:
    const Gpu& gpu_;
    std::uint64_t size_bytes_;
    CUmemAllocationProp properties_{};
    CUmemAccessDesc access_{};
    CUdeviceptr address_ = 0;
};

std::vector<Row> chunk_rows(const Gpu& gpu) {
    const CudaContext::Scope scope(*gpu.context);
    expect(scope.entered());
    std::vector<Row> rows;
    for (const std::uint64_t mib : {2, 4, 8, 16, 32, 64}) {
        OneChunk chunk(gpu, mib * kMib);
        OneChunk::Times times;
        chunk.time_once(times);
        times = {};  // the first is slower than all others
        for (int i = 0; i < kRepetitions; ++i) chunk.time_once(times);
        const auto row = [&](const char* what, const std::vector<double>& samples) {
            const Measurement measured = summarize(samples);
            rows.push_back({.suite = "device",
                            .name = fmt::format("{} {} MiB", what, mib),
                            .value = measured.median,
                            .unit = "us",
                            .spread = measured.spread,
                            .label = gpu.label});
        };
        row("create", times.create);
        row("map", times.map);
        row("set access", times.set_access);
        row("unmap", times.unmap);
        row("release", times.release);
    }
    return rows;
}

// Pinned memory of the driver's own, and device memory of the classic kind.
class PlainCopy {
   public:
    explicit PlainCopy(const Gpu& gpu)
        : gpu_(gpu), stream_(expect(CudaStream::create(gpu.context))) {
        const CudaContext::Scope scope(*gpu.context);
        gpu.call("cuMemHostAlloc", gpu.driver.cuMemHostAlloc(&host_, kCopiedBytes, 0));
        gpu.call("cuMemAlloc", gpu.driver.cuMemAlloc(&device_, kCopiedBytes));
    }
    PlainCopy(const PlainCopy&) = delete;
    PlainCopy& operator=(const PlainCopy&) = delete;
    ~PlainCopy() {
        const CudaContext::Scope scope(*gpu_.context);
        (void)gpu_.driver.cuMemFree(device_);
        (void)gpu_.driver.cuMemFreeHost(host_);
    }
    double seconds_down() const {
        return timed("cuMemcpyDtoHAsync", [&] {
            return gpu_.driver.cuMemcpyDtoHAsync(host_, device_, kCopiedBytes, stream_.handle());
        });
    }
    double seconds_up() const {
        return timed("cuMemcpyHtoDAsync", [&] {
            return gpu_.driver.cuMemcpyHtoDAsync(device_, host_, kCopiedBytes, stream_.handle());
        });
    }

   private:
    double timed(const char* function, const std::function<CUresult()>& copy) const {
        const CudaContext::Scope scope(*gpu_.context);
        return seconds([&] {
            gpu_.call(function, copy());
            expect(stream_.synchronize());
        });
    }

    const Gpu& gpu_;
    CudaStream stream_;
    void* host_ = nullptr;
    CUdeviceptr device_ = 0;
};

std::vector<Row> copy_rows(const Gpu& gpu) {
    const auto pins = expect(HostRegistration::create({.context = gpu.context}));
    const auto device = expect(DeviceTier::create({.id = TierId{0},
                                                   .context = gpu.context,
                                                   .capacity_bytes = kCopiedBytes,
                                                   .registered = pins.get()}));
    const auto pinned = expect(DramTier::create(
        {.id = TierId{1}, .capacity_bytes = 2 * kCopiedBytes, .pin_for_device = pins.get()}));
    const auto ordinary =
        expect(DramTier::create({.id = TierId{2}, .capacity_bytes = 2 * kCopiedBytes}));
    const auto engine = expect(CopyEngine::create({}));
    const PlainCopy plain(gpu);
    constexpr std::uint64_t kExtentBytes = 32 * kMib;
    const Extents on_device(*device, kCopiedBytes, kExtentBytes);
    std::vector<Row> rows;
    const auto rate = [](double elapsed_s) {
        return static_cast<double>(kCopiedBytes) / kGib / elapsed_s;
    };
    const auto row = [&](const char* name, const Flow& flow, bool up) {
        rows.push_back(compare_row(
            "device", name, "GiB/s",
            up ? "one cuMemcpyHtoDAsync, pinned" : "one cuMemcpyDtoHAsync, pinned", gpu.label,
            alternate(
                kRepetitions, [&] { return rate(run_copies(*engine, {flow}).seconds); },
                [&] { return rate(up ? plain.seconds_up() : plain.seconds_down()); })));
    };
    for (const bool is_pinned : {true, false}) {
        const Extents in_dram(is_pinned ? *pinned : *ordinary, kCopiedBytes, kExtentBytes);
        in_dram.fill();
        row(is_pinned ? "device to pinned dram" : "device to dram", {&on_device, &in_dram}, false);
        row(is_pinned ? "pinned dram to device" : "dram to device", {&in_dram, &on_device}, true);
    }
    return rows;
}

}  // namespace

std::vector<Row> device_suite() {
    const Gpu gpu;
    std::vector<Row> rows = chunk_rows(gpu);
    for (Row& each : copy_rows(gpu)) rows.push_back(std::move(each));
    return rows;
}

}  // namespace frostline::bench
