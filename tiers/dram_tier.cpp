// The arena, the cache of its resident free pages, and adopted buffers.
#include "tiers/dram_tier.h"

#include "tiers/check.h"
#include "tiers/page.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace frostline {
namespace {

Error no_memory() {
    return Error(Errc::out_of_memory, 0, "DRAM tier: no memory for its own tables");
}

void append(std::string& text, const char* separator, std::string_view more) {
    if (!text.empty() && !more.empty()) text += separator;
    text += more;
}

std::string words_for(const NumaPlacement& numa) {
    switch (numa.mode) {
        case NumaPlacement::Mode::none:
            return {};
        case NumaPlacement::Mode::bind:
            return "bound to NUMA nodes " + list_of(numa.nodes);
        case NumaPlacement::Mode::preferred:
            return "NUMA node " + list_of(numa.nodes) + " preferred";
        case NumaPlacement::Mode::interleave:
            return "interleaved over NUMA nodes " + list_of(numa.nodes);
    }
    return {};
}

// The node of all pages, if there is one.
int only_node(const NumaPlacement& numa, const Topology* topology) {
    if (numa.nodes.size() == 1) return numa.nodes.front();
    const bool one = topology != nullptr && topology->nodes().size() == 1;
    return one ? topology->nodes().front().id : kNoNode;
}

// Small enough that a chunk with little in it does not keep much of the budget resident.
std::uint64_t pin_chunk_bytes(const HostRegistration* pins, std::uint64_t capacity_bytes) {
    constexpr std::uint64_t kChunksAtLeast = 64;
    constexpr std::uint64_t kUnit = HostRegistration::kSmallestChunkBytes;
    const std::uint64_t wanted = capacity_bytes / kChunksAtLeast / kUnit * kUnit;
    return pins == nullptr ? 0 : std::clamp(wanted, kUnit, pins->chunk_bytes());
}

}  // namespace

Result<std::unique_ptr<DramTier>> DramTier::create(const Options& options) noexcept {
    try {
        std::optional<Topology> machine;
        const Topology* topology = options.topology;
        const bool anywhere =
            options.numa.mode == NumaPlacement::Mode::none && options.numa.nodes.empty();
        if (topology == nullptr && !anywhere) {
            FROSTLINE_TRY(machine, Topology::create());
            topology = &*machine;
        }
        if (!anywhere) {
            FROSTLINE_TRY_VOID(check_placement(options.numa, *topology, options.capacity_bytes));
        }
        std::unique_ptr<DramTier> tier(new DramTier(options));
        FROSTLINE_TRY_VOID(tier->map_arenas(options, options.numa, topology));
        tier->probe_pinning();
        return tier;
    } catch (const std::bad_alloc&) {
        return no_memory();
    }
}

DramTier::DramTier(const Options& options)
    : calls_(options.calls),
      info_{.id = options.id,
            .kind = TierKind::dram,
            .location = {},
            .label = Label::real,
            .capacity_bytes = options.capacity_bytes,
            .granularity_bytes = kPageBytes,
            .host_addressable = true,
            .durable = false,
            .access = "load and store"} {}

DramTier::~DramTier() {
    for (const auto& [address, buffer] : adopted_) {
        buffer.release.call(buffer.release.user, reinterpret_cast<std::byte*>(address),
                            buffer.size_bytes);
    }
}

Result<void> DramTier::map_arenas(const Options& options, const NumaPlacement& numa,
                                  const Topology* topology) {
    const std::uint64_t capacity = options.capacity_bytes / kPageBytes * kPageBytes;
    if (capacity == 0) return ok();
    const bool pinned = options.pin_for_device != nullptr;
    std::vector<ArenaPlan> plans = plan_home_arenas(numa, topology, capacity, pinned);
    plans.push_back({capacity, numa.nodes, false});
    FROSTLINE_TRY(DramMapping mapping, DramMapping::create(*calls_, capacity, plans));
    const std::span<std::byte> whole = mapping.whole();
    std::uint64_t position = 0;
    for (const ArenaPlan& plan : plans) {
        if (numa.mode == NumaPlacement::Mode::none) break;
        const auto placed =
            place_memory(*calls_, mapping.next(position, plan), numa.mode, plan.nodes);
        if (!placed) {
            append(info_.fallback, "; ", placed.error().message());
            return map_arenas(options, {}, topology);  // anew, without a policy on any part
        }
    }
    // A huge page would make 2 MiB resident where one page was reserved.
    bool huge_pages = options.huge_pages == HugePages::large_extents;
    if (calls_->madvise(whole.data(), whole.size(), MADV_NOHUGEPAGE) != 0 && huge_pages) {
        append(info_.fallback, "; ", system_error(errno, "no huge pages").message());
        huge_pages = false;
    }
    position = 0;
    arenas_.reserve(plans.size());
    for (const ArenaPlan& plan : plans) {
        arenas_.emplace_back(DramArena::Options{
            .memory = mapping.next(position, plan),
            .calls = calls_,
            .nodes = plan.nodes,
            .huge_pages = huge_pages,
            .pins = plan.pinned ? options.pin_for_device : nullptr,
            .pin_chunk_bytes = pin_chunk_bytes(options.pin_for_device, capacity)});
    }
    mapping_ = std::move(mapping);
    append(info_.access, ", ", words_for(numa));
    if (huge_pages) append(info_.access, ", ", "huge pages for large extents");
    info_.numa_node = only_node(numa, topology);
    // The other modes allow any node once theirs are full.
    verified_ = numa.mode == NumaPlacement::Mode::bind && topology->nodes().size() > 1;
    return ok();
}

