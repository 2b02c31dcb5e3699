// Addresses, budget, and what backs an extent.
#include "tiers/device_tier.h"

#include "tiers/check.h"
#include "tiers/device_mapping.h"
#include "tiers/device_queue.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <new>
#include <utility>

namespace frostline {
namespace {

// Extents come and go in all sizes; with this many times the addresses, holes do no harm. Addresses
// cost the driver's bookkeeping only, but they are finite.
constexpr std::uint64_t kAddressesPerByte = 4;

Error no_memory() noexcept {
    return Error(Errc::out_of_memory, 0, "no memory to keep account of device memory");
}

Result<void> check_capacity(const CudaContext& context, std::uint64_t capacity_bytes,
                            std::uint64_t granularity_bytes) {
    const CudaDriver& driver = context.driver();
    std::size_t total = 0;
    FROSTLINE_TRY_VOID(
        driver.check("cuDeviceTotalMem", driver.cuDeviceTotalMem(&total, context.handle())));
    if (capacity_bytes > total) {
        return Error(Errc::invalid_argument, 0,
                     "a device budget of {} bytes exceeds the {} bytes of GPU {}", capacity_bytes,
                     total, context.device());
    }
    if (capacity_bytes < granularity_bytes) {
        return Error(Errc::invalid_argument, 0,
                     "a device budget of {} bytes is less than the {} bytes that GPU {} hands out "
                     "at least",
                     capacity_bytes, granularity_bytes, context.device());
    }
    return ok();
}

}  // namespace

Result<std::unique_ptr<DeviceTier>> DeviceTier::create(const Options& options) noexcept try {
    FROSTLINE_TRY(auto chunks, DeviceChunks::create({.context = options.context,
                                                     .capacity_bytes = options.capacity_bytes,
                                                     .chunk_bytes = options.chunk_bytes}));
    FROSTLINE_TRY_VOID(
        check_capacity(*options.context, options.capacity_bytes, chunks->granularity_bytes()));
    FROSTLINE_TRY_VOID(check_peers(*options.context, options.peers));
    std::unique_ptr<DeviceTier> tier(new DeviceTier(options, std::move(chunks)));
    FROSTLINE_TRY_VOID(tier->reserve_arena());
    FROSTLINE_TRY_VOID(tier->open_lanes());
    return tier;
} catch (const std::bad_alloc&) {
    return no_memory();
}

DeviceTier::DeviceTier(const Options& options, std::unique_ptr<DeviceChunks> chunks)
    : context_(options.context),
      chunks_(std::move(chunks)),
      copies_(options.context, options.registered),
      staging_(options.context, options.numa_node) {
    const std::uint64_t granularity = chunks_->granularity_bytes();
    std::vector<int> devices{context_->device()};
    devices.insert(devices.end(), options.peers.begin(), options.peers.end());
    access_ = access_for(devices);
    std::array<char, 256> name{};
    (void)context_->driver().cuDeviceGetName(name.data(), static_cast<int>(name.size()),
                                             context_->handle());
    info_ = {.id = options.id,
             .kind = TierKind::device,
             .location = fmt::format("GPU {}, {}", context_->device(), name.data()),
             .label = context_->driver().label(),
             .capacity_bytes = options.capacity_bytes / granularity * granularity,
             .granularity_bytes = granularity,
             .numa_node = options.numa_node,
             .access = fmt::format("CUDA virtual memory, chunks of {} MiB",
                                   static_cast<double>(chunks_->chunk_bytes()) / (1U << 20U))};
    std::vector<std::string> reasons;
    if (options.registered == nullptr) {
        reasons.emplace_back("host memory is not pinned: copies go through staging");
    }
    if (info_.capacity_bytes < options.capacity_bytes) {
        reasons.push_back(
            fmt::format("the budget is {} bytes and not {}: the GPU hands out multiples of {}",
                        info_.capacity_bytes, options.capacity_bytes, granularity));
    }
    info_.fallback = fmt::format("{}", fmt::join(reasons, "; "));
}

// Less will do where the address space is crowded.
Result<void> DeviceTier::reserve_arena() {
    const CudaDriver& driver = context_->driver();
    Result<void> reserved = ok();
    for (std::uint64_t times = kAddressesPerByte; times >= 1; times /= 2) {
        const std::uint64_t bytes = info_.capacity_bytes * times;
        CUdeviceptr arena = 0;
        reserved = context_->run([&] {
            return driver.check("cuMemAddressReserve",
                                driver.cuMemAddressReserve(&arena, bytes, 0, 0, 0));
        });
        if (reserved) {
            arena_ = arena;
            arena_bytes_ = bytes;
            addresses_ = FreeExtents(bytes);
            return ok();
        }
    }
    return reserved;
}

Result<void> DeviceTier::open_lanes() {
    for (auto* const lane : {&reading_, &writing_}) {
        FROSTLINE_TRY(CudaStream stream, CudaStream::create(context_));
        *lane = std::make_unique<Lane>(std::move(stream));
    }
    return ok();
}

DeviceTier::~DeviceTier() {
    bool all_unmapped = true;
    for (auto& [offset, backing] : backings_) {
        if (backing.state == State::bare || backing.state == State::room) continue;
        all_unmapped &= backing.state == State::backed &&
                        detach({info_.id, offset, backing.length_bytes}, backing).has_value();
    }
    // Addresses behind which memory may still be mapped are the driver's for good.
    if (arena_ == 0 || !all_unmapped) return;
    const CudaDriver& driver = context_->driver();
    (void)context_->run([&] {
        return driver.check("cuMemAddressFree", driver.cuMemAddressFree(arena_, arena_bytes_));
    });
}

std::uint64_t DeviceTier::charged(std::uint64_t size_bytes) const noexcept {
    return (size_bytes + info_.granularity_bytes - 1) / info_.granularity_bytes *
           info_.granularity_bytes;
}

Result<Extent> DeviceTier::reserve_addresses(std::uint64_t size_bytes) noexcept {
    if (size_bytes == 0) {
        return Error(Errc::invalid_argument, 0, "an extent of 0 bytes was asked for");
    }
    if (size_bytes > arena_bytes_) {
        return Error(Errc::no_space, 0, "{} bytes do not fit the device tier of {}", size_bytes,
                     info_.capacity_bytes);
    }
    const std::lock_guard lock(mutex_);
    const auto offset = addresses_.take(charged(size_bytes));
    if (!offset) {
        return Error(Errc::no_space, 0, "no {} bytes of device addresses are free in one piece",
                     size_bytes);
    }
    try {
        backings_.emplace(*offset, Backing{.length_bytes = size_bytes, .chunks = {}});
        return Extent{info_.id, *offset, size_bytes};
    } catch (const std::bad_alloc&) {
        addresses_.give(*offset, charged(size_bytes));
        return no_memory();
    }
}

Result<Extent> DeviceTier::reserve(std::uint64_t size_bytes) noexcept {
    FROSTLINE_TRY(const Extent extent, reserve_room(size_bytes));
    const Result<void> backed = back(extent);
    if (backed) return extent;
    release(extent);
    return backed.error();
}

Result<Extent> DeviceTier::reserve_room(std::uint64_t size_bytes) noexcept {
    FROSTLINE_TRY(const Extent extent, reserve_addresses(size_bytes));
    const std::lock_guard lock(mutex_);
    const Result<void> charged = charge(backing_of(extent));
    if (charged) return extent;
    forget(extent);
    return charged.error();
}

Result<void> DeviceTier::charge(Backing& backing) noexcept {
    const std::uint64_t size_bytes = charged(backing.length_bytes);
    if (!meter_.open()) {
        return Error(Errc::closed, 0, "the device tier takes no more since this failure: {}",
                     failure_->message());
    }
    if (size_bytes > info_.capacity_bytes - meter_.used_bytes()) {
        return Error(Errc::no_space, 0, "{} bytes do not fit the device tier: {} of {} are used",
                     size_bytes, meter_.used_bytes(), info_.capacity_bytes);
    }
    meter_.add(size_bytes);
    backing.state = State::room;
    return ok();
}

DeviceTier::Backing& DeviceTier::backing_of(const Extent& extent) noexcept {
    const auto found = backings_.find(extent.offset);
    FROSTLINE_CHECK(extent.tier == info_.id && found != backings_.end() &&
                        found->second.length_bytes == extent.length_bytes,
                    "a device extent was given back twice, or never reserved");
    return found->second;
}

void DeviceTier::forget(const Extent& extent) {
    backings_.erase(extent.offset);
    addresses_.give(extent.offset, charged(extent.length_bytes));
}

Result<void> DeviceTier::back(const Extent& extent) noexcept {
    Backing* backing = nullptr;
    State before{};
    {
        const std::lock_guard lock(mutex_);
        backing = &backing_of(extent);
        if (backing->state == State::lost) {
            return Error(Errc::closed, 0, "this device extent was lost to a failure: {}",
                         failure_->message());
        }
        before = backing->state;
        if (before != State::bare && before != State::room) {
            return Error(Errc::busy, 0, "this device extent has memory already");
        }
        if (before == State::bare) FROSTLINE_TRY_VOID(charge(*backing));
        backing->state = State::changing;
    }
    const Result<void> attached = attach(extent, *backing);
    const std::lock_guard lock(mutex_);
    backing->state = attached ? State::backed : before;
    if (!attached && before == State::bare) meter_.subtract(charged(extent.length_bytes));
    return attached;
}

Result<void> DeviceTier::attach(const Extent& extent, Backing& backing) noexcept {
    FROSTLINE_TRY(auto chunks, chunks_->take(charged(extent.length_bytes)));
    const Result<void> mapped = map_chunks(*context_, arena_ + extent.offset, chunks, access_);
    if (!mapped) {
        chunks_->give(chunks);
        return mapped;
    }
    backing.chunks = std::move(chunks);
    return ok();
}

Result<void> DeviceTier::unback(const Extent& extent) noexcept {
    Backing* backing = nullptr;
    {
        const std::lock_guard lock(mutex_);
        backing = &backing_of(extent);
        if (backing->state != State::backed) {
            return Error(Errc::not_found, 0, "this device extent has no memory");
        }
        backing->state = State::changing;
    }
    const Result<void> detached = detach(extent, *backing);
    const std::lock_guard lock(mutex_);
    // Memory of which it is not known whether it is mapped stays lost, and counted.
    if (detached) {
        backing->state = State::bare;
        meter_.subtract(charged(extent.length_bytes));
    } else {
        backing->state = State::lost;
        if (!failure_) failure_ = detached.error();
        meter_.close(EIO);
    }
    return detached;
}

Result<void> DeviceTier::detach(const Extent& extent, Backing& backing) noexcept {
    FROSTLINE_TRY_VOID(
        unmap_chunks(*context_, arena_ + extent.offset, charged(extent.length_bytes)));
    chunks_->give(backing.chunks);
    backing.chunks.clear();
    return ok();
}

void DeviceTier::release(const Extent& extent) noexcept {
    State state{};
    {
        const std::lock_guard lock(mutex_);
        state = backing_of(extent).state;
    }
    FROSTLINE_CHECK(state != State::changing, "a device extent was released while it changes");
    if (state == State::lost) return;  // its addresses are not usable either
    if (state == State::backed && !unback(extent)) return;
    const std::lock_guard lock(mutex_);
    if (state == State::room) meter_.subtract(charged(extent.length_bytes));
    forget(extent);
}

std::byte* DeviceTier::address(const Extent& extent) const noexcept {
    return reinterpret_cast<std::byte*>(arena_ + extent.offset);
}

Result<std::unique_ptr<TransferQueue>> DeviceTier::open_queue() noexcept {
    return DeviceQueue::create(copies_, staging_, arena_);
}

Result<void> DeviceTier::write(const Extent& extent, std::uint64_t offset,
                               std::span<const std::byte> bytes) noexcept {
    const std::lock_guard lock(writing_->mutex);
    const CUstream stream = writing_->stream.handle();
    const Result<void> started =
        copies_.start_write(arena_ + extent.offset + offset, bytes, stream);
    const Result<void> ended = writing_->stream.synchronize();
    return started ? ended : started;
}

Result<void> DeviceTier::read(const Extent& extent, std::uint64_t offset,
                              std::span<std::byte> bytes) noexcept {
    const std::lock_guard lock(reading_->mutex);
    const CUstream stream = reading_->stream.handle();
    const Result<void> started = copies_.start_read(arena_ + extent.offset + offset, bytes, stream);
    const Result<void> ended = reading_->stream.synchronize();
    return started ? ended : started;
}

Result<void> DeviceTier::fence(std::span<const Extent>) noexcept {
    return ok();
}

}  // namespace frostline
