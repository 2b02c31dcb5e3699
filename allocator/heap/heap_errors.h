// What a heap says when it refuses: what, where, and what to do.
// Part of heap.h, for those who instantiate Heap.
#pragma once

#include "allocator/heap/heap.h"

namespace frostline {

template <HeapBacking Backing>
Error Heap<Backing>::forked() const noexcept {
    return Error(Errc::busy, 0,
                 "{} belongs to the process that made it, and this is a forked child of that: make "
                 "a heap of its own there, or start children before the heap",
                 options_.name);
}

template <HeapBacking Backing>
Error Heap<Backing>::refuse(std::uint64_t size_bytes,
                            std::uint64_t alignment_bytes) const noexcept {
    if (!usable(alignment_bytes)) {
        return Error(Errc::invalid_argument, 0,
                     "{}: alignment {} is not a power of two of at most {}: give one that is",
                     options_.name, alignment_bytes, kMostAlignment);
    }
    return Error(Errc::no_space, 0,
                 "{}: {} bytes are more than its whole budget of {}: ask for less, or open it with "
                 "more capacity",
                 options_.name, size_bytes, capacity_bytes_);
}

template <HeapBacking Backing>
Error Heap<Backing>::out_of_records() const noexcept {
    return Error(Errc::out_of_memory, 0,
                 "no memory for the records of {}: free some of the process's, or raise its limits "
                 "(ulimit -v and -d, vm.overcommit_memory)",
                 options_.name);
}

template <HeapBacking Backing>
Error Heap<Backing>::no_room(const Request& request) const noexcept {
    constexpr double kMiB = 1 << 20;
    const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / kMiB; };
    std::uint64_t of_streams = 0;
    for (std::size_t i = 1; i <= ledger_.count(); ++i) {
        if (i != request.tag) of_streams += free_bytes_of(static_cast<StreamTag>(i));
    }
    const std::uint64_t free =
        large_->free_bytes() + small_->free_bytes() + spans_->free_bytes() - of_streams;
    return Error(Errc::no_space, 0,
                 "{}: no room for {} bytes: {:.2f} of {:.2f} MiB are mapped, of which {:.2f} are "
                 "free in pieces that are too small, {:.2f} belong to streams that take no event, "
                 "{:.2f} wait for other streams, and the rest is in use; {}",
                 options_.name, request.size_bytes, mib(backed_bytes()), mib(capacity_bytes_),
                 mib(free), mib(of_streams), mib(pending_bytes_), advice().message());
}

// What to do about a request for which there is no room.
template <HeapBacking Backing>
Error Heap<Backing>::advice() const noexcept {
    if (const StreamTag lost = ledger_.any_lost(); lost != kNoStream)
        return ledger_.destroyed(lost);
    if (refused_.has_value()) return *refused_;
    return Error(Errc::no_space, 0, "free some, or raise the capacity (PyTorch's: the budget)");
}

// Names of places are looked up behind the locks under which the misuse was explained.
template <HeapBacking Backing>
Error Heap<Backing>::misuse(std::uint64_t address, const std::uint64_t* size_bytes) const noexcept {
    misuses_.fetch_add(1, std::memory_order_relaxed);
    Misuse misuse = [&]() -> Misuse {
        if (!owns(reinterpret_cast<void*>(address))) {
            return {Error(Errc::invalid_argument, 0,
                          "{:#x} is not an address of {}: give it to where it came from", address,
                          options_.name)};
        }
        const std::lock_guard lock(mutex_);
        std::optional<Misuse> explained;
        caches_->while_locked([&] { explained = explain(address, size_bytes); });
        return *explained;
    }();
    if (places_ != nullptr && misuse.block != 0) {
        misuse.error = with_places(misuse.error, places_->of(misuse.block));
    }
    if (options_.on_misuse) options_.on_misuse(misuse.error);
    return misuse.error;
}

