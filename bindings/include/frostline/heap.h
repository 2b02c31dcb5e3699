/* Heaps from C: device and host memory in blocks, for programs that link Frostline as their
 * allocator.
 *
 * The conventions are those of frostline.h: statuses, frostline_last_error(), any thread. A call
 * that fails has changed nothing. No call that is refused ever corrupts a heap: a block freed
 * twice, a foreign address or a wrong size come back as INVALID_ARGUMENT with what is there
 * instead, a heap that was closed as CLOSED, a forked child of the process that opened the heap as
 * BUSY.
 */
#ifndef FROSTLINE_HEAP_H
#define FROSTLINE_HEAP_H

#include "frostline/frostline.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A heap, which names one also after it was closed: the few bytes behind this pointer stay. */
typedef struct frostline_heap frostline_heap;

/* Opens a heap. `options` is a NULL-terminated array of "name=value" texts, SIZE and BOOL as for
 * frostline_open():
 *   kind=device|host what memory it hands out; required
 *   name=TEXT        what messages call it, one line of up to 64 bytes; default: its kind and
 *                    "heap"
 *   capacity=SIZE    most that it takes; rounded down to whole chunks. Default: what the device has
 *                    free, or all memory of the machine
 *   chunk=SIZE       how much it takes at a time; default 2MiB
 *   gpu=N            which GPU, as CUDA counts them: the heap's own, or the one that host memory is
 *                    pinned for; default 0; refused for host memory without pin
 *   peers=N,N        GPUs that may use a device heap's memory, too
 *   numa_node=N      where host memory lies; default: anywhere
 *   pin=BOOL         page-lock host memory for the GPU; default false
 *   leaks=BOOL       if the heap is open when the process ends, say on standard error what still
 *                    lives in it: number, size and age of each; default true
 *   debug=BOOL       name the places where blocks were allocated and freed in what is said of a
 *                    misuse or a leak; costs microseconds for each call; default false
 *   trace=BOOL       record births and deaths for frostline_heap_write_trace(); default false
 * Each option is given once. On success *heap is the caller's, to be given to
 * frostline_heap_close() or frostline_heap_release(). NOT_FOUND where there is no CUDA driver and
 * one is needed. */
FROSTLINE_EXPORT frostline_status frostline_heap_open(const char* const* options,
                                                      frostline_heap** heap);

/* Returns the heap's memory, after waiting for the streams that use freed blocks. BUSY while blocks
 * live: nothing happens then. Calls with this heap that are going on on other threads end first;
 * later ones are refused as CLOSED. In a forked child it closes the child's name for the heap only.
 * NULL is accepted. */
FROSTLINE_EXPORT frostline_status frostline_heap_close(frostline_heap* heap);

/* The same where nothing lives. Otherwise the caller gives the heap up and it serves its blocks as
 * before, until the last of them is freed: that call closes it, waits for streams, and so must not
 * be made by what a stream runs (cuLaunchHostFunc). OK either way; CLOSED if it was closed or given
 * up before. NULL is accepted. */
FROSTLINE_EXPORT frostline_status frostline_heap_release(frostline_heap* heap);

/* Hands out `size_bytes` at a multiple of `alignment_bytes` (a power of two of at most 2 MiB; 0
 * stands for 1, and 512 is kept in any case) for work on `stream`: a CUstream or cudaStream_t of
 * the heap's GPU or of a peer, or NULL for the legacy default stream. Refused are any other
 * (INVALID_ARGUMENT), the per-thread default stream among them, since it is another one on each
 * thread, and for host memory any but NULL (UNSUPPORTED). The content is undefined. No bytes: OK,
 * and *block is NULL. NO_SPACE says where the memory is; everything that is kept for reuse has been
 * given up before. The heap asks the driver how far the stream has come: destroy a stream after
 * frostline_heap_close(), or after frostline_heap_forget_stream(). In a heap that was given up,
 * CLOSED once its last block is freed. */
FROSTLINE_EXPORT frostline_status frostline_heap_alloc(frostline_heap* heap, size_t size_bytes,
                                                       size_t alignment_bytes, void* stream,
                                                       void** block);

/* Makes room for a request, as far as it can, and returns how many bytes it made free, 0 for none.
 * Called by the thread that asks for memory, and by several at once if they do; it may call the
 * heap, and free blocks of it above all. What it allocates itself is served from what there is, or
 * refused. It must not throw. */
typedef size_t (*frostline_heap_pressure_handler)(void* context, size_t size_bytes);

