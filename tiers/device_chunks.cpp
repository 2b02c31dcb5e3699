// A size is made up of as many of the largest handles as fit, and of smaller ones for the rest, so
// that few sizes occur and what one tensor gave back serves the next.
#include "tiers/device_chunks.h"

#include "tiers/check.h"

#include <algorithm>
#include <bit>
#include <new>

namespace frostline {
namespace {

CUmemAllocationProp properties(const CudaContext& context) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = context.device();
    return prop;
}

Error no_memory() noexcept {
    return Error(Errc::out_of_memory, 0, "no memory to keep account of device memory");
}

Result<std::uint64_t> granularity_of(const CudaContext& context) {
    const CudaDriver& driver = context.driver();
    FROSTLINE_TRY_VOID(driver.need({CudaFeature::virtual_memory, CudaFeature::streams}));
    int supported = 0;
    std::size_t granularity = 0;
    FROSTLINE_TRY_VOID(context.run([&]() -> Result<void> {
        FROSTLINE_TRY_VOID(driver.check(
            "cuDeviceGetAttribute",
            driver.cuDeviceGetAttribute(&supported,
                                        CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                        context.handle())));
        if (supported == 0) {
            return Error(Errc::unsupported, 0, "GPU {} has no virtual memory management",
                         context.device());
        }
        const CUmemAllocationProp prop = properties(context);
        return driver.check("cuMemGetAllocationGranularity",
                            driver.cuMemGetAllocationGranularity(
                                &granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    }));
    if (!std::has_single_bit(granularity)) {
        return Error(Errc::unsupported, 0, "GPU {}: a granularity of {} bytes is not understood",
                     context.device(), granularity);
    }
    return granularity;
}

}  // namespace

Result<std::unique_ptr<DeviceChunks>> DeviceChunks::create(const Options& options) noexcept {
    FROSTLINE_TRY(const std::uint64_t granularity_bytes, granularity_of(*options.context));
    const std::uint64_t multiple = options.chunk_bytes / granularity_bytes;
    if (!std::has_single_bit(multiple) || multiple * granularity_bytes != options.chunk_bytes) {
        return Error(Errc::invalid_argument, 0,
                     "chunks of {} bytes: give the device's granularity of {} times a power of two",
                     options.chunk_bytes, granularity_bytes);
    }
    auto* const made = new (std::nothrow) DeviceChunks(options, granularity_bytes);
    if (made == nullptr) return no_memory();
    return std::unique_ptr<DeviceChunks>(made);
}

DeviceChunks::DeviceChunks(const Options& options, std::uint64_t granularity_bytes)
    : context_(options.context),
      capacity_bytes_(options.capacity_bytes),
      chunk_bytes_(options.chunk_bytes),
      granularity_bytes_(granularity_bytes) {}

DeviceChunks::~DeviceChunks() {
    while (give_up_one()) {
    }
}

Result<std::vector<DeviceChunk>> DeviceChunks::take(std::uint64_t size_bytes) noexcept {
    FROSTLINE_CHECK(size_bytes > 0 && size_bytes % granularity_bytes_ == 0,
                    "device memory is taken in multiples of its granularity");
    std::vector<DeviceChunk> taken;
    Result<void> status = ok();
    try {
        // As many as the largest, and at most one of each smaller size.
        taken.reserve(size_bytes / chunk_bytes_ +
                      static_cast<std::size_t>(std::bit_width(chunk_bytes_ / granularity_bytes_)));
        const std::lock_guard lock(mutex_);
        std::uint64_t chunk_bytes = chunk_bytes_;
        for (std::uint64_t missing = size_bytes; missing > 0;) {
            while (chunk_bytes > missing) chunk_bytes /= 2;
            const auto chunk = take_one(chunk_bytes);
            if (!chunk) {
                status = chunk.error();
                break;
            }
            taken.push_back(*chunk);
            missing -= chunk_bytes;
        }
    } catch (const std::bad_alloc&) {
        status = no_memory();
    }
    if (status) return taken;
    give(taken);
    return status.error();
}

Result<DeviceChunk> DeviceChunks::take_one(std::uint64_t size_bytes) {
    if (const auto kept = kept_.find(size_bytes); kept != kept_.end() && !kept->second.empty()) {
        const DeviceChunk chunk = kept->second.back();
        kept->second.pop_back();
        kept_bytes_ -= size_bytes;
        return chunk;
    }
    while (made_bytes_ + size_bytes > capacity_bytes_) {
        if (!give_up_one()) {
            return Error(Errc::no_space, 0, "{} bytes do not fit the {} bytes of device memory",
                         size_bytes, capacity_bytes_);
        }
    }
    while (true) {
        const auto made = make(size_bytes);
        // Somebody else may use the rest of the device.
        if (made || made.error().code() != Errc::no_space || !give_up_one()) return made;
    }
}

Result<DeviceChunk> DeviceChunks::make(std::uint64_t size_bytes) {
    const CudaDriver& driver = context_->driver();
    const CUmemAllocationProp prop = properties(*context_);
    DeviceChunk chunk{.handle = 0, .size_bytes = size_bytes};
    FROSTLINE_TRY_VOID(context_->run([&] {
        return driver.check("cuMemCreate", driver.cuMemCreate(&chunk.handle, size_bytes, &prop, 0));
    }));
    made_bytes_ += size_bytes;
    return chunk;
}

// One of the largest: few large ones go sooner than many small ones.
bool DeviceChunks::give_up_one() noexcept {
    for (auto next = kept_.end(); next != kept_.begin();) {
        std::vector<DeviceChunk>& kept = (--next)->second;
        if (kept.empty()) continue;
        const DeviceChunk chunk = kept.back();
        kept.pop_back();
        kept_bytes_ -= chunk.size_bytes;
        destroy(chunk);
        return true;
    }
    return false;
}

void DeviceChunks::give(std::span<const DeviceChunk> chunks) noexcept {
    const std::lock_guard lock(mutex_);
    for (const DeviceChunk& chunk : chunks) keep(chunk);
}

void DeviceChunks::keep(const DeviceChunk& chunk) noexcept {
    try {
        kept_[chunk.size_bytes].push_back(chunk);
        kept_bytes_ += chunk.size_bytes;
    } catch (const std::bad_alloc&) {
        destroy(chunk);
    }
}

void DeviceChunks::destroy(const DeviceChunk& chunk) noexcept {
    const CudaDriver& driver = context_->driver();
    const auto release = [&] {
        return driver.check("cuMemRelease", driver.cuMemRelease(chunk.handle));
    };
    // What the driver does not take back counts for good, so it is asked twice.
    const bool released = context_->run(release) || context_->run(release);
    if (released) made_bytes_ -= chunk.size_bytes;
}

std::uint64_t DeviceChunks::trim() noexcept {
    const std::lock_guard lock(mutex_);
    const std::uint64_t before = made_bytes_;
    while (give_up_one()) {
    }
    return before - made_bytes_;
}

std::uint64_t DeviceChunks::kept_bytes() const noexcept {
    const std::lock_guard lock(mutex_);
    return kept_bytes_;
}

std::uint64_t DeviceChunks::made_bytes() const noexcept {
    const std::lock_guard lock(mutex_);
    return made_bytes_;
}

}  // namespace frostline
