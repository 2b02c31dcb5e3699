// A heap hands out memory in blocks and takes it back, for one backing. Everything that it knows of
// them lies outside that memory.
//
// Two layers. A thread's cache serves most requests: it holds blocks that the thread freed, by size
// and stream. Behind it, under the heap's lock, lies the free memory: large blocks and small ones
// in chunks of their own (two HeapSpaces), because small ones live long among short-lived large
// ones, and one would keep a chunk from ever being whole again; slots (SlotSpans) for the smallest.
// What the caches hold goes back there before the heap takes any new memory from its backing, so
// that caching never costs memory. One exception: small memory may grow by half before a thread's
// slots are taken from it for another's.
//
// Slots are always cached, and come to a thread by the span. Blocks are once the heap has served
// many without a new chunk: a cached block keeps its place, where best fit would have chosen a
// better one, and a heap that still grows pays for that with memory. Each time that caching was
// followed by growth though enough was free, it has to wait twice as long for the next.
//
// Rule of streams: memory that was freed on a stream is used again on it at once; on another stream
// after an event behind all work that was queued there when it was freed, on every stream that used
// it. Nobody waits for an event while there is other memory. A stream that is to be destroyed is
// forgotten first, and its work ended by one last event.
//
// Locks, in the order in which they are taken: the heap's, the list of caches, one cache, the list
// of places.
#pragma once

#include "allocator/heap/address_index.h"
#include "allocator/heap/fork_guard.h"
#include "allocator/heap/heap_backing.h"
#include "allocator/heap/heap_caches.h"
#include "allocator/heap/heap_clock.h"
#include "allocator/heap/heap_options.h"
#include "allocator/heap/heap_places.h"
#include "allocator/heap/heap_space.h"
#include "allocator/heap/heap_statistics.h"
#include "allocator/heap/heap_trace.h"
#include "allocator/heap/record_arena.h"
#include "allocator/heap/slot_spans.h"
#include "allocator/heap/stitch_plan.h"
#include "allocator/heap/stream_ledger.h"
#include "allocator/heap/stream_uses.h"
#include "allocator/tensor_id.h"
#include "tiers/free_extents.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace frostline {

/// Thread-safe. Outlives nothing: end it when nobody uses its memory any longer.
template <HeapBacking Backing>
class Heap {
   public:
    /// Errors: invalid_argument (options, or a backing whose parts are no whole chunks),
    /// out_of_memory, unsupported (no way to recognise forked children).
    static Result<std::unique_ptr<Heap>> create(std::unique_ptr<Backing> backing,
                                                const HeapOptions& options) noexcept;
    Heap(const Heap&) = delete;
    Heap& operator=(const Heap&) = delete;
    /// Waits for the streams that use freed memory and returns everything to the backing. What
    /// still lives is memory no longer: whoever wants that told asks live() before.
    ~Heap();

    /// `size_bytes` for work on `stream`, at a multiple of `alignment_bytes`, a power of two (512
    /// in any case). Null for no bytes. The content is undefined. Budget: 20 ns where the thread
    /// freed a block of this size before. Errors: no_space (with where the memory is), busy (in a
    /// forked child), invalid_argument, out_of_memory (for the heap's own records), the backing's.
    Result<void*> allocate(std::uint64_t size_bytes, StreamHandle stream = 0,
                           std::uint64_t alignment_bytes = kSlotUnitBytes) noexcept;

    /// Takes back what allocate() gave; null is nothing. Work on the block's own stream, and on
    /// those that record_stream() named, may still be queued. Any thread. Budget: 20 ns. Errors:
    /// invalid_argument (no live block starts there, and what is there instead), busy (in a forked
    /// child).
    Result<void> free(void* block) noexcept;
    /// The same, and the size must be the one that was asked for, or nothing is done.
    Result<void> free(void* block, std::uint64_t size_bytes) noexcept;

    /// The block is used by work on `stream`, too: after free() its memory waits for what was
    /// queued there until then. Errors: as free(); out_of_memory.
    Result<void> record_stream(void* block, StreamHandle stream) noexcept;

    /// The stream is about to be destroyed, or not to be used with this heap again; its work may
    /// still be queued, and blocks of it may live. The heap will not ask the driver about it any
    /// more, and what was freed on it, or will be, is anybody's when that work is done. If it was
    /// destroyed already, the whole device is waited for instead. Nothing happens where the heap
    /// does not know the stream. No other call names it meanwhile. Errors: busy (it is being
    /// captured, or another is while the device would have to be waited for; a forked child),
    /// out_of_memory, the backing's: then call it again.
    Result<void> forget_stream(StreamHandle stream) noexcept;

