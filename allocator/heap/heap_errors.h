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
                     "{}: alignment {} is not a power of two of at most {}", options_.name,
                     alignment_bytes, kMostAlignment);
    }
    return Error(Errc::no_space, 0, "{}: {} bytes are more than its whole budget of {}",
                 options_.name, size_bytes, capacity_bytes_);
}

template <HeapBacking Backing>
Error Heap<Backing>::out_of_records() const noexcept {
    return Error(Errc::out_of_memory, 0, "no memory for the records of {}", options_.name);
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
                 "free but in no piece that is large enough, {:.2f} belong to streams that take no "
                 "event, {:.2f} "
                 "wait for other streams; {}",
                 options_.name, request.size_bytes, mib(backed_bytes()), mib(capacity_bytes_),
                 mib(free), mib(of_streams), mib(pending_bytes_), advice().message());
}

// What to do about a request for which there is no room.
template <HeapBacking Backing>
Error Heap<Backing>::advice() const noexcept {
    if (const StreamTag lost = ledger_.any_lost(); lost != kNoStream)
        return ledger_.destroyed(lost);
    if (refused_.has_value()) return *refused_;
    return Error(Errc::no_space, 0, "free tensors, or raise the budget");
}

template <HeapBacking Backing>
Error Heap<Backing>::misuse(std::uint64_t address, const std::uint64_t* size_bytes) const noexcept {
    misuses_.fetch_add(1, std::memory_order_relaxed);
    const Error error = explain(address, size_bytes);
    if (options_.on_misuse) options_.on_misuse(error);
    return error;
}

template <HeapBacking Backing>
Error Heap<Backing>::explain(std::uint64_t address,
                             const std::uint64_t* size_bytes) const noexcept {
    if (address - addresses_.address >= addresses_.size_bytes()) {
        return Error(Errc::invalid_argument, 0, "{:#x} is not an address of {}", address,
                     options_.name);
    }
    const std::lock_guard lock(mutex_);
    const Found found = find(address);
    if (found.record == nullptr) {
        return Error(
            Errc::invalid_argument, 0,
            "no block of {} starts at {:#x}: it was freed before, or lies inside another{}",
            options_.name, address, story(address));
    }
    const AllocationRecord& record = *found.record;
    if (record.state.load(std::memory_order_relaxed) != AllocationState::live) {
        return Error(Errc::invalid_argument, 0,
                     "the block of {} at {:#x} was freed already (allocation {}, {} bytes){}",
                     options_.name, address, HeapClock::number_in(record.birth), record.size_bytes,
                     story(address));
    }
    return Error(
        Errc::invalid_argument, 0,
        "the block of {} at {:#x} has {} bytes, and {} are to be freed; nothing was freed{}",
        options_.name, address, record.size_bytes, size_bytes == nullptr ? 0 : *size_bytes,
        story(address));
}

template <HeapBacking Backing>
std::string Heap<Backing>::story(std::uint64_t address) const noexcept {
    try {
        const std::string story = places_ == nullptr ? std::string() : places_->story(address);
        return story.empty() ? story : "; " + story;
    } catch (const std::bad_alloc&) {
        return {};
    }
}

}  // namespace frostline
