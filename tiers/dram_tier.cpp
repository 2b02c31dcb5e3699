// The arena, the cache of its resident free pages, and adopted buffers.
#include "tiers/dram_tier.h"

#include "tiers/check.h"
#include "tiers/page.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>

namespace frostline {
namespace {

// Address space beyond the budget keeps fragmentation from refusing what the budget allows; it
// costs nothing until it is touched. A system that counts address space gets a smaller arena.
constexpr std::uint64_t kArenaOverCapacity = 4;

}  // namespace

Result<std::unique_ptr<DramTier>> DramTier::create(const Options& options) noexcept {
    const std::uint64_t capacity = options.capacity_bytes / kPageBytes * kPageBytes;
    void* arena = nullptr;
    std::uint64_t arena_bytes = 0;
    for (std::uint64_t times = kArenaOverCapacity; capacity > 0 && times > 0; times /= 2) {
        if (capacity > UINT64_MAX / (2 * times)) continue;
        arena_bytes = capacity * times;
        arena = options.calls->mmap(nullptr, arena_bytes, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (arena != MAP_FAILED) break;
    }
    if (arena == MAP_FAILED || (capacity > 0 && arena == nullptr)) {
        return system_error(arena == nullptr ? ENOMEM : errno,
                            "DRAM tier: cannot reserve {} bytes of address space; lower the DRAM "
                            "budget",
                            capacity);
    }
    // A huge page would make 2 MiB resident where one page was reserved. A kernel without them
    // refuses the advice.
    if (arena != nullptr) (void)options.calls->madvise(arena, arena_bytes, MADV_NOHUGEPAGE);
    try {
        return std::unique_ptr<DramTier>(
            new DramTier(options, static_cast<std::byte*>(arena), capacity > 0 ? arena_bytes : 0));
    } catch (const std::bad_alloc&) {
        if (arena != nullptr) (void)options.calls->munmap(arena, arena_bytes);
        return Error(Errc::out_of_memory, 0, "DRAM tier: no memory for its own tables");
    }
}

DramTier::DramTier(const Options& options, std::byte* memory, std::uint64_t memory_bytes)
    : calls_(options.calls),
      info_{.id = options.id,
            .kind = TierKind::dram,
            .location = {},
            .label = Label::real,
            .capacity_bytes = options.capacity_bytes,
            .granularity_bytes = kPageBytes,
            .host_addressable = true,
            .durable = false},
      memory_(memory),
      memory_bytes_(memory_bytes),
      arena_(memory, memory_bytes, *options.calls) {}

DramTier::~DramTier() {
    for (const auto& [address, buffer] : adopted_) {
        buffer.release.call(buffer.release.user, reinterpret_cast<std::byte*>(address),
                            buffer.size_bytes);
    }
    if (memory_ != nullptr) (void)calls_->munmap(memory_, memory_bytes_);
}

Result<Extent> DramTier::reserve(std::uint64_t size_bytes) noexcept {
    if (size_bytes == 0) return Error(Errc::invalid_argument, 0, "DRAM tier: reserve of 0 bytes");
    try {
        const std::lock_guard lock(mutex_);
        return reserve_locked(size_bytes);
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "DRAM tier: no memory for its own tables");
    }
}

Result<Extent> DramTier::reserve_locked(std::uint64_t size_bytes) {
    const std::uint64_t charged = round_up_to_page(size_bytes);
    const std::optional<Range> range =
        charged >= size_bytes && fits(charged) ? arena_.find(charged) : std::nullopt;
    if (!range) {
        return Error(Errc::no_space, 0, "DRAM tier: {} bytes do not fit, {} of {} are in use",
                     size_bytes, meter_.used_bytes(), info_.capacity_bytes);
    }
    FROSTLINE_TRY_VOID(trim_for(charged, *range));
    arena_.take(*range);
    meter_.add(charged);
    const auto address = reinterpret_cast<std::uint64_t>(arena_.address(range->lower()));
    return Extent{info_.id, address, size_bytes};
}

void DramTier::release(const Extent& extent) noexcept {
    std::optional<Adopted> buffer;
    {
        const std::lock_guard lock(mutex_);
        if (const auto found = adopted_.find(extent.offset); found != adopted_.end()) {
            // Forgotten before its owner has it back, who may lend the same address again at once.
            buffer = found->second;
            adopted_.erase(found);
        } else {
            const std::uint64_t offset = extent.offset - reinterpret_cast<std::uint64_t>(memory_);
            const std::uint64_t charged = round_up_to_page(extent.length_bytes);
            arena_.give(Range(offset, offset + charged));
            meter_.subtract(charged);
        }
    }
    if (!buffer) return;
    // The bytes stay charged until the former owner has them back: it may keep them resident.
    buffer->release.call(buffer->release.user, reinterpret_cast<std::byte*>(extent.offset),
                         buffer->size_bytes);
    const std::lock_guard lock(mutex_);
    meter_.subtract(buffer->size_bytes);
}

Result<Extent> DramTier::adopt(std::span<std::byte> buffer, BufferRelease release) noexcept {
    const auto address = reinterpret_cast<std::uint64_t>(buffer.data());
    if (buffer.empty() || release.call == nullptr) {
        return Error(Errc::invalid_argument, 0, "DRAM tier: nothing to adopt");
    }
    try {
        const std::lock_guard lock(mutex_);
        if (!fits(buffer.size())) {
            return Error(Errc::no_space, 0, "DRAM tier: {} bytes do not fit, {} of {} are in use",
                         buffer.size(), meter_.used_bytes(), info_.capacity_bytes);
        }
        if (adopted_.contains(address)) {
            return Error(Errc::busy, 0, "DRAM tier: buffer {} is adopted already",
                         static_cast<const void*>(buffer.data()));
        }
        FROSTLINE_TRY_VOID(trim_for(buffer.size(), {}));
        adopted_.emplace(address, Adopted{buffer.size(), release});
        meter_.add(buffer.size());
        return Extent{info_.id, address, buffer.size()};
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "DRAM tier: no memory for its own tables");
    }
}

