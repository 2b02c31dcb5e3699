// A heap that a program owns, whatever memory it hands out: the calls that are the same for host
// and device memory.
#pragma once

#include "frostline/heap.h"
#include "frostline/outcome.h"

#include <cstddef>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace frostline {

/// What a heap tells besides answering calls.
struct HeapReports {
    /// If the heap is open when the process ends, what still lives in it, on standard error.
    bool leaks = true;
    /// Misuse and leaks with the places of allocation and free. Costs microseconds for each call.
    bool debug = false;
    bool trace = false;  ///< births and deaths, for write_trace()
};

/// Movable. Its calls are thread-safe; moving and destroying it are not. What allocates from it
/// refers to the heap itself and not to this object, which may therefore be moved.
class HeapHandle {
   public:
    HeapHandle(const HeapHandle&) = delete;
    HeapHandle& operator=(const HeapHandle&) = delete;
    HeapHandle(HeapHandle&& other) noexcept : heap_(std::exchange(other.heap_, nullptr)) {}
    HeapHandle& operator=(HeapHandle&& other) noexcept {
        if (this != &other) {
            (void)frostline_heap_release(heap_);
            heap_ = std::exchange(other.heap_, nullptr);
        }
        return *this;
    }
    /// Closes the heap. While blocks live it stays, without an owner, because memory in use is not
    /// taken away: close() would have said so. The last of them closes it when it is freed, and
    /// until then more may be allocated.
    ~HeapHandle() { (void)frostline_heap_release(heap_); }

    /// Returns the heap's memory; later calls are refused as CLOSED. Failures: BUSY (blocks live;
    /// nothing happens then), CLOSED.
    Outcome<void> close() noexcept { return Outcome<void>::of(frostline_heap_close(heap_)); }

    /// Takes back what allocate() gave, null included. Failures: INVALID_ARGUMENT (no live block
    /// starts there), CLOSED, BUSY (in a forked child).
    Outcome<void> free(void* block) noexcept {
        return Outcome<void>::of(frostline_heap_free(heap_, block));
    }
    /// The same; INVALID_ARGUMENT, too, if the block was not asked for with `size_bytes`.
    Outcome<void> free(void* block, std::size_t size_bytes) noexcept {
        return Outcome<void>::of(frostline_heap_free_sized(heap_, block, size_bytes));
    }

    /// The size that was asked for, of the live block that starts there. Failures: as free().
    Outcome<std::size_t> size_bytes(const void* block) const noexcept {
        std::size_t size = 0;
        const frostline_status status = frostline_heap_size(heap_, block, &size);
        if (status != FROSTLINE_OK) return Failure::of(status);
        return size;
    }
    /// Whether the address is one that this heap hands out from.
    bool owns(const void* address) const noexcept {
        int owned = 0;
        return frostline_heap_owns(heap_, address, &owned) == FROSTLINE_OK && owned != 0;
    }

    /// Who is asked for room before a request is refused; nullptr: nobody. As
    /// frostline_heap_on_pressure() says, which containers' requests heed, too.
    Outcome<void> on_pressure(frostline_heap_pressure_handler handler, void* context) noexcept {
        return Outcome<void>::of(frostline_heap_on_pressure(heap_, handler, context));
    }
    /// Gives back to the system whatever nobody uses, and says how many bytes.
    Outcome<std::size_t> trim(bool wait = false) noexcept {
        std::size_t bytes = 0;
        const frostline_status status = frostline_heap_trim(heap_, wait ? 1 : 0, &bytes);
        if (status != FROSTLINE_OK) return Failure::of(status);
        return bytes;
    }
    /// Failures: CLOSED, BUSY (in a forked child).
    Outcome<frostline_heap_stats> statistics() const noexcept {
        frostline_heap_stats stats{};
        stats.struct_size = sizeof(stats);
        const frostline_status status = frostline_heap_get_stats(heap_, &stats);
        if (status != FROSTLINE_OK) return Failure::of(status);
        return stats;
    }

    /// A step begins, for the trace.
    Outcome<void> begin_step() noexcept {
        return Outcome<void>::of(frostline_heap_begin_step(heap_));
    }
    /// Births and deaths so far, to a file. Failures: UNSUPPORTED (opened without trace), NO_SPACE
    /// (written, but there were more than 2^24 or no memory for some), and those of writing a file.
    Outcome<void> write_trace(const char* path) const noexcept {
        return Outcome<void>::of(frostline_heap_write_trace(heap_, path));
    }

    /// For C functions; still this object's.
    frostline_heap* get() const noexcept { return heap_; }

   protected:
    explicit HeapHandle(frostline_heap* heap) noexcept : heap_(heap) {}

    /// Opens what `write` describes: it appends the texts of options to a vector.
    template <class Write>
    static Outcome<frostline_heap*> open_with(const HeapReports& reports, Write&& write) noexcept {
        try {
            std::vector<std::string> options{reports.leaks ? "leaks=1" : "leaks=0",
                                             reports.debug ? "debug=1" : "debug=0",
                                             reports.trace ? "trace=1" : "trace=0"};
            std::forward<Write>(write)(options);
            std::vector<const char*> texts;
            texts.reserve(options.size() + 1);
            for (const std::string& option : options) texts.push_back(option.c_str());
            texts.push_back(nullptr);
            frostline_heap* heap = nullptr;
            const frostline_status status = frostline_heap_open(texts.data(), &heap);
            if (status != FROSTLINE_OK) return Failure::of(status);
            return heap;
        } catch (const std::bad_alloc&) {
            return Failure(FROSTLINE_OUT_OF_MEMORY, "no memory for the options of a heap");
        }
    }
    Outcome<void*> allocate_on(void* stream, std::size_t size_bytes,
                               std::size_t alignment_bytes) noexcept {
        void* block = nullptr;
        const frostline_status status =
            frostline_heap_alloc(heap_, size_bytes, alignment_bytes, stream, &block);
        if (status != FROSTLINE_OK) return Failure::of(status);
        return block;
    }

   private:
    frostline_heap* heap_;
};

}  // namespace frostline
