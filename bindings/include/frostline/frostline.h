/* Frostline's C interface.
 *
 * Every function that can fail returns a status; frostline_last_error() then says, in one line,
 * what failed and what can be done. All functions may be called from any thread, unless they say
 * otherwise. Sizes are in bytes.
 */
#ifndef FROSTLINE_H
#define FROSTLINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FROSTLINE_EXPORT __attribute__((visibility("default")))

/* What a call came to. The values never change. */
typedef enum frostline_status {
    FROSTLINE_OK = 0,
    FROSTLINE_INVALID_ARGUMENT = 1, /* the input cannot be used */
    FROSTLINE_OUT_OF_MEMORY = 2,    /* no memory for Frostline's own structures */
    FROSTLINE_NO_SPACE = 3,         /* budgets or media are full */
    FROSTLINE_CLOSED = 4,           /* the context or the tier takes no new data */
    FROSTLINE_NOT_FOUND = 5,        /* no such tensor, file or directory */
    FROSTLINE_BUSY = 6,             /* pinned, or in use by another process */
    FROSTLINE_IO = 7,               /* the medium or the operating system failed */
    FROSTLINE_PERMISSION = 8,       /* the operating system refused access */
    FROSTLINE_UNSUPPORTED = 9,      /* this machine or build cannot do it */
    FROSTLINE_CORRUPT = 10,         /* what came back is not what left */
    FROSTLINE_CANCELLED = 11        /* given up on request */
} frostline_status;

/* A set of tiers and the tensors in them. */
typedef struct frostline_context frostline_context;
/* A tensor held in the fastest tier: in DRAM, or in device memory where the context has some. */
typedef struct frostline_pinned frostline_pinned;
/* Names a tensor; 0 is never one. An id that was dropped is not used again by its context until its
 * slot has had 2^32 - 1 other tensors. */
typedef uint64_t frostline_id;

/* "major.minor.patch"; static. */
FROSTLINE_EXPORT const char* frostline_version(void);

/* The message of this thread's last failed call; valid until its next call; never NULL. */
FROSTLINE_EXPORT const char* frostline_last_error(void);

/* Opens a context. `options` is a NULL-terminated array of "name=value" texts:
 *   device=SIZE      budget of GPU memory, which is then the fastest tier; default: no such tier.
 *                    Rounded down to what the GPU hands out, usually 2 MiB: see the budget in stats
 *   gpu=N            which GPU that is, and DRAM is pinned for, as CUDA counts them; default 0;
 *                    refused without device or pin
 *   dram=SIZE        budget of the DRAM tier; required; may be 0
 *   pmem=PATH        file of the pmem tier (on a DAX file system: real persistent memory)
 *   pmem_bytes=SIZE  its size; default: the whole file if it exists, else 1 GiB
 *   swap=DIRECTORY   where the swap file goes; it has no name and vanishes with the process
 *   swap_bytes=SIZE  most that it may grow to; default: nine tenths of the free space
 *   swap_devices=BOOL  whether swap may name a block device, which is overwritten; default false
 *   numa=WHERE       DRAM's pages: none, bind:0,1, preferred:0 or interleave:0,1; default none
 *   far_node=NODE    NUMA node whose memory is a tier of its own below DRAM, such as CXL memory
 *   far_bytes=SIZE   its budget
 *   pin=BOOL         register DRAM with the GPU's driver, if there is a GPU; default false, but
 *                    always done with a device tier
 *   verify=BOOL      checksum all that leaves the fastest tier and compare it when it returns;
 *                    default false
 *   calibrate=BOOL   know the tiers' speeds: from the user's cache, or measured now; default true
 * SIZE is for example 4096, 512MiB or 1.5GiB. The budgets are hard.
 * On success *context is the caller's, to be given to frostline_close(). */
FROSTLINE_EXPORT frostline_status frostline_open(const char* const* options,
                                                 frostline_context** context);

/* Frees the context, its tensors and tiers. BUSY while a tensor is pinned; nothing happens then.
 * Waits for copies to and from device memory that are under way, and so for the streams' work
 * before them. No other call with this context may be going on. NULL is accepted. */
FROSTLINE_EXPORT frostline_status frostline_close(frostline_context* context);

/* Stores a copy of `size_bytes` > 0 bytes; the source is the caller's again on return. Waits while
 * moves in progress make room. NO_SPACE if no tier can take them. */
FROSTLINE_EXPORT frostline_status frostline_put(frostline_context* context, const void* data,
                                                size_t size_bytes, frostline_id* id);

/* Called exactly once when an adopted buffer is its owner's again: on any thread, maybe before
 * frostline_adopt() returns. It must not call Frostline for the same context. */
