// A heap's backing without memory: it remembers what is behind which address, counts its calls,
// refuses those that a test names, and notes every call that breaks the rules of HeapBacking.
#pragma once

#include "allocator/heap/heap.h"
#include "tests/allocator/heap/recorded_streams.h"
#include "tests/tiers/allocation_faults.h"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>

namespace frostline {

enum class BackingCall : std::uint8_t {
    back,
    unback,
    map,
    unmap,
    mark,
    passed,
    wait,
    order,
    wait_for_all
};
inline constexpr std::size_t kBackingCalls = 9;

/// What a backing holds; outlives it, so that a test sees what the heap's end has left.
/// Thread-safe.
class RecordedMemory {
   public:
    struct Options {
        std::uint64_t chunk_bytes = std::uint64_t{256} << 10;
        std::uint64_t large_chunks = 256;
        std::uint64_t small_chunks = 64;
        std::uint64_t window_chunks = 512;
        std::uint64_t capacity_chunks = 64;
    };
    explicit RecordedMemory(const Options& options) : options_(options) {}

    const Options& options() const { return options_; }
    HeapAddresses addresses() const {
        const std::uint64_t chunk = options_.chunk_bytes;
        return {kAddress, options_.large_chunks * chunk, options_.small_chunks * chunk,
                options_.window_chunks * chunk};
    }

    /// The `nth` of these calls from now on fails (and with `for_good` every later one).
    void refuse(BackingCall call, unsigned nth, Errc code = Errc::io, bool for_good = false) {
        const std::lock_guard lock(mutex);
        Refusal& refusal = refusals_[static_cast<std::size_t>(call)];
        refusal = {refusal.calls, nth == 0 ? 0 : refusal.calls + nth, for_good, code};
    }
    unsigned calls(BackingCall call) const {
        const std::lock_guard lock(mutex);
        return refusals_[static_cast<std::size_t>(call)].calls;
    }
    /// Others have taken the rest: the budget promises more than the device has.
    void leave_chunks(std::uint64_t chunks) {
        const std::lock_guard lock(mutex);
        available_ = chunks;
    }

    std::size_t backed_chunks() const {
        const std::lock_guard lock(mutex);
        return homes_.size();
    }
    std::size_t window_chunks() const {
        const std::lock_guard lock(mutex);
        return windows_.size();
    }
    bool is_backed(std::uint64_t address) const {
        const std::lock_guard lock(mutex);
        return homes_.contains(chunk_of(address));
    }
    /// The memory behind an address: which chunk of all that were ever made, and where in it.
    std::pair<std::uint64_t, std::uint64_t> memory_at(std::uint64_t address) {
        const std::lock_guard lock(mutex);
        const std::uint64_t chunk = chunk_of(address);
        if (const auto home = homes_.find(chunk); home != homes_.end()) {
            return {home->second, address - chunk};
        }
        if (const auto window = windows_.find(chunk); window != windows_.end()) {
            return {window->second, address - chunk};
        }
        object("a block at an address that has no memory");
        return {0, 0};
    }
    /// What was done against the rules, a line each.
    std::string misuse() const {
        const std::lock_guard lock(mutex);
        return misuse_;
    }
    void object(const std::string& what) {
        const std::lock_guard lock(mutex);
        misuse_ += what + '\n';
    }

    // The backing's side.
    Result<void> back(std::uint64_t address, std::uint64_t chunks) {
        const std::lock_guard lock(mutex);
        if (const auto error = refused(BackingCall::back)) return *error;
        if (homes_.size() + chunks > available_) return Error(Errc::no_space, 0, "device is full");
        if (homes_.size() + chunks > options_.capacity_chunks) object("more than the budget");
        for (std::uint64_t i = 0; i < chunks; ++i) {
            const std::uint64_t at = address + i * options_.chunk_bytes;
            if (at % options_.chunk_bytes != 0 || at - kAddress >= addresses().windows() - kAddress)
                object("memory where none belongs");
            if (homes_.contains(at)) return Error(Errc::io, 0, "there is memory already");
            homes_[at] = ++made_;
        }
        return ok();
    }
    Result<void> unback(std::uint64_t address, std::uint64_t chunks) {
        const std::lock_guard lock(mutex);
        if (const auto error = refused(BackingCall::unback)) return *error;
        for (std::uint64_t i = 0; i < chunks; ++i) {
            const auto home = homes_.find(address + i * options_.chunk_bytes);
            if (home == homes_.end()) {
                object("taking memory from where there is none");
                continue;
            }
            for (const auto& [at, memory] : windows_) {
                if (memory == home->second) object("taking memory that a window shows");
            }
            if (on_unback) on_unback(home->second);
            homes_.erase(home);
        }
        return ok();
    }
    Result<void> map(std::uint64_t address, std::span<const std::uint64_t> homes) {
        const std::lock_guard lock(mutex);
        if (const auto error = refused(BackingCall::map)) return *error;
        for (std::size_t i = 0; i < homes.size(); ++i) {
            const std::uint64_t at = address + i * options_.chunk_bytes;
            if (at < addresses().windows() || at >= kAddress + addresses().size_bytes() ||
                at % options_.chunk_bytes != 0) {
                object("a window where none belongs");
            }
            if (kept_.contains(at)) object("a window over one that could not be closed");
            if (!homes_.contains(homes[i])) object("a window over no memory");
            if (!windows_.emplace(at, homes_[homes[i]]).second) object("a window over a window");
        }
        return ok();
    }
    Result<void> unmap(std::uint64_t address, std::uint64_t chunks) {
        const std::lock_guard lock(mutex);
        if (const auto error = refused(BackingCall::unmap)) {
            for (std::uint64_t i = 0; i < chunks; ++i) {
                windows_.erase(address + i * options_.chunk_bytes);
                kept_.insert(address + i * options_.chunk_bytes);
            }
            return *error;
        }
        for (std::uint64_t i = 0; i < chunks; ++i) {
            const std::uint64_t at = address + i * options_.chunk_bytes;
            if (windows_.erase(at) == 0) object("closing a window that is not open");
            if (on_unmap) on_unmap(at);
        }
        return ok();
    }
    std::optional<Error> refused(BackingCall call) {
        Refusal& refusal = refusals_[static_cast<std::size_t>(call)];
        ++refusal.calls;
        const bool now = refusal.at != 0 && (refusal.for_good ? refusal.calls >= refusal.at
                                                              : refusal.calls == refusal.at);
        if (!now) return std::nullopt;
        return Error(refusal.code, 0, "refused, as the test asked for");
    }

