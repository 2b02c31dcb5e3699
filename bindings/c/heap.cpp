// The C interface over heaps: every call goes through a heap's name, which knows whether it may.
#include "frostline/heap.h"

#include "bindings/c/call_status.h"
#include "bindings/c/heap_calls.h"
#include "bindings/c/heap_end.h"
#include "bindings/c/heap_names.h"
#include "bindings/heaps/open_heap.h"
#include "bindings/trace_file.h"

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>

using frostline::Errc;
using frostline::Error;
using frostline::HeapSettings;
using frostline::HostHeap;
using frostline::OpenHeap;
using frostline::Result;

namespace {

Result<void> usable(const frostline_heap& name) noexcept {
    if (name.state.load(std::memory_order_acquire) == frostline_heap::State::closed) {
        return Error(Errc::closed, 0,
                     "the heap was closed: use its blocks before, or open another");
    }
    return frostline::ok();
}

// Runs `call`, which returns a Result<void>, with the heap. The calls behind it that touch blocks
// recognise a forked child themselves.
template <class Call>
frostline_status in_heap(frostline_heap* name, Call&& call) noexcept {
    return frostline::status_of([&]() -> Result<void> {
        if (name == nullptr) {
            return Error(Errc::invalid_argument, 0,
                         "heap is NULL: give what frostline_heap_open() set; an object that was "
                         "moved from has no heap");
        }
        const frostline::HeapCall going_on(*name);
        FROSTLINE_TRY_VOID(usable(*name));
        return name->heap->with(std::forward<Call>(call));
    });
}

// For calls that only look: in a forked child a lock may be held by a thread that is not there.
template <class Call>
frostline_status look_into(frostline_heap* name, Call&& call) noexcept {
    return in_heap(name, [&](auto& heap) -> Result<void> {
        if (name->process.is_child()) {
            return Error(Errc::busy, 0,
                         "{} belongs to the process that opened it, and this is a forked child of "
                         "that: open a heap of its own there",
                         heap.options().name);
        }
        return std::forward<Call>(call)(heap);
    });
}

// The last block of a heap that nobody owns any longer takes the heap with it.
template <class Free>
frostline_status take_back(frostline_heap* name, const void* block, Free&& free) noexcept {
    bool last = false;
    const frostline_status status = in_heap(name, [&](auto& heap) -> Result<void> {
        FROSTLINE_TRY_VOID(std::forward<Free>(free)(heap));
        last = block != nullptr && frostline::count_death(*name);
        return frostline::ok();
    });
    if (last) frostline::end_if_empty(*name);
    return status;
}

template <class Heap>
constexpr bool kHasStreams = !std::is_same_v<Heap, HostHeap>;

// Work on host memory is not ordered by a heap: taking the stream and forgetting it would promise
// that.
template <class Heap>
Result<frostline::StreamHandle> stream_for(const Heap& heap, void* stream) noexcept {
    const auto handle = reinterpret_cast<frostline::StreamHandle>(stream);
    if (kHasStreams<Heap> || handle == 0) return handle;
    return Error(Errc::unsupported, 0,
                 "{}: host memory is not ordered by streams: give NULL, and free a block when the "
                 "work that uses it is done",
                 heap.options().name);
}

// Once in the library: what it calls is inlined into one caller only.
[[gnu::noinline]] frostline_status allocate(frostline_heap* name, size_t size_bytes,
                                            size_t alignment_bytes, void* stream,
                                            void** block) noexcept {
    return in_heap(name, [&](auto& open) -> Result<void> {
        if (block == nullptr) return frostline::null_argument("block");
        *block = nullptr;
        FROSTLINE_TRY(const auto handle, stream_for(open, stream));
        FROSTLINE_TRY(*block,
                      open.allocate(size_bytes, handle, std::max<size_t>(alignment_bytes, 1)));
        if (*block != nullptr) frostline::count_birth(*name);
        return frostline::ok();
    });
}

// The program makes room: within no call of the heap, because it may free blocks there, and because
// whoever closes the heap waits for calls. A last attempt is made whatever it says, so that the
// thread's last error is of this request.
[[gnu::noinline]] frostline_status allocate_or_ask(frostline_heap* name, size_t size_bytes,
                                                   size_t alignment_bytes, void* stream,
                                                   void** block) noexcept {
    constexpr int kMostTries = 1 << 16;  // a handler may say that it made room, and make none
    static thread_local bool asking = false;
    frostline_status status = allocate(name, size_bytes, alignment_bytes, stream, block);
    const auto handler = name->pressure.load(std::memory_order_acquire);
    if (status != FROSTLINE_NO_SPACE || handler == nullptr || asking) return status;
    bool made = false;  // or could be, for a block of that size
    (void)in_heap(name, [&](auto& open) {
        made = size_bytes <= open.capacity_bytes();
        return frostline::ok();
    });
    asking = true;
    for (int tries = 0; made && status == FROSTLINE_NO_SPACE && tries < kMostTries; ++tries) {
        void* const context = name->pressure_context.load(std::memory_order_relaxed);
        made = handler(context, size_bytes) > 0;
        status = allocate(name, size_bytes, alignment_bytes, stream, block);
    }
    asking = false;
    return status;
}

}  // namespace

