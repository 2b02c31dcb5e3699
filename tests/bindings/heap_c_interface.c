/* Uses every function of heap.h from plain C11, as a program of a user would. What it finds is
 * returned as the number of the line that went wrong, 0 if none did. */
#include "frostline/heap.h"

#include <stdint.h>
#include <string.h>

int use_every_heap_function(void);

#define MUST(condition)                    \
    do {                                   \
        if (!(condition)) return __LINE__; \
    } while (0)

static size_t make_no_room(void* context, size_t size_bytes) {
    *(size_t*)context = size_bytes;
    return 0;
}

int use_every_heap_function(void) {
    const char* const options[] = {"kind=host", "name=host heap of C", "capacity=64MiB", NULL};
    frostline_heap* heap = NULL;
    MUST(frostline_heap_open(options, &heap) == FROSTLINE_OK);

    void* block = NULL;
    MUST(frostline_heap_alloc(heap, 100000, 4096, NULL, &block) == FROSTLINE_OK);
    MUST(block != NULL && (uintptr_t)block % 4096 == 0);
    memset(block, 'f', 100000);

    size_t size = 0;
    MUST(frostline_heap_size(heap, block, &size) == FROSTLINE_OK && size == 100000);
    int owns = 0;
    MUST(frostline_heap_owns(heap, (char*)block + 5, &owns) == FROSTLINE_OK && owns == 1);
    MUST(frostline_heap_owns(heap, &size, &owns) == FROSTLINE_OK && owns == 0);
    MUST(frostline_heap_record_stream(heap, block, NULL) == FROSTLINE_OK);
    MUST(frostline_heap_forget_stream(heap, NULL) == FROSTLINE_OK);

    frostline_heap_stats stats;
    stats.struct_size = sizeof(stats);
    MUST(frostline_heap_get_stats(heap, &stats) == FROSTLINE_OK);
    MUST(stats.live_blocks == 1 && stats.live_bytes == 100000 && stats.allocations == 1);
    MUST(stats.mapped_bytes >= stats.live_block_bytes && stats.misuses == 0);

    MUST(frostline_heap_free_sized(heap, block, 99999) == FROSTLINE_INVALID_ARGUMENT);
    MUST(strstr(frostline_last_error(), "100000") != NULL);
    MUST(frostline_heap_free_sized(heap, block, 100000) == FROSTLINE_OK);

    MUST(frostline_heap_alloc(heap, 5, 0, NULL, &block) == FROSTLINE_OK && block != NULL);
    MUST(frostline_heap_free(heap, block) == FROSTLINE_OK);
    size = 0;
    MUST(frostline_heap_trim(heap, 1, &size) == FROSTLINE_OK && size > 0);
    MUST(frostline_heap_on_pressure(heap, make_no_room, &size) == FROSTLINE_OK);
    MUST(frostline_heap_begin_step(heap) == FROSTLINE_OK);
    MUST(frostline_heap_write_trace(heap, "/dev/null") == FROSTLINE_UNSUPPORTED);
    MUST(strstr(frostline_last_error(), "trace=1") != NULL);
    MUST(frostline_heap_close(heap) == FROSTLINE_OK);

    MUST(frostline_heap_open(options, &heap) == FROSTLINE_OK);
    MUST(frostline_heap_alloc(heap, 5, 0, NULL, &block) == FROSTLINE_OK);
    MUST(frostline_heap_release(heap) == FROSTLINE_OK);
    MUST(frostline_heap_free(heap, block) == FROSTLINE_OK);
    MUST(frostline_heap_owns(heap, block, &owns) == FROSTLINE_CLOSED);
    return 0;
}
