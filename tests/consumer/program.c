/* Uses an installed Frostline from C: a heap, and a context of tiers. */
#include <frostline/frostline.h>
#include <frostline/heap.h>

#include <stdio.h>
#include <string.h>

int main(void) {
    const char* const heap_options[] = {"kind=host", "capacity=16MiB", NULL};
    const char* const options[] = {"dram=1MiB", "calibrate=0", NULL};
    frostline_heap* heap = NULL;
    frostline_context* context = NULL;
    frostline_id id = 0;
    void* block = NULL;
    char back[6];
    if (frostline_heap_open(heap_options, &heap) != FROSTLINE_OK ||
        frostline_heap_alloc(heap, 6, 0, NULL, &block) != FROSTLINE_OK ||
        frostline_open(options, &context) != FROSTLINE_OK) {
        fprintf(stderr, "%s\n", frostline_last_error());
        return 1;
    }
    memcpy(block, "frost", 6);
    if (frostline_put(context, block, 6, &id) != FROSTLINE_OK ||
        frostline_get(context, id, back, 6) != FROSTLINE_OK || strcmp(back, "frost") != 0 ||
        frostline_close(context) != FROSTLINE_OK ||
        frostline_heap_free(heap, block) != FROSTLINE_OK ||
        frostline_heap_close(heap) != FROSTLINE_OK) {
        fprintf(stderr, "%s\n", frostline_last_error());
        return 1;
    }
    puts(frostline_version());
    return 0;
}
