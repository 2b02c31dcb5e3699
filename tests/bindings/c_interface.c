/* Uses every function of frostline.h from plain C11, as a program of a user would. What it finds is
 * returned as the number of the line that went wrong, 0 if none did. */
#include "frostline/frostline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int use_every_function(const char* folder);
int use_device_functions(void* source, void* target, size_t size_bytes, void* stream);

#define MUST(condition)                    \
    do {                                   \
        if (!(condition)) return __LINE__; \
    } while (0)

static void count_release(void* user, void* data, size_t size_bytes) {
    (void)data;
    *(size_t*)user += size_bytes;
}

static int use_tensors(frostline_context* context) {
    unsigned char data[5000];
    unsigned char back[5000];
    memset(data, 7, sizeof data);
    frostline_id id = 0;
    MUST(frostline_put(context, data, sizeof data, &id) == FROSTLINE_OK);
    MUST(id != 0);
    size_t size = 0;
    MUST(frostline_size(context, id, &size) == FROSTLINE_OK && size == sizeof data);
    MUST(frostline_prefetch(context, id) == FROSTLINE_OK);
    MUST(frostline_get(context, id, back, sizeof back) == FROSTLINE_OK);
    MUST(memcmp(data, back, sizeof data) == 0);

    frostline_pinned* pinned = NULL;
    MUST(frostline_pin(context, id, FROSTLINE_WRITE, &pinned) == FROSTLINE_OK);
    size = 0;
    unsigned char* const bytes = frostline_pinned_data(pinned, &size);
    MUST(bytes != NULL && size == sizeof data && (size_t)bytes % 64 == 0);
    MUST(frostline_pinned_data(pinned, NULL) == bytes);
    bytes[4999] = 9;
    MUST(frostline_close(context) == FROSTLINE_BUSY);
    MUST(strstr(frostline_last_error(), "unpin") != NULL);
    frostline_unpin(pinned);
    MUST(frostline_get(context, id, back, sizeof back) == FROSTLINE_OK && back[4999] == 9);
    MUST(frostline_drop(context, id) == FROSTLINE_OK);
    MUST(frostline_drop(context, id) == FROSTLINE_NOT_FOUND);
    MUST(frostline_get(context, id, back, sizeof back) == FROSTLINE_NOT_FOUND);
    return 0;
}

static int use_adoption(frostline_context* context) {
    static unsigned char lent[10000];
    static size_t released = 0;
    released = 0;
    frostline_id id = 0;
    MUST(frostline_adopt(context, lent, sizeof lent, count_release, &released, 1, &id) ==
         FROSTLINE_OK);
    MUST(released == 0);
    MUST(frostline_adopt(context, lent, sizeof lent, count_release, &released, 0, &id) ==
         FROSTLINE_BUSY);
    MUST(frostline_settle(context, id) == FROSTLINE_OK);
    MUST(frostline_drop(context, id) == FROSTLINE_OK);
    MUST(released == sizeof lent);
    MUST(frostline_settle(context, id) == FROSTLINE_NOT_FOUND);
    return 0;
}

static int use_figures(frostline_context* context, const char* folder) {
    frostline_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    MUST(frostline_get_stats(context, &stats) == FROSTLINE_OK);
    MUST(stats.struct_size == sizeof stats);
    MUST(stats.stored == 2 && stats.dropped == 2 && stats.tiers == 2);
    frostline_tier_stats tier;
    memset(&tier, 0, sizeof tier);
    tier.struct_size = sizeof tier;
    MUST(frostline_get_tier_stats(context, 1, &tier) == FROSTLINE_OK);
    MUST(strcmp(tier.name, "swap") == 0 && strcmp(tier.label, "real") == 0 && tier.open == 1);
    MUST(frostline_get_tier_stats(context, 2, &tier) == FROSTLINE_NOT_FOUND);

    MUST(frostline_step(context) == FROSTLINE_OK);
    char path[4096];
    MUST(snprintf(path, sizeof path, "%s/trace", folder) < (int)sizeof path);
    MUST(frostline_write_trace(context, path) == FROSTLINE_OK);
    FILE* const file = fopen(path, "r");
    MUST(file != NULL);
    char line[100] = "";
    const char* const first = fgets(line, sizeof line, file);
    MUST(fclose(file) == 0);
    MUST(first != NULL && strcmp(line, "frostline-trace 1\n") == 0);
    MUST(remove(path) == 0);
    return 0;
}

int use_every_function(const char* folder) {
    MUST(strcmp(frostline_version(), "") != 0);
    MUST(frostline_last_error() != NULL);
    char swap[4096];
    MUST(snprintf(swap, sizeof swap, "swap=%s", folder) < (int)sizeof swap);
    const char* const options[] = {"dram=1MiB", swap, "swap_bytes=8MiB", "verify=1", NULL};
    frostline_context* context = NULL;
    MUST(frostline_open(options, &context) == FROSTLINE_OK);
    int line = use_tensors(context);
    if (line == 0) line = use_adoption(context);
    if (line == 0) line = use_figures(context, folder);
    const frostline_status closed = frostline_close(context);
    if (line == 0) MUST(closed == FROSTLINE_OK);
    return line;
}

int use_device_functions(void* source, void* target, size_t size_bytes, void* stream) {
    const char* const options[] = {"device=8MiB", "gpu=0", "dram=8MiB", "calibrate=0", NULL};
    frostline_context* context = NULL;
    MUST(frostline_open(options, &context) == FROSTLINE_OK);
    frostline_id id = 0;
    MUST(frostline_put_device(context, source, size_bytes, stream, 0, &id) == FROSTLINE_OK);
    MUST(frostline_get_device(context, id, target, size_bytes, stream) == FROSTLINE_OK);
    MUST(frostline_drop(context, id) == FROSTLINE_OK);
    MUST(frostline_put_device(context, source, size_bytes, stream, 1, &id) == FROSTLINE_OK);
    int read = -1;
    MUST(frostline_source_read(context, id, &read) == FROSTLINE_OK && (read == 0 || read == 1));
    MUST(frostline_release_source(context, id, stream) == FROSTLINE_OK);

    frostline_pinned* pinned = NULL;
    frostline_id made = 0;
    MUST(frostline_allocate(context, size_bytes, &made, &pinned) == FROSTLINE_OK);
    size_t size = 0;
    MUST(frostline_pinned_data(pinned, &size) != NULL && size == size_bytes);
    MUST(frostline_close(context) == FROSTLINE_BUSY);
    frostline_unpin_after(pinned, stream);
    frostline_unpin_after(NULL, stream);

    frostline_tier_stats tier = {.struct_size = sizeof tier};
    MUST(frostline_get_tier_stats(context, 0, &tier) == FROSTLINE_OK);
    MUST(strcmp(tier.name, "device") == 0 && strcmp(tier.label, "emulated") == 0);
    MUST(frostline_close(context) == FROSTLINE_OK);
    return 0;
}
