// Room and its blocks, and what is known of the media. Reading and writing are in
// swap_tier_transfer.cpp.
#include "tiers/swap_tier.h"

#include "tiers/page.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

namespace frostline {

Result<std::unique_ptr<SwapTier>> SwapTier::create(const Options& options) noexcept {
    if (options.queue_depth == 0 || options.block_bytes == 0 ||
        options.block_bytes % kPageBytes != 0) {
        return Error(Errc::invalid_argument, 0,
                     "swap tier: its queue needs a depth, and blocks of whole pages");
    }
    try {
        SwapFiles::Options places{.places = options.places,
                                  .block_devices = options.block_devices,
                                  .direct = options.direct,
                                  .calls = options.calls};
        auto files = SwapFiles::open(places);
        auto tier = files ? create_on(options, *std::move(files))
                          : Result<std::unique_ptr<SwapTier>>(files.error());
        // Some file systems refuse O_DIRECT when a file is opened, some when it is written.
        if (tier || !options.direct || tier.error().code() != Errc::unsupported) return tier;
        const std::string refused = tier.error().message();
        places.direct = false;
        FROSTLINE_TRY(files, SwapFiles::open(places));
        FROSTLINE_TRY(tier, create_on(options, *std::move(files)));
        std::string& fallback = (*tier)->info_.fallback;
        fallback = fallback.empty() ? refused : refused + "; " + fallback;
        return tier;
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "swap tier: no memory for its own tables");
    }
}

Result<std::unique_ptr<SwapTier>> SwapTier::create_on(const Options& options, SwapFiles files) {
    const std::uint64_t limit = files.device_limit_bytes();
    std::uint64_t capacity = options.size_bytes;
    if (capacity == 0) {
        FROSTLINE_TRY(capacity, files.usable_bytes());
    } else if (capacity > limit) {
        return Error(Errc::invalid_argument, 0,
                     "swap tier in '{}': {} bytes are more than its devices have, ask for {}",
                     files.location(), capacity, limit);
    }
    capacity = capacity / kPageBytes * kPageBytes;
    if (capacity == 0) {
        return Error(Errc::no_space, 0, "swap directory '{}': no room for a swap file",
                     files.location());
    }
    std::unique_ptr<SwapTier> tier(new SwapTier(options, std::move(files), capacity));
    FROSTLINE_TRY_VOID(tier->start());
    return tier;
}

SwapTier::SwapTier(const Options& options, SwapFiles files, std::uint64_t capacity_bytes)
    : options_(options),
      files_(std::move(files)),
      info_{.id = options.id,
            .kind = TierKind::swap,
            .location = files_.location(),
            .label = files_.place_in_memory().empty() ? Label::real : Label::emulated,
            .capacity_bytes = capacity_bytes,
            .granularity_bytes = kPageBytes,
            .host_addressable = false,
            .durable = false,
            .numa_node = options.numa_node},
      room_({.capacity_bytes = capacity_bytes,
             .growth_bytes = std::max(round_up_to_page(options.growth_bytes), kPageBytes),
             .keep_ns = options.keep_ns}) {}

// The first blocks and the first queue, which show what the system allows.
Result<void> SwapTier::start() {
    const std::lock_guard lock(mutex_);
    FROSTLINE_TRY_VOID(allocate_for(0, kPageBytes));
    if (files_.direct()) {
        FROSTLINE_TRY(const bool taken, files_.takes_direct());
        if (!taken) {
            return Error(Errc::unsupported, 0, "the file system of '{}' refuses O_DIRECT",
                         files_.location());
        }
    }
    ring_ = options_.ring;
    FROSTLINE_TRY(auto queue, new_queue(false));
    if (queue->ring_refusal()) {
        ring_ = false;
        info_.fallback = queue->ring_refusal()->message();
    }
    idle_queues_.push_back(std::move(queue));
    if (const std::string& place = files_.place_in_memory(); !place.empty()) {
        if (!info_.fallback.empty()) info_.fallback += "; ";
        info_.fallback += "'" + place + "' lies in memory: what goes there stays in DRAM";
    }
    info_.access = ring_ ? "io_uring" : "pread and pwrite";
    info_.access += files_.direct() ? ", O_DIRECT" : ", page cache";
    return ok();
}