// A refusal is better known before anything relies on it.
void DramTier::probe_pinning() {
    bool pinned = false;
    for (DramArena& each : arenas_) {
        if (!each.pinned()) continue;
        const Result<void> done = each.try_pinning();
        pinned = done.has_value();
        if (pinned) continue;
        pinning_error_ = done.error();
        append(info_.fallback, "; ", fmt::format("not pinned: {}", done.error().message()));
        break;
    }
    if (pinned) append(info_.access, ", ", "pinned");
}

Result<Extent> DramTier::reserve(std::uint64_t size_bytes) noexcept {
    if (size_bytes == 0) return Error(Errc::invalid_argument, 0, "DRAM tier: reserve of 0 bytes");
    try {
        const std::lock_guard lock(mutex_);
        return reserve_locked(size_bytes);
    } catch (const std::bad_alloc&) {
        return no_memory();
    }
}

Result<Extent> DramTier::reserve_locked(std::uint64_t size_bytes) {
    const std::uint64_t charged = round_up_to_page(size_bytes);
    std::optional<Error> refusal;
    if (charged >= size_bytes && fits(charged)) {
        DramArena* const nearest = nearest_arena();
        if (nearest != nullptr) {
            const auto extent = reserve_in(*nearest, size_bytes);
            if (extent) return extent;
            refusal = extent.error();
        }
        for (DramArena& each : arenas_) {
            if (&each == nearest) continue;
            const auto extent = reserve_in(each, size_bytes);
            if (extent) return extent;
            refusal = extent.error();
        }
    }
    return refusal.value_or(does_not_fit(size_bytes));
}

Result<Extent> DramTier::reserve_in(DramArena& arena, std::uint64_t size_bytes) {
    const std::uint64_t charged = round_up_to_page(size_bytes);
    const std::optional<Range> range = arena.find(charged);
    if (!range) return does_not_fit(size_bytes);
    FROSTLINE_TRY_VOID(make_room(arena.growth_bytes(*range), &arena, arena.footprint(*range)));
    if (const Result<void> taken = arena.take(*range); !taken) {
        pinning_error_ = taken.error();
        return taken.error();
    }
    meter_.add(charged);
    const auto address = reinterpret_cast<std::uint64_t>(arena.address(range->start));
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
            DramArena* const arena = arena_of(extent);
            FROSTLINE_CHECK(arena != nullptr, "a range given back lies outside its tier");
            give_locked(*arena, extent);
        }
    }
    if (!buffer) return;
    // The bytes stay charged until the former owner has them back: it may keep them resident.
    buffer->release.call(buffer->release.user, reinterpret_cast<std::byte*>(extent.offset),
                         buffer->size_bytes);
    const std::lock_guard lock(mutex_);
    meter_.subtract(buffer->size_bytes);
}

void DramTier::give_locked(DramArena& arena, const Extent& extent) {
    const std::uint64_t offset = arena.offset(address(extent));
    const std::uint64_t charged = round_up_to_page(extent.length_bytes);
    try {
        arena.give({offset, offset + charged});
    } catch (const std::bad_alloc&) {
        return;  // the room stays taken: without memory it cannot be noted as free
    }
    meter_.subtract(charged);
    if (!verified_) return;
    const auto drop = [&](std::span<std::byte> misplaced) {
        const std::uint64_t start = arena.offset(misplaced.data());
        misplaced_bytes_ += misplaced.size();
        arena.drop({start, start + misplaced.size()});
    };
    try {
        // Where the kernel does not say, pages are kept as if they lay well.
        (void)find_misplaced(*calls_, {address(extent), charged}, arena.nodes(), drop);
    } catch (const std::bad_alloc&) {
        // Nor is it worth more than that.
    }
}