void DramTier::cancel_adoption(const Extent& extent) noexcept {
    const std::lock_guard lock(mutex_);
    FROSTLINE_CHECK(adopted_.erase(extent.offset) == 1, "a buffer was given up that is not held");
    meter_.subtract(extent.length_bytes);
}

Result<void> DramTier::write(const Extent& extent, std::uint64_t offset,
                             std::span<const std::byte> bytes) noexcept {
    if (bytes.empty()) return ok();  // its address may be null, which memcpy forbids
    std::memcpy(host_address(extent) + offset, bytes.data(), bytes.size());
    return ok();
}

Result<void> DramTier::read(const Extent& extent, std::uint64_t offset,
                            std::span<std::byte> bytes) noexcept {
    if (bytes.empty()) return ok();  // its address may be null, which memcpy forbids
    std::memcpy(bytes.data(), host_address(extent) + offset, bytes.size());
    return ok();
}

Result<void> DramTier::fence(std::span<const Extent>) noexcept {
    return ok();
}

std::byte* DramTier::host_address(const Extent& extent) const noexcept {
    return reinterpret_cast<std::byte*>(extent.offset);
}

Result<std::unique_ptr<TransferQueue>> DramTier::open_queue() noexcept {
    return std::unique_ptr<TransferQueue>();
}

std::uint64_t DramTier::cached_bytes() const noexcept {
    const std::lock_guard lock(mutex_);
    return arena_.cached_bytes();
}

bool DramTier::fits(std::uint64_t size_bytes) const noexcept {
    const std::uint64_t room = info_.capacity_bytes - meter_.used_bytes();
    return size_bytes <= room;
}

// Gives cached pages outside of `keep` back to the system, until `size_bytes` more can be used.
Result<void> DramTier::trim_for(std::uint64_t size_bytes, const Range& keep) {
    const std::uint64_t limit = info_.capacity_bytes - meter_.used_bytes() - size_bytes;
    const std::uint64_t cached = arena_.cached_bytes() - arena_.cached_bytes_in(keep);
    if (cached <= limit) return ok();
    FROSTLINE_TRY_VOID(arena_.trim(cached - limit, keep));
    return ok();
}

}  // namespace frostline