Result<Extent> SwapTier::reserve(std::uint64_t size_bytes) noexcept {
    if (size_bytes == 0) return Error(Errc::invalid_argument, 0, "swap tier: reserve of 0 bytes");
    if (!meter_.open()) {
        return Error(Errc::closed, meter_.error(), "swap tier in '{}': closed after a failure",
                     info_.location);
    }
    try {
        const std::lock_guard lock(mutex_);
        return reserve_locked(size_bytes);
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "swap tier: no memory for its own tables");
    }
}

Result<Extent> SwapTier::reserve_locked(std::uint64_t size_bytes) {
    if (size_bytes > info_.capacity_bytes) {
        return Error(Errc::no_space, 0, "swap tier in '{}': {} bytes exceed its capacity of {}",
                     info_.location, size_bytes, info_.capacity_bytes);
    }
    const std::uint64_t charged = round_up_to_page(size_bytes);
    std::optional<std::uint64_t> offset = room_.find(charged);
    if (!offset) {
        return Error(Errc::no_space, 0, "swap tier in '{}': {} bytes do not fit, {} of {} in use",
                     info_.location, size_bytes, meter_.used_bytes(), info_.capacity_bytes);
    }
    if (const Result<void> allocated = allocate_for(*offset, charged); !allocated) {
        // The disk is full, or fails: what the files have is used further.
        offset = room_.find_allocated(charged);
        if (!offset) return allocated.error();
    }
    room_.take(*offset, charged, options_.now_ns());
    meter_.add(charged);
    return Extent{info_.id, *offset, size_bytes};
}

// Whole growth steps first, then just what is missing.
Result<void> SwapTier::allocate_for(std::uint64_t offset, std::uint64_t size_bytes) {
    while (true) {
        Range missing = room_.missing(offset, size_bytes);
        if (missing.size_bytes() == 0) return ok();
        const Range step = room_.growth_step(missing);
        if (step != missing && files_.allocate(step.start, step.size_bytes()).has_value()) {
            missing = step;
        } else {
            if (step != missing) give_back_remains(step);
            FROSTLINE_TRY_VOID(files_.allocate(missing.start, missing.size_bytes()));
        }
        room_.add_blocks(missing);
    }
}

// Of a step that the disk had no room for, a file system keeps what it could get.
void SwapTier::give_back_remains(const Range& step) noexcept {
    Range left = step;
    while (left.size_bytes() > 0) {
        const Range gap = room_.missing(left.start, left.size_bytes());
        if (gap.size_bytes() == 0 || !files_.punch(gap.start, gap.size_bytes())) return;
        left.start = gap.end;
    }
}

void SwapTier::release(const Extent& extent) noexcept {
    const std::lock_guard lock(mutex_);
    const std::uint64_t charged = round_up_to_page(extent.length_bytes);
    try {
        room_.give(extent.offset, charged, options_.now_ns());
    } catch (const std::bad_alloc&) {
        return;  // the room stays taken: without memory it cannot be noted as free
    }
    meter_.subtract(charged);
    punch_hole();
}

// A piece for each release, so that nobody waits long for the lock. It is only a courtesy to
// others: where it is not supported, or memory runs out, the blocks stay until the files are
// closed.
void SwapTier::punch_hole() noexcept {
    constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;
    if (!can_punch_) return;
    try {
        const Range hole = room_.next_hole(options_.now_ns(), kMostBytes);
        if (hole.size_bytes() == 0) return;
        can_punch_ = files_.punch(hole.start, hole.size_bytes()).has_value();
    } catch (const std::bad_alloc&) {
        can_punch_ = false;
    }
}

// Files are emptied, because a ring that has just been closed, or a forked child, may hold them
// open for a while. What was on a device would lie there for its next user.
SwapTier::~SwapTier() {
    files_.empty_files();
    if (files_.device_limit_bytes() == UINT64_MAX) return;
    Range left{0, info_.capacity_bytes};
    while (const auto range = room_.allocated().first_in(left)) {
        if (!files_.punch(range->start, range->size_bytes())) return;
        left.start = range->end;
    }
}

std::uint64_t SwapTier::allocated_bytes() const noexcept {
    const std::lock_guard lock(mutex_);
    return room_.allocated_bytes();
}

}  // namespace frostline