Result<Extent> DramTier::adopt(std::span<std::byte> buffer, BufferRelease release) noexcept {
    const auto address = reinterpret_cast<std::uint64_t>(buffer.data());
    if (buffer.empty() || release.call == nullptr) {
        return Error(Errc::invalid_argument, 0, "DRAM tier: nothing to adopt");
    }
    try {
        const std::lock_guard lock(mutex_);
        if (!fits(buffer.size())) return does_not_fit(buffer.size());
        if (adopted_.contains(address)) {
            return Error(Errc::busy, 0, "DRAM tier: buffer {} is adopted already",
                         static_cast<const void*>(buffer.data()));
        }
        FROSTLINE_TRY_VOID(make_room(buffer.size(), nullptr, {}));
        adopted_.emplace(address, Adopted{buffer.size(), release});
        meter_.add(buffer.size());
        return Extent{info_.id, address, buffer.size()};
    } catch (const std::bad_alloc&) {
        return no_memory();
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
    std::memcpy(address(extent) + offset, bytes.data(), bytes.size());
    return ok();
}

Result<void> DramTier::read(const Extent& extent, std::uint64_t offset,
                            std::span<std::byte> bytes) noexcept {
    if (bytes.empty()) return ok();  // its address may be null, which memcpy forbids
    std::memcpy(bytes.data(), address(extent) + offset, bytes.size());
    return ok();
}

Result<void> DramTier::fence(std::span<const Extent>) noexcept {
    return ok();
}

std::byte* DramTier::address(const Extent& extent) const noexcept {
    return reinterpret_cast<std::byte*>(extent.offset);
}

Result<std::unique_ptr<TransferQueue>> DramTier::open_queue() noexcept {
    return std::unique_ptr<TransferQueue>();
}

std::uint64_t DramTier::cached_bytes() const noexcept {
    const std::lock_guard lock(mutex_);
    return cached_bytes_locked();
}

Result<Placement> DramTier::placement(const Extent& extent) const noexcept {
    try {
        return placement_of(*calls_, {address(extent), extent.length_bytes});
    } catch (const std::bad_alloc&) {
        return no_memory();
    }
}

std::optional<Error> DramTier::pinning_error() const noexcept {
    const std::lock_guard lock(mutex_);
    return pinning_error_;
}

bool DramTier::fits(std::uint64_t size_bytes) const noexcept {
    const std::uint64_t room = info_.capacity_bytes - meter_.used_bytes();
    return size_bytes <= room;
}

Error DramTier::does_not_fit(std::uint64_t size_bytes) const noexcept {
    return Error(Errc::no_space, 0, "DRAM tier: {} bytes do not fit, {} of {} are in use",
                 size_bytes, meter_.used_bytes(), info_.capacity_bytes);
}

// Gives cached pages back to the system until `growth_bytes` more can become resident; those in
// `keep` of the arena `into` are about to be used. The home arenas come last: what is pinned in
// them costs the most to get back.
Result<void> DramTier::make_room(std::uint64_t growth_bytes, const DramArena* into,
                                 const Range& keep) {
    if (!fits(growth_bytes)) return does_not_fit(growth_bytes);
    const std::uint64_t room = info_.capacity_bytes - meter_.used_bytes() - growth_bytes;
    const std::uint64_t cached = cached_bytes_locked();
    std::uint64_t excess = cached > room ? cached - room : 0;
    for (auto each = arenas_.rbegin(); excess > 0 && each != arenas_.rend(); ++each) {
        FROSTLINE_TRY(const std::uint64_t trimmed,
                      each->trim(excess, &*each == into ? keep : Range{}));
        excess -= std::min(excess, trimmed);
    }
    if (excess > 0) return does_not_fit(growth_bytes);
    return ok();
}

// By address; nullptr if it is in none.
DramArena* DramTier::arena_of(const Extent& extent) noexcept {
    const auto found = std::find_if(arenas_.begin(), arenas_.end(), [&](const DramArena& each) {
        return each.contains(address(extent));
    });
    return found == arenas_.end() ? nullptr : &*found;
}

// Of several nodes that memory is bound to, the one that the caller runs on.
DramArena* DramTier::nearest_arena() noexcept {
    constexpr std::size_t kOneHome = 2;
    unsigned cpu = 0;
    unsigned node = 0;
    if (arenas_.size() <= kOneHome || calls_->getcpu(&cpu, &node) != 0) return nullptr;
    const auto found = std::find_if(arenas_.begin(), arenas_.end(), [&](const DramArena& each) {
        return each.nodes().size() == 1 && each.nodes().front() == static_cast<int>(node);
    });
    return found == arenas_.end() ? nullptr : &*found;
}

std::uint64_t DramTier::cached_bytes_locked() const noexcept {
    std::uint64_t bytes = 0;
    for (const DramArena& each : arenas_) bytes += each.cached_bytes();
    return bytes;
}

}  // namespace frostline