    /// Size, id and birth of the live block that starts there. Errors: as free().
    /// May throw std::bad_alloc if the options say `debug`.
    Result<HeapAllocation> describe(const void* block) const;
    /// Whether the address lies in what this heap hands out from.
    bool owns(const void* address) const noexcept;

    /// Returns to the backing whatever chunks nobody uses, after waiting for streams if `wait`.
    /// Says how many bytes. Errors: the backing's, once for each that it did not take; the others
    /// are returned all the same.
    Result<std::uint64_t> trim(bool wait = false) noexcept;

    /// Exact while no thread is in a call of this heap, and else within what those calls change.
    /// Zeros in a forked child.
    HeapStatistics statistics() const noexcept;

    /// What lives, in the order of birth; nothing in a forked child. May throw std::bad_alloc.
    std::vector<HeapAllocation> live() const;

    /// A step begins: a line of the trace.
    void begin_step() noexcept;
    /// What the heap recorded since it was made, as heap_trace.h says; empty unless the options say
    /// `traced`. Whether anything is missing: trace_complete(). May throw std::bad_alloc.
    std::string trace() const;
    bool trace_complete() const noexcept { return trace_.complete(); }

    const HeapOptions& options() const noexcept { return options_; }
    std::uint64_t capacity_bytes() const noexcept { return capacity_bytes_; }
    Backing& backing() noexcept { return *backing_; }

    /// Ends the program where a rule of the heap is broken. For tests; nobody else uses the heap.
    void check() const;

   private:
    using EventRef = std::shared_ptr<typename Backing::Event>;

    // What an address names: a slot of a span, or a block.
    struct Found {
        AllocationRecord* record = nullptr;
        HeapSpan* span = nullptr;
        HeapBlock* block = nullptr;

        /// For whoever claimed the record: a block may be cut and joined while it is nobody's.
        std::uint64_t block_bytes() const noexcept {
            return span != nullptr ? span->slot_bytes() : block->size_bytes;
        }
    };
    struct Request {
        std::uint64_t size_bytes = 0;
        std::uint64_t alignment_bytes = 0;
        std::uint64_t block_bytes = 0;  // as spanned
        StreamTag tag = kNoStream;
    };
    // The addresses of a window that was freed: work on its stream may still use them, and so the
    // chunks that it shows.
    struct Shown {
        std::uint64_t chunk = 0;
        std::uint64_t window = 0;  // its first address
    };
    struct Retired {
        std::uint64_t address = 0;
        std::uint64_t chunks = 0;
        StreamTag tag = kNoStream;
        std::uint64_t epoch = 0;
    };

    Heap(std::unique_ptr<Backing> backing, const HeapOptions& options);
    Result<void> set_up();
    bool wait_for_each_stream() noexcept;
    HeapAllocation allocation(std::uint64_t address, const AllocationRecord& record) const;

    // heap_fast.h. What is used there before it is defined says here that it is to be inlined: the
    // compiler goes by this.
    Result<HeapThread*> thread_for(StreamHandle stream) noexcept;
    static bool names(const HeapThread& thread, StreamHandle stream) noexcept {
        return !Backing::kHasStreams || (thread.stream == stream && thread.tag != kNoStream);
    }
    Result<StreamTag> admit(StreamHandle stream) noexcept;
    Result<void*> allocate_slowly(Request request, ThreadCache* cache,
                                  StreamHandle stream) noexcept;
    [[gnu::always_inline]] void begin_life(const Request& request, CachedBlock block,
                                           ThreadCache& cache) noexcept;
    [[gnu::always_inline]] void note_peak(CacheCounts& counts) noexcept;
    void tell_peak(CacheCounts& counts) noexcept;
    void note_birth(CachedBlock block, ThreadCache& cache) noexcept;
    void note(CachedBlock block, HeapEvent::Kind kind, ThreadCache& cache) noexcept;
    void note_death(CachedBlock block, ThreadCache& cache) noexcept;
    Found find(std::uint64_t address) const noexcept;
    Found find_locked(std::uint64_t address) const noexcept;
    Found find_surely(std::uint64_t address) const noexcept;
    Result<Found> find_living(const void* block) const noexcept;
    bool caches(std::uint64_t block_bytes) const noexcept {
        return block_bytes <= kLargestSlot || caches_blocks_.load(std::memory_order_relaxed);
    }
    static bool claim(const Found& found, std::uint64_t address) noexcept;
    [[gnu::always_inline]] Result<void> end_life(void* start,
                                                 const std::uint64_t* size_bytes) noexcept;
    void end_life_slowly(CachedBlock block, std::uint64_t block_bytes, HeapThread* thread) noexcept;
    void count_death(CachedBlock block, std::uint64_t block_bytes, ThreadCache& cache) noexcept;