frostline_status frostline_heap_open(const char* const* options, frostline_heap** heap) {
    return frostline::status_of([&]() -> Result<void> {
        if (options == nullptr || heap == nullptr) {
            return frostline::null_argument("options or heap");
        }
        *heap = nullptr;
        FROSTLINE_TRY(const HeapSettings settings, frostline::parse_options<HeapSettings>(options));
        auto name = std::make_unique<frostline_heap>();
        FROSTLINE_TRY(name->heap, OpenHeap::open(settings));
        name->tells_leaks = settings.leaks;
        frostline::keep(name.get());
        *heap = name.release();
        return frostline::ok();
    });
}

frostline_status frostline_heap_alloc(frostline_heap* heap, size_t size_bytes,
                                      size_t alignment_bytes, void* stream, void** block) {
    if (heap != nullptr && heap->pressure.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
        return allocate_or_ask(heap, size_bytes, alignment_bytes, stream, block);
    return allocate(heap, size_bytes, alignment_bytes, stream, block);
}

frostline_status frostline_heap_on_pressure(frostline_heap* heap,
                                            frostline_heap_pressure_handler handler,
                                            void* context) {
    return look_into(heap, [&](auto&) -> Result<void> {
        heap->pressure_context.store(context, std::memory_order_relaxed);
        heap->pressure.store(handler, std::memory_order_release);
        return frostline::ok();
    });
}

frostline_status frostline_heap_free(frostline_heap* heap, void* block) {
    return take_back(heap, block, [&](auto& open) { return open.free(block); });
}

frostline_status frostline_heap_free_sized(frostline_heap* heap, void* block, size_t size_bytes) {
    return take_back(heap, block, [&](auto& open) { return open.free(block, size_bytes); });
}

frostline_status frostline_heap_record_stream(frostline_heap* heap, void* block, void* stream) {
    return look_into(heap, [&](auto& open) -> Result<void> {
        FROSTLINE_TRY(const auto handle, stream_for(open, stream));
        return open.record_stream(block, handle);
    });
}

frostline_status frostline_heap_forget_stream(frostline_heap* heap, void* stream) {
    return look_into(heap, [&](auto& open) -> Result<void> {
        FROSTLINE_TRY(const auto handle, stream_for(open, stream));
        return open.forget_stream(handle);
    });
}

frostline_status frostline_heap_size(frostline_heap* heap, const void* block, size_t* size_bytes) {
    return look_into(heap, [&](auto& open) -> Result<void> {
        if (block == nullptr || size_bytes == nullptr) {
            return frostline::null_argument("block or size_bytes");
        }
        FROSTLINE_TRY(const frostline::HeapAllocation found, open.describe(block));
        *size_bytes = found.size_bytes;
        return frostline::ok();
    });
}

frostline_status frostline_heap_owns(frostline_heap* heap, const void* address, int* owns) {
    return in_heap(heap, [&](auto& open) -> Result<void> {
        if (owns == nullptr) return frostline::null_argument("owns");
        *owns = open.owns(address) ? 1 : 0;
        return frostline::ok();
    });
}

frostline_status frostline_heap_trim(frostline_heap* heap, int wait, size_t* given_back_bytes) {
    return look_into(heap, [&](auto& open) -> Result<void> {
        FROSTLINE_TRY(const std::uint64_t bytes, open.trim(wait != 0));
        if (given_back_bytes != nullptr) *given_back_bytes = bytes;
        return frostline::ok();
    });
}

frostline_status frostline_heap_get_stats(frostline_heap* heap, frostline_heap_stats* stats) {
    return look_into(heap, [&](auto& open) {
        const frostline::HeapStatistics now = open.statistics();
        return frostline::copy_out(frostline_heap_stats{.struct_size = sizeof(frostline_heap_stats),
                                                        .live_bytes = now.live,
                                                        .live_block_bytes = now.live_block,
                                                        .live_blocks = now.live_blocks,
                                                        .peak_live_bytes = now.peak_live,
                                                        .cached_bytes = now.cached,
                                                        .free_bytes = now.free,
                                                        .pending_bytes = now.pending,
                                                        .mapped_bytes = now.mapped,
                                                        .peak_mapped_bytes = now.peak_mapped,
                                                        .reserved_bytes = now.reserved,
                                                        .pinned_bytes = now.pinned,
                                                        .metadata_bytes = now.metadata,
                                                        .allocations = now.births,
                                                        .misuses = now.misuses,
                                                        .lost_bytes = now.lost},
                                   stats);
    });
}

frostline_status frostline_heap_begin_step(frostline_heap* heap) {
    return look_into(heap, [](auto& open) -> Result<void> {
        open.begin_step();
        return frostline::ok();
    });
}

frostline_status frostline_heap_write_trace(frostline_heap* heap, const char* path) {
    return look_into(heap, [&](auto& open) -> Result<void> {
        if (path == nullptr) return frostline::null_argument("path");
        if (!open.options().traced) {
            return Error(Errc::unsupported, 0, "{} records no trace: open it with trace=1",
                         open.options().name);
        }
        FROSTLINE_TRY_VOID(frostline::write_trace_file(path, open.trace()));
        if (open.trace_complete()) return frostline::ok();
        return Error(Errc::no_space, 0,
                     "{}: {} was written and lacks events: there were more than {}, or there was "
                     "no memory for some: trace fewer steps",
                     open.options().name, path, frostline::HeapTrace::kMostEvents);
    });
}
