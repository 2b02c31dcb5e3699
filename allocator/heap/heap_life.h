// How a heap begins and ends, and what it says of itself.
// Part of heap.h, for those who instantiate Heap.
#pragma once

#include "allocator/heap/heap.h"
#include "allocator/heap/heap_errors.h"
#include "allocator/heap/heap_fast.h"
#include "allocator/heap/heap_return.h"
#include "allocator/heap/heap_streams.h"
#include "allocator/heap/heap_supply.h"
#include "allocator/heap/heap_windows.h"

#include <algorithm>
#include <new>

namespace frostline {

template <HeapBacking Backing>
Heap<Backing>::Heap(std::unique_ptr<Backing> backing, const HeapOptions& options)
    : backing_(std::move(backing)),
      options_(options),
      addresses_(backing_->addresses()),
      capacity_bytes_(backing_->capacity_bytes()),
      peak_step_bytes_(
          std::max(kLeastPeakStepBytes, static_cast<std::int64_t>(capacity_bytes_ / 1024))),
      noting_(options.traced || options.debug),
      index_(addresses_.address),
      ledger_(*backing_) {}

template <HeapBacking Backing>
Result<std::unique_ptr<Heap<Backing>>> Heap<Backing>::create(std::unique_ptr<Backing> backing,
                                                             const HeapOptions& options) noexcept {
    const std::uint64_t chunk_bytes = backing->chunk_bytes();
    const HeapAddresses addresses = backing->addresses();
    const auto whole = [&](std::uint64_t bytes) { return bytes % chunk_bytes == 0; };
    if (chunk_bytes % kSpanBytes != 0 || !whole(addresses.address) ||
        !whole(addresses.large_bytes) || !whole(addresses.small_bytes) ||
        !whole(addresses.window_bytes) || addresses.size_bytes() > AddressIndex::kReach) {
        return Error(Errc::invalid_argument, 0,
                     "{}: chunks of {} bytes: they must be whole spans of {}, and the addresses "
                     "whole chunks",
                     options.name, chunk_bytes, kSpanBytes);
    }
    try {
        std::unique_ptr<Heap> heap(new Heap(std::move(backing), options));
        heap->caches_ = std::make_shared<HeapCaches>();
        FROSTLINE_TRY_VOID(heap->set_up());
        return heap;
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "making {}", options.name);
    }
}

template <HeapBacking Backing>
Result<void> Heap<Backing>::set_up() {
    const std::uint64_t chunk_bytes = backing_->chunk_bytes();
    FROSTLINE_TRY(fork_guard_, ForkGuard::create());
    if (options_.debug) places_ = std::make_unique<HeapPlaces>();
    FROSTLINE_TRY(records_, RecordArena::create());
    FROSTLINE_TRY(large_, HeapSpace::create({addresses_.address, addresses_.large_bytes,
                                             chunk_bytes, records_.get(), keeps_runs()}));
    FROSTLINE_TRY(small_, HeapSpace::create({addresses_.small(), addresses_.small_bytes,
                                             chunk_bytes, records_.get(), keeps_runs()}));
    FROSTLINE_TRY(spans_,
                  SlotSpans::create({addresses_.small(), addresses_.small_bytes, records_.get()}));
    windows_ = std::make_unique<FreeExtents>(addresses_.window_bytes);
    return ok();
}

// Errors have nowhere to go here: what the backing does not take back ends with the backing.
template <HeapBacking Backing>
Heap<Backing>::~Heap() {
    if (spans_ == nullptr || fork_guard_->in_child()) return;  // was never set up, or is not ours
    drain_caches();
    if (!wait_for_each_stream()) (void)backing_->wait_for_all();
    const std::lock_guard lock(mutex_);
    settle_others(kNoStream);
    for (const auto& [address, window] : open_windows_) {
        (void)backing_->unmap_window(address, mappings_of(*window, large_->chunk_bytes()).chunks);
    }
    for (const HeapSpace* const space : {large_.get(), small_.get()}) {
        space->for_each_backed([&](std::uint64_t address, std::uint64_t size_bytes) {
            (void)backing_->unback(address, size_bytes / space->chunk_bytes());
            refund(size_bytes);
        });
    }
}

// One after the other, because a list of them might find no memory. False: of some stream nothing
// but the whole device tells when its work is done. That is not asked for one that is being
// captured, which would spoil the capture.
template <HeapBacking Backing>
bool Heap<Backing>::wait_for_each_stream() noexcept {
    bool all = true;
    for (std::size_t i = 1; i <= ledger_.count(); ++i) {
        // Behind the work of what still lives, too.
        const Result<void> marked = ledger_.mark(static_cast<StreamTag>(i));
        all = all && (marked || marked.error().code() == Errc::busy);
    }
    for (std::size_t i = 1; i <= ledger_.count(); ++i) {
        const EventRef last = ledger_.last_mark(static_cast<StreamTag>(i));
        if (last != nullptr) all = backing_->wait(*last).has_value() && all;
    }
    return all;
}

template <HeapBacking Backing>
void Heap<Backing>::begin_step() noexcept {
    if (!options_.traced || fork_guard_->in_child()) return;
    const std::lock_guard lock(mutex_);
    trace_.add(uncached_.events, {0, 0, 0, HeapEvent::Kind::step});
}

template <HeapBacking Backing>
std::string Heap<Backing>::trace() const {
    if (!options_.traced || fork_guard_->in_child()) return {};
    std::vector<std::vector<HeapEvent>> lists;
    {
        const std::lock_guard lock(mutex_);
        lists.push_back(uncached_.events);
    }
    caches_->for_each_locked([&](const ThreadCache& cache) { lists.push_back(cache.events); });
    return HeapTrace::text(lists);
}