    // heap_supply.h: all but the first two under mutex_
    static bool usable(std::uint64_t alignment_bytes) noexcept;
    static std::uint64_t block_bytes_for(std::uint64_t size_bytes,
                                         std::uint64_t alignment_bytes) noexcept;
    Result<CachedBlock> supply(const Request& request, ThreadCache* cache) noexcept;
    Result<CachedBlock> supply_or_wait(const Request& request, ThreadCache* cache,
                                       std::unique_lock<std::mutex>& lock) noexcept;
    void note_supply(const Request& request, bool scarce) noexcept;
    CachedBlock take_from_caches(const Request& request, ThreadCache* cache) noexcept;
    bool leaves_slots(ThreadCache& cache) noexcept;
    CachedBlock take_from_threads(const Request& request, ThreadCache* cache) noexcept;
    void fill_cache(const Request& request, CachedBlock served, ThreadCache& cache) noexcept;
    Result<CachedBlock> take_again(const Request& request) noexcept;
    Result<CachedBlock> take_grown(const Request& request) noexcept;
    Result<CachedBlock> take_elsewhere(const Request& request) noexcept;
    CachedBlock take_free(const Request& request) noexcept;
    CachedBlock take_slot(const Request& request) noexcept;
    static Request span_for(const Request& request) noexcept;
    HeapBlock* take_block(const Request& request) noexcept;
    HeapBlock* take_block_of(HeapSpace& space, const Request& request) noexcept;
    CachedBlock enter(HeapBlock& block) noexcept;
    Result<bool> grow(const Request& request) noexcept;
    HeapSpace& space_for(std::uint64_t block_bytes) noexcept {
        return block_bytes <= kMostSmallBytes ? *small_ : *large_;
    }
    bool make_allowance(std::uint64_t chunks, const Request& request,
                        const HeapBlock* beside) noexcept;
    bool has_room_for(std::uint64_t chunks) const noexcept;
    Result<bool> back(std::uint64_t address, std::uint64_t chunks,
                      const HeapBlock* beside) noexcept;
    bool ask_for_room(const Request& request, std::unique_lock<std::mutex>& lock) noexcept;

    // heap_streams.h: all under mutex_
    Result<void> mark(StreamTag tag) noexcept;
    Result<void> end_lost(StreamHandle stream, std::unique_lock<std::mutex>& lock) noexcept;
    void wait_elsewhere(CachedBlock block) noexcept;
    void poll_pending() noexcept;
    bool settle_others(StreamTag tag) noexcept;
    bool settle(StreamTag tag) noexcept;
    bool mark_freed(StreamTag tag) noexcept;
    bool borrow_from_streams(StreamTag tag) noexcept;
    std::vector<EventRef> events_ahead();
    bool wait_for_streams(std::unique_lock<std::mutex>& lock) noexcept;

    // heap_windows.h: all under mutex_
    CachedBlock take_stitched(const Request& request) noexcept;
    bool may_stitch(const Request& request) const noexcept;
    bool lend(const StitchPlan& plan, HeapBlock& window) noexcept;
    bool open_window(const StitchPlan& plan, HeapBlock& window) noexcept;
    std::uint64_t chunks_to_stitch(const Request& request, std::uint64_t at_most) const noexcept;

    // heap_return.h: all under mutex_
    void accept(CachedBlock block) noexcept;
    void take_back(HeapBlock& block, StreamTag tag) noexcept;
    void take_back_pieces(const HeapBlock& window, StreamTag tag) noexcept;
    static Retired mappings_of(const HeapBlock& window, std::uint64_t chunk_bytes) noexcept;
    void refund(std::uint64_t size_bytes) noexcept;
    bool drain_caches() noexcept;
    void close_retired() noexcept;
    std::uint64_t give_up_idle(std::uint64_t at_most, bool small_only, const HeapBlock* beside,
                               bool ask_again = false) noexcept;
    Result<void> give_up(HeapSpace& space, const HeapSpace::Idle& idle) noexcept;
    void note_refusal(const HeapSpace::Idle& idle, const Error& error,
                      std::set<std::uint64_t>& kept);

