/* Frostline as PyTorch's allocator of GPU memory, for torch.cuda.memory.CUDAPluggableAllocator. The
 * Python package does all of this by itself: frostline.torch.enable().
 *
 * Every GPU has a heap of its own, made when it is first asked for memory; it lives as long as the
 * process. Streams and devices are CUDA's, in the primary context. All functions may be called from
 * any thread, with work queued, and while streams are captured. None throws, but for what the
 * handler of frostline_torch_on_out_of_memory() throws through frostline_torch_alloc().
 *
 * What goes wrong is told by frostline_last_error(), and in one line on stderr where PyTorch takes
 * no error.
 *
 * FROSTLINE_TORCH_BUDGET and FROSTLINE_TORCH_CHUNK say what frostline_torch_configure() says. Other
 * names that begin so are refused, as wrong values are: by frostline_torch_configure() where it is
 * called, else by the first allocation.
 */
#ifndef FROSTLINE_TORCH_H
#define FROSTLINE_TORCH_H

#include "frostline/frostline.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
#include <functional>
#include <utility>
extern "C" {
#endif

struct CUstream_st; /* cudaStream_t points to it */

/* Bytes of each GPU's memory, and of the pieces that it is taken in ("20GiB", "2MiB"); NULL leaves
 * a value as it is. INVALID_ARGUMENT, or BUSY once a GPU is in use: nothing changes then. */
FROSTLINE_EXPORT frostline_status frostline_torch_configure(const char* budget, const char* chunk);

/* Told of every allocation that fails, before it returns NULL; may throw instead. PyTorch stores
 * what a process-wide allocator returns unchecked, so such a handler has to throw there. For
 * memory pools PyTorch takes NULL for what it is; set none for those. NULL: none. */
FROSTLINE_EXPORT void frostline_torch_on_out_of_memory(void (*handler)(const char* message));
/* A handler for where there is no better one: throws what is a std::bad_alloc, with the message. */
FROSTLINE_EXPORT void frostline_torch_throw_out_of_memory(const char* message);

/* ---- What CUDAPluggableAllocator and its setters take ---- */

/* NULL for no bytes, and on failure. */
FROSTLINE_EXPORT void* frostline_torch_alloc(ssize_t size, int device, struct CUstream_st* stream);
/* NULL is nothing. What is not ours is given to the driver's cuMemFree. */
FROSTLINE_EXPORT void frostline_torch_free(void* block, size_t size, int device,
                                           struct CUstream_st* stream);
/* For set_init_fn. */
FROSTLINE_EXPORT void frostline_torch_init(int device_count);
/* For set_reset_fn, which torch.cuda.empty_cache() calls: gives back all memory that nobody uses,
 * after waiting for what uses it. Nothing that lives is touched. */
FROSTLINE_EXPORT void frostline_torch_reset(void);
/* For set_memory_fraction_fn: the budget is this part of the GPU's memory, and at most what was
 * configured. */
FROSTLINE_EXPORT void frostline_torch_memory_fraction(double fraction, int device);
/* For set_base_alloc_fn: the living block that the address lies in, and its size. Where there is
 * none, because the block was freed or is not ours, the address itself and a size of 0. */
FROSTLINE_EXPORT void* frostline_torch_base_alloc(void* address, size_t* size);
/* For set_record_stream_fn. */
FROSTLINE_EXPORT void frostline_torch_record_stream(void* block, struct CUstream_st* stream);

#ifdef __cplusplus
/* For set_begin_allocate_to_pool, set_end_allocate_to_pool_fn and set_release_pool: allocations for
 * which `filter` holds come from the pool's own heap. Its memory stays mapped until it was released
 * as often as begun and nothing lives in it. Types as PyTorch passes them, by value: both sides
 * must use libstdc++, of any of its two string ABIs. */
FROSTLINE_EXPORT void frostline_torch_begin_allocate_to_pool(
    int device, std::pair<unsigned long long, unsigned long long> pool,
    std::function<bool(struct CUstream_st*)> filter);
FROSTLINE_EXPORT void frostline_torch_end_allocate_to_pool(
    int device, std::pair<unsigned long long, unsigned long long> pool);
FROSTLINE_EXPORT void frostline_torch_release_pool(
    int device, std::pair<unsigned long long, unsigned long long> pool);
#endif

/* ---- What a pluggable allocator cannot tell PyTorch ---- */

typedef struct frostline_torch_figure {
    uint64_t current;
    uint64_t peak;
    uint64_t allocated; /* in all */
    uint64_t freed;
} frostline_torch_figure;

typedef struct frostline_torch_statistics {
    frostline_torch_figure allocations;     /* how many */
    frostline_torch_figure allocated_bytes; /* as asked for */
    frostline_torch_figure reserved_bytes;  /* mapped, by all heaps of the GPU */
    uint64_t retries;       /* allocations that were served, but only after cached memory was given
                               up for them, or streams were waited for */
    uint64_t out_of_memory; /* allocations that failed */
    uint64_t pending_bytes; /* freed, while other streams may use them */
    uint64_t pools;         /* memory pools with a heap */
    uint64_t pool_bytes;    /* mapped by those */
    uint64_t budget_bytes;
    uint64_t foreign_frees; /* addresses that were given to the driver */
} frostline_torch_statistics;

/* All zero where the GPU is not in use. INVALID_ARGUMENT: no such GPU. */
FROSTLINE_EXPORT frostline_status
frostline_torch_get_statistics(int device, frostline_torch_statistics* statistics);
FROSTLINE_EXPORT frostline_status frostline_torch_reset_peaks(int device);
FROSTLINE_EXPORT frostline_status frostline_torch_reset_accumulated(int device);

typedef struct frostline_torch_block {
    uint64_t address;
    uint64_t size_bytes;
    uint64_t birth;   /* its number among its heap's allocations */
    uint64_t pool[2]; /* both 0: no pool */
} frostline_torch_block;

/* Writes up to `capacity` of the blocks that live, and returns how many there are. */
FROSTLINE_EXPORT size_t frostline_torch_live(int device, frostline_torch_block* blocks,
                                             size_t capacity);

#ifdef __cplusplus
}
#endif

#endif