// For calls that leave the block alive: whoever makes one must keep others from freeing it.
template <HeapBacking Backing>
Result<typename Heap<Backing>::Found> Heap<Backing>::find_living(const void* block) const noexcept {
    if (fork_guard_->in_child()) return forked();
    const auto address = reinterpret_cast<std::uint64_t>(block);
    const Found found = find_surely(address);
    if (found.record == nullptr ||
        found.record->state.load(std::memory_order_acquire) != AllocationState::live) {
        return misuse(address, nullptr);
    }
    return found;
}

template <HeapBacking Backing>
bool Heap<Backing>::owns(const void* address) const noexcept {
    return reinterpret_cast<std::uint64_t>(address) - addresses_.address < addresses_.size_bytes();
}

template <HeapBacking Backing>
Result<HeapAllocation> Heap<Backing>::describe(const void* block) const {
    FROSTLINE_TRY(const Found found, find_living(block));
    const auto address = reinterpret_cast<std::uint64_t>(block);
    HeapAllocation described = allocation(address, *found.record);
    if (places_ != nullptr) described.place = HeapPlaces::story(places_->of(address));
    return described;
}

template <HeapBacking Backing>
HeapAllocation Heap<Backing>::allocation(std::uint64_t address,
                                         const AllocationRecord& record) const {
    return {address,
            record.size_bytes,
            TensorId{records_->number_of(&record), record.generation},
            HeapClock::number_in(record.birth),
            clock_.age_s(record.birth),
            {}};
}

template <HeapBacking Backing>
HeapStatistics Heap<Backing>::statistics() const noexcept {
    if (fork_guard_->in_child()) return {};
    const std::lock_guard lock(mutex_);
    CacheCounts sum = uncached_.counts;
    const std::int64_t noted = noted_live_bytes_.load(std::memory_order_relaxed);
    std::int64_t peak =
        std::max(peak_live_bytes_.load(std::memory_order_relaxed), noted + sum.unnoted_peak_bytes);
    caches_->for_each_locked([&](const ThreadCache& cache) {
        peak = std::max(peak, noted + cache.counts.unnoted_peak_bytes);
        sum.live_bytes += cache.counts.live_bytes;
        sum.live_block_bytes += cache.counts.live_block_bytes;
        sum.live_blocks += cache.counts.live_blocks;
        sum.births += cache.counts.births;
        sum.cached_bytes += cache.counts.cached_bytes;
    });
    HeapStatistics statistics;
    statistics.live = static_cast<std::uint64_t>(sum.live_bytes);
    statistics.live_block = static_cast<std::uint64_t>(sum.live_block_bytes);
    statistics.live_blocks = static_cast<std::uint64_t>(sum.live_blocks);
    statistics.peak_live = std::max(statistics.live, static_cast<std::uint64_t>(peak));
    statistics.births = sum.births;
    statistics.cached = sum.cached_bytes;
    statistics.free = large_->free_bytes() + small_->free_bytes() + spans_->free_bytes();
    statistics.pending = pending_bytes_;
    for (std::size_t i = 1; i <= ledger_.count(); ++i) {
        const auto tag = static_cast<StreamTag>(i);
        if (ledger_.is_lost(tag)) statistics.lost += free_bytes_of(tag);
    }
    if constexpr (KeepsSpares<Backing>) statistics.cached += backing_->spare_bytes();
    statistics.mapped = mapped_bytes();
    statistics.peak_mapped = peak_mapped_bytes_;
    statistics.reserved = addresses_.size_bytes();
    statistics.windows = window_bytes_;
    statistics.pinned = backing_->pinned_bytes();
    statistics.metadata = records_->touched_bytes() + index_.size_bytes();
    statistics.misuses = misuses_.load(std::memory_order_relaxed);
    return statistics;
}

// Records are read while all threads are kept from their caches, which hand them out and take them
// back; names of places are looked up when none is any longer.
template <HeapBacking Backing>
std::vector<HeapAllocation> Heap<Backing>::live() const {
    std::vector<HeapAllocation> living;
    std::vector<HeapPlaces::Places> places;
    if (fork_guard_->in_child()) return living;
    const auto visit = [&](std::uint64_t address, const AllocationRecord& record) {
        if (record.state.load(std::memory_order_acquire) != AllocationState::live) return;
        living.push_back(allocation(address, record));
        if (places_ != nullptr) places.push_back(places_->of(address));
    };
    {
        const std::lock_guard lock(mutex_);
        caches_->while_locked([&] {
            large_->for_each_held(visit);
            small_->for_each_held([&](std::uint64_t address, const AllocationRecord& record) {
                HeapSpan* const span = spans_->span_at(address);
                span == nullptr ? visit(address, record) : SlotSpans::for_each_slot(*span, visit);
            });
            for (const auto& [address, window] : open_windows_) {
                visit(window->address, window->record);
            }
        });
    }
    for (std::size_t i = 0; i < places.size(); ++i) {
        living[i].place = HeapPlaces::story(places[i]);
    }
    std::sort(living.begin(), living.end(),
              [](const auto& a, const auto& b) { return a.birth < b.birth; });
    return living;
}

template <HeapBacking Backing>
void Heap<Backing>::check() const {
    const std::lock_guard lock(mutex_);
    large_->check();
    small_->check();
}

}  // namespace frostline