/* Whom frostline_heap_alloc() asks before it says NO_SPACE, when all that is kept for reuse has
 * been given up; again and again, until the request is served or it made no room. Not asked for
 * more than the whole capacity. NULL: nobody, as at first. `context` is passed on; both must be
 * good until the heap is closed. Not while another thread is in frostline_heap_alloc(). */
FROSTLINE_EXPORT frostline_status frostline_heap_on_pressure(
    frostline_heap* heap, frostline_heap_pressure_handler handler, void* context);

/* Takes a block back. Work on its stream, and on those that were recorded for it, may still be
 * queued: the memory is used again only in that order. NULL is accepted. */
FROSTLINE_EXPORT frostline_status frostline_heap_free(frostline_heap* heap, void* block);
/* The same, if the block has `size_bytes` as they were asked for. */
FROSTLINE_EXPORT frostline_status frostline_heap_free_sized(frostline_heap* heap, void* block,
                                                            size_t size_bytes);

/* The block is used by work on `stream`, too: once it was freed its memory waits for what that
 * stream had been given until then. Streams as above; for host memory nothing is done. NULL is
 * accepted as a block. */
FROSTLINE_EXPORT frostline_status frostline_heap_record_stream(frostline_heap* heap, void* block,
                                                               void* stream);

/* The stream is about to be destroyed; no other call names it meanwhile. Its work may still be
 * queued, and blocks of it may live: what was freed on it, or will be, is used by others when that
 * work is done. The heap asks nothing about it from then on, and a stream that is made with the
 * same handle is another. OK where the heap does not know the stream. A stream that was destroyed
 * before keeps the memory that was freed on it until this is called, which then waits for all work
 * of the GPU. BUSY while it is being captured, or another stream where all work has to be waited
 * for: call it again. Streams as above. */
FROSTLINE_EXPORT frostline_status frostline_heap_forget_stream(frostline_heap* heap, void* stream);

/* The size that was asked for, of the live block that starts there. */
FROSTLINE_EXPORT frostline_status frostline_heap_size(frostline_heap* heap, const void* block,
                                                      size_t* size_bytes);

/* Sets *owns to 1 if the address is one that this heap hands out from, else to 0. */
FROSTLINE_EXPORT frostline_status frostline_heap_owns(frostline_heap* heap, const void* address,
                                                      int* owns);

/* Gives back to the system whatever nobody uses; with `wait` other than 0 it waits for streams that
 * use freed memory. `given_back_bytes` may be NULL. What lies in a chunk with a live block stays,
 * and so does what stats call lost. Fails where the system or the driver refuses to take memory
 * back, and says why; what was given back before stays so. */
FROSTLINE_EXPORT frostline_status frostline_heap_trim(frostline_heap* heap, int wait,
                                                      size_t* given_back_bytes);

/* A heap's figures, exact while no call is going on; set struct_size to
 * sizeof(frostline_heap_stats) first, as for frostline_stats. */
typedef struct frostline_heap_stats {
    size_t struct_size;
    uint64_t live_bytes;       /* handed out, as asked for */
    uint64_t live_block_bytes; /* handed out, with what rounding adds */
    uint64_t live_blocks;      /* how many */
    uint64_t peak_live_bytes;  /* exact for one thread; see docs/heaps.md */
    uint64_t cached_bytes;     /* kept by threads */
    uint64_t free_bytes;       /* free, and mapped */
    uint64_t pending_bytes;    /* freed, while other streams are not known to be done */
    uint64_t mapped_bytes;     /* memory taken from the device or the system */
    uint64_t peak_mapped_bytes;
    uint64_t reserved_bytes; /* addresses */
    uint64_t pinned_bytes;   /* memory that is page-locked */
    uint64_t metadata_bytes; /* the heap's own records, outside of all that */
    uint64_t allocations;    /* so far */
    uint64_t misuses;        /* calls that were refused as misuse */
    uint64_t lost_bytes;     /* of free_bytes: freed on streams that were found destroyed, and kept
                                until frostline_heap_forget_stream() */
} frostline_heap_stats;
FROSTLINE_EXPORT frostline_status frostline_heap_get_stats(frostline_heap* heap,
                                                           frostline_heap_stats* stats);

/* A step begins, for the trace. */
FROSTLINE_EXPORT frostline_status frostline_heap_begin_step(frostline_heap* heap);

/* Writes what the heap recorded since it was opened ("frostline-allocs 1") to a file, mode 0600.
 * UNSUPPORTED if it was not opened with trace. NO_SPACE if events are missing, because there were
 * more than 2^24 or no memory for some: the file has the others then. */
FROSTLINE_EXPORT frostline_status frostline_heap_write_trace(frostline_heap* heap,
                                                             const char* path);

#ifdef __cplusplus
}
#endif

#endif
