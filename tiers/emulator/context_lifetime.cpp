// A context takes everything along that was made in it: its memory, streams and events.
#include "tiers/emulator/context_lifetime.h"

#include "tiers/emulator/driver.h"
#include "tiers/emulator/unmapping.h"

namespace frostline::emulator {

std::shared_ptr<Context> make_context(int device, unsigned flags, bool primary) {
    Driver& d = driver();
    auto context = std::make_shared<Context>();
    context->id = d.next_id++;
    context->device = device;
    context->flags = flags;
    context->primary = primary;
    context->limits = {{CU_LIMIT_STACK_SIZE, 1024},
                       {CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20},
                       {CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20},
                       {CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 2},
                       {CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 2048},
                       {CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64},
                       {CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0}};
    context->legacy_stream = std::make_shared<Stream>();
    context->legacy_stream->id = d.next_id++;
    context->legacy_stream->context = context;
    context->legacy_stream->device = device;
    context->legacy_stream->legacy = true;
    context->handle = reinterpret_cast<CUcontext>(d.contexts.add(context));
    return context;
}

void destroy_context(Lock& lock, const std::shared_ptr<Context>& context) {
    Driver& d = driver();
    wait_context(lock, context);
    for (const std::uint64_t stream : context->streams) d.streams.remove(stream);
    for (const std::uint64_t event : context->events) d.events.remove(event);
    std::vector<std::uintptr_t> owned;
    for (const auto& [start, region] : d.memory.regions) {
        if (region.kind != RegionKind::mapping && region.context.lock() == context) {
            owned.push_back(start);
        }
    }
    for (const std::uintptr_t start : owned) remove_region(start);
    d.contexts.remove(reinterpret_cast<std::uint64_t>(context->handle));
}

bool valid_context_flags(unsigned flags) {
    const unsigned scheduling = flags & CU_CTX_SCHED_MASK;
    const bool one_way = scheduling == CU_CTX_SCHED_AUTO || scheduling == CU_CTX_SCHED_SPIN ||
                         scheduling == CU_CTX_SCHED_YIELD ||
                         scheduling == CU_CTX_SCHED_BLOCKING_SYNC;
    return one_way && (flags & ~unsigned{CU_CTX_FLAGS_MASK}) == 0;
}

}  // namespace frostline::emulator
