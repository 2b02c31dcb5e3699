// A run of chunks is mapped handle by handle and unmapped in one call.
#include "allocator/heap/device_backing.h"

#include "allocator/heap/address_index.h"
#include "tiers/device_mapping.h"

#include <algorithm>
#include <new>

namespace frostline {
namespace {

// With so many times the addresses, growth finds a place whatever lies where.
constexpr std::uint64_t kLargePerByte = 4;
constexpr std::uint64_t kWindowsPerByte = 2;

Error no_memory() noexcept {
    return Error(Errc::out_of_memory, 0, "no memory to keep account of device memory");
}

Result<std::uint64_t> capacity_for(const DeviceBacking::Options& options) {
    const CudaContext& context = *options.context;
    const CudaDriver& driver = context.driver();
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    FROSTLINE_TRY_VOID(context.run([&] {
        return driver.check("cuMemGetInfo", driver.cuMemGetInfo(&free_bytes, &total_bytes));
    }));
    const std::uint64_t wanted = options.capacity_bytes == 0 ? free_bytes : options.capacity_bytes;
    if (wanted > total_bytes) {
        return Error(Errc::invalid_argument, 0,
                     "a heap of {} bytes exceeds the {} bytes of GPU {}: lower its capacity, or "
                     "leave it out for what is free",
                     wanted, total_bytes, context.device());
    }
    if (wanted < options.chunk_bytes) {
        return Error(Errc::invalid_argument, 0,
                     "a heap of {} bytes on GPU {} is less than one chunk of {}: raise its "
                     "capacity, or free memory of the GPU",
                     wanted, context.device(), options.chunk_bytes);
    }
    return wanted / options.chunk_bytes * options.chunk_bytes;
}

std::vector<int> with_peers(const DeviceBacking::Options& options) {
    std::vector<int> devices{options.context->device()};
    devices.insert(devices.end(), options.peers.begin(), options.peers.end());
    return devices;
}

}  // namespace

Result<std::unique_ptr<DeviceBacking>> DeviceBacking::create(const Options& options) noexcept try {
    if (options.context == nullptr || options.chunk_bytes == 0) {
        return Error(Errc::invalid_argument, 0, "a heap of GPU memory has no {}: name {}",
                     options.context == nullptr ? "context" : "chunks",
                     options.context == nullptr ? "its GPU's" : "their size");
    }
    // Before anything else is called: it says what the driver lacks.
    FROSTLINE_TRY_VOID(
        options.context->driver().need({CudaFeature::virtual_memory, CudaFeature::streams}));
    FROSTLINE_TRY(const std::uint64_t capacity_bytes, capacity_for(options));
    FROSTLINE_TRY(auto chunks, DeviceChunks::create({.context = options.context,
                                                     .capacity_bytes = capacity_bytes,
                                                     .chunk_bytes = options.chunk_bytes}));
    FROSTLINE_TRY_VOID(check_peers(*options.context, options.peers));
    std::unique_ptr<DeviceBacking> backing(
        new DeviceBacking(options, capacity_bytes, std::move(chunks)));
    FROSTLINE_TRY_VOID(backing->reserve_addresses());
    return backing;
} catch (const std::bad_alloc&) {
    return no_memory();
}

DeviceBacking::DeviceBacking(const Options& options, std::uint64_t capacity_bytes,
                             std::unique_ptr<DeviceChunks> chunks)
    : context_(options.context),
      capacity_bytes_(capacity_bytes),
      access_(access_for(with_peers(options))),
      chunks_(std::move(chunks)),
      marks_(options.context, options.peers) {}

// Fewer will do where the address space is crowded.
Result<void> DeviceBacking::reserve_addresses() {
    const CudaDriver& driver = context_->driver();
    Result<void> reserved = ok();
    for (std::uint64_t share = 1; share <= kLargePerByte; share *= 2) {
        HeapAddresses wanted{
            .large_bytes = capacity_bytes_ * kLargePerByte / share,
            .small_bytes = capacity_bytes_,
            .window_bytes = capacity_bytes_ * std::max<std::uint64_t>(kWindowsPerByte / share, 1)};
        const std::uint64_t size_bytes = wanted.size_bytes();
        CUdeviceptr address = 0;
        reserved = context_->run([&]() -> Result<void> {
            if (size_bytes > AddressIndex::kReach) {
                return Error(Errc::invalid_argument, 0, "a heap has at most {} bytes of addresses",
                             AddressIndex::kReach);
            }
            return driver.check(
                "cuMemAddressReserve",
                driver.cuMemAddressReserve(&address, size_bytes, chunk_bytes(), 0, 0));
        });
        if (!reserved) {
            reserved =
                Error(reserved.error().code(), 0,
                      "no {} bytes of addresses for a heap of {} on GPU {}: lower its "
                      "capacity ({})",
                      size_bytes, capacity_bytes_, context_->device(), reserved.error().message());
            continue;
        }
        wanted.address = address;
        addresses_ = wanted;
        homes_.resize(number_of(wanted.windows()));
        return ok();
    }
    return reserved;
}

DeviceBacking::~DeviceBacking() {
    // Addresses behind which memory may still be mapped are the driver's for good.
    const bool some_mapped =
        some_windows_stayed_ ||
        std::any_of(homes_.begin(), homes_.end(), [](const auto handle) { return handle != 0; });
    if (addresses_.address == 0 || some_mapped) return;
    const CudaDriver& driver = context_->driver();
    (void)context_->run([&] {
        return driver.check("cuMemAddressFree",
                            driver.cuMemAddressFree(addresses_.address, addresses_.size_bytes()));
    });
}

Result<void> DeviceBacking::back(std::uint64_t address, std::uint64_t chunks) noexcept {
    FROSTLINE_TRY(const auto taken, chunks_->take(chunks * chunk_bytes()));
    const Result<void> mapped = map_chunks(*context_, address, taken, access_);
    if (!mapped) {
        chunks_->give(taken);
        return mapped;
    }
    for (std::size_t i = 0; i < taken.size(); ++i) homes_[number_of(address) + i] = taken[i].handle;
    return ok();
}

Result<void> DeviceBacking::unback(std::uint64_t address, std::uint64_t chunks) noexcept {
    FROSTLINE_TRY_VOID(unmap(address, chunks));
    const std::size_t first = number_of(address);
    for (std::size_t i = first; i < first + chunks; ++i) {
        const DeviceChunk chunk{std::exchange(homes_[i], 0), chunk_bytes()};
        chunks_->give({&chunk, 1});
    }
    return ok();
}

Result<void> DeviceBacking::map_window(std::uint64_t address,
                                       std::span<const std::uint64_t> homes) noexcept try {
    std::vector<DeviceChunk> chunks;
    chunks.reserve(homes.size());
    for (const std::uint64_t home : homes) {
        chunks.push_back({homes_[number_of(home)], chunk_bytes()});
    }
    return map_chunks(*context_, address, chunks, access_);
} catch (const std::bad_alloc&) {
    return no_memory();
}

Result<void> DeviceBacking::unmap_window(std::uint64_t address, std::uint64_t chunks) noexcept {
    const Result<void> unmapped = unmap(address, chunks);
    if (!unmapped) some_windows_stayed_ = true;
    return unmapped;
}

// What was not unmapped is lost for good, so the driver is asked twice.
Result<void> DeviceBacking::unmap(std::uint64_t address, std::uint64_t chunks) noexcept {
    const std::uint64_t size_bytes = chunks * chunk_bytes();
    if (unmap_chunks(*context_, address, size_bytes)) return ok();
    return unmap_chunks(*context_, address, size_bytes);
}

}  // namespace frostline