typedef void (*frostline_release_function)(void* user, void* data, size_t size_bytes);

/* Stores a buffer without copying it (with a device tier it is copied). Nobody may write to it
 * until `release` is called. With `held` other than 0 it stays where it is until
 * frostline_settle(), because it is still being read there. If the call fails, `release` is not
 * called and the buffer stays the caller's. */
FROSTLINE_EXPORT frostline_status frostline_adopt(frostline_context* context, void* data,
                                                  size_t size_bytes,
                                                  frostline_release_function release, void* user,
                                                  int held, frostline_id* id);

/* The producer of a held buffer has no more use for it: it may move now. */
FROSTLINE_EXPORT frostline_status frostline_settle(frostline_context* context, frostline_id id);

/* Starts bringing a tensor to the fastest tier; does not wait. A hint: NO_SPACE if there is no room
 * now. */
FROSTLINE_EXPORT frostline_status frostline_prefetch(frostline_context* context, frostline_id id);

/* Copies a tensor's bytes, from wherever they are, to `data`; `size_bytes` is the tensor's. The
 * tensor stays stored. */
FROSTLINE_EXPORT frostline_status frostline_get(frostline_context* context, frostline_id id,
                                                void* data, size_t size_bytes);

/* The size of a tensor. */
FROSTLINE_EXPORT frostline_status frostline_size(frostline_context* context, frostline_id id,
                                                 size_t* size_bytes);

/* How a pinned tensor is used. */
enum { FROSTLINE_READ = 0, FROSTLINE_WRITE = 1 };

/* Brings a tensor to the fastest tier, waiting if need be, and holds it there until
 * frostline_unpin(). Several pins may be held at once; who writes makes sure that nobody else
 * reads. NO_SPACE if other pins leave no room; frostline_get() still works then. In DRAM, copies by
 * frostline_put_device() and frostline_get_device() have ended when this returns; in device memory
 * the streams that used the tensor before may be using it still. */
FROSTLINE_EXPORT frostline_status frostline_pin(frostline_context* context, frostline_id id,
                                                int access, frostline_pinned** pinned);
/* Where the bytes are, valid until frostline_unpin(). With a device tier this is an address in
 * device memory, which the host cannot touch. Aligned to 64 bytes, unless the tensor is an adopted
 * buffer that never moved. `size_bytes` may be NULL. */
FROSTLINE_EXPORT void* frostline_pinned_data(const frostline_pinned* pinned, size_t* size_bytes);
/* NULL is accepted. Work that still uses device memory wants frostline_unpin_after(). */
FROSTLINE_EXPORT void frostline_unpin(frostline_pinned* pinned);

/* Makes a tensor of `size_bytes` > 0 for the caller to write: pinned in the fastest tier, its
 * content undefined. Both *id and *pinned are the caller's: the pin ends with frostline_unpin() or
 * frostline_unpin_after(), the tensor with frostline_drop(). Waits as frostline_put(). */
FROSTLINE_EXPORT frostline_status frostline_allocate(frostline_context* context, size_t size_bytes,
                                                     frostline_id* id, frostline_pinned** pinned);

/* ---- Device memory ----
 *
 * A stream is a CUstream or cudaStream_t, given as void*: NULL or 1 is the legacy default stream, 2
 * the calling thread's own, each of the GPU on which the memory lies, whichever is current; any
 * other has been made for that GPU, or is refused (INVALID_ARGUMENT). So is memory that reaches
 * beyond its allocation. What a stream "has been given so far" is the work queued on it before the
 * call, by whichever thread. Copies go through streams of Frostline's own, which events tie to the
 * caller's; the calling thread's current context and device are left as they were.
 *
 * The host does not wait for a stream's work where DRAM is pinned (pin=1) or the tensors lie in the
 * same GPU's memory. It does wait, for as long as the copy and what precedes it take: with DRAM
 * that is not pinned, for a tensor that is larger than the fastest tier or is in a lower one and
 * finds no room above, and with a device tier on another GPU.
 *
 * A stream that is capturing a graph is refused (UNSUPPORTED): a replay would move nothing.
 * Captures on other streams are not disturbed. A device tier that failed is passed over: stores go
 * to the tiers below, and what it holds can still be fetched. NOT_FOUND where there is no CUDA
 * driver, which is looked for when one of these functions is first used. */