    mutable std::recursive_mutex mutex;  // guards all of it; a test may hold it, too
    RecordedStreams streams;
    unsigned questions = 0;  // whether a stream takes an event
    std::function<void(std::uint64_t memory)> on_unback;
    std::function<void(std::uint64_t address)> on_unmap;

    static constexpr std::uint64_t kAddress = std::uint64_t{1} << 44;

   private:
    struct Refusal {
        unsigned calls = 0;
        unsigned at = 0;
        bool for_good = false;
        Errc code = Errc::io;
    };
    std::uint64_t chunk_of(std::uint64_t address) const {
        return address / options_.chunk_bytes * options_.chunk_bytes;
    }

    const Options options_;
    std::array<Refusal, kBackingCalls> refusals_{};
    std::uint64_t available_ = UINT64_MAX;
    std::uint64_t made_ = 0;
    std::map<std::uint64_t, std::uint64_t> homes_;    // address -> memory
    std::map<std::uint64_t, std::uint64_t> windows_;  // the same, a second time
    std::set<std::uint64_t> kept_;                    // windows that could not be closed
    std::string misuse_;
};

template <bool kDevice>
class RecordedBacking {
   public:
    static constexpr bool kMakesWindows = kDevice;
    static constexpr bool kHasStreams = kDevice;
    using Event = RecordedStreams::Event;

    explicit RecordedBacking(std::shared_ptr<RecordedMemory> memory) : memory_(std::move(memory)) {}

    HeapAddresses addresses() const { return memory_->addresses(); }
    std::uint64_t chunk_bytes() const { return memory_->options().chunk_bytes; }
    std::uint64_t capacity_bytes() const {
        return memory_->options().capacity_chunks * chunk_bytes();
    }
    std::uint64_t pinned_bytes() const { return 0; }
    Result<void> back(std::uint64_t address, std::uint64_t chunks) {
        const SparedAllocations spared;
        return memory_->back(address, chunks);
    }
    Result<void> unback(std::uint64_t address, std::uint64_t chunks) {
        const SparedAllocations spared;
        return memory_->unback(address, chunks);
    }
    Result<void> map_window(std::uint64_t address, std::span<const std::uint64_t> homes) {
        const SparedAllocations spared;
        return memory_->map(address, homes);
    }
    Result<void> unmap_window(std::uint64_t address, std::uint64_t chunks) {
        const SparedAllocations spared;
        return memory_->unmap(address, chunks);
    }
    Result<bool> may_mark(StreamHandle stream) {
        const SparedAllocations spared;
        const std::lock_guard lock(memory_->mutex);
        ++memory_->questions;
        if (memory_->streams.destroyed(stream)) return Error(Errc::not_found, 0, "destroyed");
        return !memory_->streams.captured(stream);
    }
    Result<Event> mark(StreamHandle stream) {
        const SparedAllocations spared;
        const std::lock_guard lock(memory_->mutex);
        if (memory_->streams.captured(stream)) memory_->object("an event in a captured stream");
        if (memory_->streams.destroyed(stream)) memory_->object("an event on a destroyed stream");
        if (const auto error = memory_->refused(BackingCall::mark)) return *error;
        return memory_->streams.mark(stream);
    }
    Result<bool> passed(Event& event) {
        const SparedAllocations spared;
        const std::lock_guard lock(memory_->mutex);
        if (const auto error = memory_->refused(BackingCall::passed)) return *error;
        return memory_->streams.passed(event);
    }
    Result<void> wait(Event& event) {
        const SparedAllocations spared;
        const std::lock_guard lock(memory_->mutex);
        if (const auto error = memory_->refused(BackingCall::wait)) return *error;
        memory_->streams.wait(event);
        return ok();
    }
    Result<void> order(StreamHandle stream, Event& event) {
        const SparedAllocations spared;
        const std::lock_guard lock(memory_->mutex);
        if (memory_->streams.captured(stream)) memory_->object("a captured stream made to wait");
        if (const auto error = memory_->refused(BackingCall::order)) return *error;
        memory_->streams.order(stream, event);
        return ok();
    }
    Result<void> wait_for_all() {
        const SparedAllocations spared;
        const std::lock_guard lock(memory_->mutex);
        if (const auto error = memory_->refused(BackingCall::wait_for_all)) return *error;
        memory_->streams.finish_all();
        return ok();
    }

   private:
    const std::shared_ptr<RecordedMemory> memory_;
};

using RecordedDevice = RecordedBacking<true>;
using RecordedHost = RecordedBacking<false>;
extern template class Heap<RecordedDevice>;
extern template class Heap<RecordedHost>;

}  // namespace frostline