    // heap_errors.h
    Error forked() const noexcept;
    Error refuse(std::uint64_t size_bytes, std::uint64_t alignment_bytes) const noexcept;
    Error out_of_records() const noexcept;
    Error no_room(const Request& request) const noexcept;
    Error advice() const noexcept;
    Error misuse(std::uint64_t address, const std::uint64_t* size_bytes) const noexcept;
    // What is wrong with a call, and the block that it is about, if there is one.
    struct Misuse {
        Error error;
        std::uint64_t block = 0;
    };
    static Error with_places(const Error& error, const HeapPlaces::Places& places) noexcept;
    Misuse explain(std::uint64_t address, const std::uint64_t* size_bytes) const noexcept;
    Misuse explain_inside(std::uint64_t address) const noexcept;
    // A block of which an address is a part.
    struct Around {
        std::uint64_t address = 0;  // 0: there is none
        const AllocationRecord* record = nullptr;
    };
    Around around(std::uint64_t address) const noexcept;

    // Twice as much at a time, because reserve() takes no more than it is asked for.
    template <class Element>
    static void make_room(std::vector<Element>& list, std::size_t elements) {
        if (list.capacity() < elements) list.reserve(std::max(elements, 2 * list.capacity()));
    }
    std::uint64_t free_bytes_of(StreamTag tag) const noexcept {
        return large_->free_bytes(tag) + small_->free_bytes(tag);
    }
    std::uint64_t backed_bytes() const noexcept {
        return large_->backed_bytes() + small_->backed_bytes();
    }
    std::uint64_t mapped_bytes() const noexcept {
        if constexpr (KeepsSpares<Backing>) return backing_->held_bytes();
        return backed_bytes();
    }
    bool keeps_runs() const noexcept {
        if constexpr (KeepsRuns<Backing>) return backing_->keeps_runs();
        return false;
    }
    void note_mapped() noexcept {
        peak_mapped_bytes_ = std::max(peak_mapped_bytes_, mapped_bytes());
    }

    static constexpr std::uint64_t kMostSmallBytes = std::uint64_t{128} << 10;
    static_assert(kMostSmallBytes >= kSpanBytes);
    static constexpr std::uint64_t kFirstPatience = std::uint64_t{1} << 14;
    static constexpr std::uint64_t kBirthsAtOnce = 1024;
    static constexpr int kMostTries = 8;  // at making room for one request
    static constexpr std::uint64_t kMostAlignment = std::uint64_t{2} << 20;
    static constexpr std::int64_t kLeastPeakStepBytes = std::int64_t{1} << 20;
    static constexpr std::uint32_t kNumbersInARecord = RecordArena::kRecordBytes / 8;

    const std::unique_ptr<Backing> backing_;
    const HeapOptions options_;
    const HeapAddresses addresses_;
    const std::uint64_t capacity_bytes_;
    const std::int64_t peak_step_bytes_;
    const HeapClock clock_;
    const bool noting_;  // births and deaths are traced, or their places kept
    std::unique_ptr<ForkGuard> fork_guard_;
    std::unique_ptr<HeapPlaces> places_;  // null unless the options say `debug`
    HeapTrace trace_;
    std::shared_ptr<HeapCaches> caches_;
    // What threads write now and then, apart from what all of them read at every turn.
    alignas(64) std::atomic<std::uint64_t> next_birth_{1};
    mutable std::atomic<std::uint64_t> misuses_{0};
    std::atomic<std::int64_t> noted_live_bytes_{0};
    std::atomic<std::int64_t> peak_live_bytes_{0};

    // Guards everything below, but for what their own rules free.
    alignas(64) mutable std::mutex mutex_;
    alignas(64) std::unique_ptr<RecordArena> records_;
    std::unique_ptr<HeapSpace> large_;
    std::unique_ptr<HeapSpace> small_;  // blocks of up to kMostSmallBytes, spans among them
    std::unique_ptr<SlotSpans> spans_;
    std::atomic<bool> caches_blocks_{false};  // read without the lock
    AddressIndex index_;
    StreamLedger<Backing> ledger_;
    std::unique_ptr<FreeExtents> windows_;              // addresses for windows
    std::map<std::uint64_t, HeapBlock*> open_windows_;  // by where their mappings start
    StreamUses uses_;
    std::vector<Retired> retired_;
    std::vector<Shown> shown_;                // by the retired windows
    std::set<std::uint64_t> refused_chunks_;  // idle ones that the backing did not take
    std::optional<Error> not_taken_;          // why, if nobody was told yet
    ThreadCache uncached_;    // counts for threads that have no cache; never holds a block
    std::uint64_t calm_ = 0;  // blocks supplied since memory was scarce last
    std::uint64_t patience_ = kFirstPatience;
    std::uint64_t pending_bytes_ = 0;
    std::uint64_t window_bytes_ = 0;  // of addresses that are mapped, retired ones included
    std::uint64_t peak_mapped_bytes_ = 0;
    std::optional<Error> refused_;  // why the backing had no more for the present request
    bool gave_up_ = false;          // idle memory for it, because there was no other
};

}  // namespace frostline