/* Stores `size_bytes` > 0 of device memory, of any GPU, as the work that `stream` has been given so
 * far will leave them. Waits for room as frostline_put().
 * With `keep_source` 0 the memory may be freed or written to at once in the stream's order (such as
 * by cuMemFreeAsync on it, or by a caching allocator that reuses memory on the stream it was used
 * on): what the stream is given from now on comes after the copy has read it. From another stream,
 * or from the host, it is the caller's after synchronising with this one, as after any work on it.
 * Otherwise the stream waits for nothing, and nobody may free the memory or write to it until
 * frostline_source_read() says so, or but in a stream's order after frostline_release_source().
 * INVALID_ARGUMENT for memory that is no device memory. If the call fails nothing is stored and no
 * copy is under way. */
FROSTLINE_EXPORT frostline_status frostline_put_device(frostline_context* context,
                                                       const void* device_data, size_t size_bytes,
                                                       void* stream, int keep_source,
                                                       frostline_id* id);

/* Makes `stream`, of the source's GPU, wait until a kept source was read: what it is given from now
 * on may overwrite or free it. No effect if it was read already, or if the id is not known any
 * more. The host never waits. It works after frostline_drop(), too. */
FROSTLINE_EXPORT frostline_status frostline_release_source(frostline_context* context,
                                                           frostline_id id, void* stream);

/* Sets *read to 1 if the source of a tensor was read, so that it may be freed or overwritten in any
 * order, and to 0 if not yet. Never waits. */
FROSTLINE_EXPORT frostline_status frostline_source_read(frostline_context* context, frostline_id id,
                                                        int* read);

/* Copies a tensor to device memory of any GPU, from wherever its bytes are; `size_bytes` is the
 * tensor's. The target is not touched before the work is done that `stream` has been given so far,
 * and what it is given from now on finds the bytes there; in other streams' order, only after they
 * have been made to wait for this one. The host waits only while the tensor comes up from a lower
 * tier. The tensor stays stored, and may be dropped at once. If the call fails, no copy is under
 * way and the target's content is undefined. */
FROSTLINE_EXPORT frostline_status frostline_get_device(frostline_context* context, frostline_id id,
                                                       void* device_data, size_t size_bytes,
                                                       void* stream);

/* As frostline_unpin(), when the work that `stream`, of any GPU, has been given so
 * far is done; the host does not wait for it. `pinned` is not to be used any more. If the stream is
 * capturing a graph, the tensor stays where it is until the context is closed, because the graph
 * may be replayed. Without a device tier the pin ends at once. NULL is accepted. */
FROSTLINE_EXPORT void frostline_unpin_after(frostline_pinned* pinned, void* stream);

/* Forgets a tensor; its room is free once no pin holds it. */
FROSTLINE_EXPORT frostline_status frostline_drop(frostline_context* context, frostline_id id);

/* Marks the end of a training step, for the trace. */
FROSTLINE_EXPORT frostline_status frostline_step(frostline_context* context);

/* Counters since the context was opened. Set struct_size to sizeof(frostline_stats) first: a
 * library of another version fills in what both know. */
typedef struct frostline_stats {
    size_t struct_size;
    uint64_t stored, stored_bytes, dropped;
    uint64_t hits;                         /* uses that found their tensor in the fastest tier */
    uint64_t use_stalls, use_stall_ns;     /* uses that waited */
    uint64_t store_stalls, store_stall_ns; /* stores that waited for room */
    uint64_t moves, free_moves, failed_moves;
    uint64_t direct_reads; /* read from a lower tier without coming to the fastest */
    uint64_t tiers;        /* how many tiers there are */
} frostline_stats;
FROSTLINE_EXPORT frostline_status frostline_get_stats(frostline_context* context,
                                                      frostline_stats* stats);

/* One tier's figures; set struct_size as above. */
typedef struct frostline_tier_stats {
    size_t struct_size;
    const char* name; /* "device", "dram", "far" (memory of another node), "pmem", "swap"; static */
    const char* label; /* "real", or "emulated": a file stands in for pmem, or the CPU for a GPU;
                          static */
    uint64_t budget_bytes, used_bytes, peak_bytes;
    uint64_t moved_in_bytes, moved_out_bytes;
    int open; /* 0 after a failure of the medium: it takes no new data, what it holds is readable */
    uint64_t staging_bytes; /* host memory pinned for its copies; part of no budget */
} frostline_tier_stats;
/* `index` counts from 0, the fastest tier. */
FROSTLINE_EXPORT frostline_status frostline_get_tier_stats(frostline_context* context, size_t index,
                                                           frostline_tier_stats* stats);

/* Writes the trace of the last complete step, or else of the one in progress ("frostline-trace 1")
 * to a file, mode 0600. */
FROSTLINE_EXPORT frostline_status frostline_write_trace(frostline_context* context,
                                                        const char* path);

#ifdef __cplusplus
}
#endif

#endif