template <HeapBacking Backing>
Error Heap<Backing>::with_places(const Error& error, const HeapPlaces::Places& places) noexcept {
    constexpr std::string_view kBetween = "; ";
    const std::string_view words = error.message();
    const std::size_t used = words.size() + kBetween.size() + 1;
    if (used >= Error::kMaxMessage) return error;
    try {
        const std::string story = HeapPlaces::story(places, Error::kMaxMessage - used);
        if (story.empty()) return error;
        return Error(error.code(), 0, "{}{}{}", words, kBetween, story);
    } catch (const std::bad_alloc&) {
        return error;  // told without places
    }
}

// Under the heap's lock, and all threads are kept from their caches: records stay as they are.
template <HeapBacking Backing>
typename Heap<Backing>::Misuse Heap<Backing>::explain(
    std::uint64_t address, const std::uint64_t* size_bytes) const noexcept {
    const Found found = find(address);
    if (found.record == nullptr || HeapClock::number_in(found.record->birth) == 0) {
        return explain_inside(address);
    }
    const AllocationRecord& record = *found.record;
    if (record.state.load(std::memory_order_relaxed) != AllocationState::live) {
        return {
            Error(Errc::invalid_argument, 0,
                  "the block of {} at {:#x} was freed already (allocation {}, {} bytes): free "
                  "it once",
                  options_.name, address, HeapClock::number_in(record.birth), record.size_bytes),
            address};
    }
    return {
        Error(Errc::invalid_argument, 0,
              "the block of {} at {:#x} has {} bytes, and {} are to be freed; nothing was "
              "freed: give the size that was asked for",
              options_.name, address, record.size_bytes, size_bytes == nullptr ? 0 : *size_bytes),
        address};
}

template <HeapBacking Backing>
typename Heap<Backing>::Misuse Heap<Backing>::explain_inside(std::uint64_t address) const noexcept {
    const Around outer = around(address);
    if (outer.address == 0) {
        return {Error(Errc::invalid_argument, 0,
                      "no block of {} starts at {:#x}: it was freed before, or never handed out",
                      options_.name, address),
                address};
    }
    const AllocationRecord& record = *outer.record;
    return {Error(Errc::invalid_argument, 0,
                  "no block of {} starts at {:#x}: it lies {} bytes inside another, at {:#x}, of "
                  "{} bytes (allocation {}, {:.1f} s old{}): give the block's start",
                  options_.name, address, address - outer.address, outer.address, record.size_bytes,
                  HeapClock::number_in(record.birth), clock_.age_s(record.birth),
                  record.state.load(std::memory_order_relaxed) == AllocationState::live
                      ? ""
                      : ", freed already"),
            outer.address};
}

// Looks at every block: nobody but a misuse asks.
template <HeapBacking Backing>
typename Heap<Backing>::Around Heap<Backing>::around(std::uint64_t address) const noexcept {
    Around outer;
    const auto visit = [&](std::uint64_t start, const AllocationRecord& record) {
        // No slots come here: what they span is not what other blocks of their size do.
        const std::uint64_t bytes = block_bytes_for(record.size_bytes, kMostAlignment);
        const bool known = HeapClock::number_in(record.birth) != 0 &&
                           record.state.load(std::memory_order_relaxed) != AllocationState::vacant;
        if (known && address - start < bytes) outer = {start, &record};
    };
    if (HeapSpan* const span = spans_->span_at(address); span != nullptr) {
        SlotSpans::for_each_slot(*span, [&](std::uint64_t start, const AllocationRecord& record) {
            const bool known = HeapClock::number_in(record.birth) != 0;
            if (known && address - start < span->slot_bytes()) outer = {start, &record};
        });
        return outer;
    }
    large_->for_each_held(visit);
    small_->for_each_held(visit);
    for (const auto& [start, window] : open_windows_) visit(window->address, window->record);
    return outer;
}

}  // namespace frostline
