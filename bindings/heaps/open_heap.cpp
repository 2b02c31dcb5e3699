// Opening heaps.
#include "bindings/heaps/open_heap.h"

namespace frostline {

Result<std::unique_ptr<OpenHeap>> OpenHeap::open(const HeapSettings& settings) {
    FROSTLINE_TRY_VOID(check_settings(settings));
    std::unique_ptr<OpenHeap> heap(new OpenHeap());
    FROSTLINE_TRY_VOID(*settings.kind == HeapKind::device ? heap->open_device(settings)
                                                          : heap->open_host(settings));
    return heap;
}

Result<void> OpenHeap::open_device(const HeapSettings& settings) {
    DeviceHeapOptions options;
    FROSTLINE_TRY(options.context, context(settings.gpu.value_or(0)));
    options.capacity_bytes = settings.capacity_bytes;
    options.chunk_bytes = settings.chunk_bytes;
    options.peers = settings.peers;
    options.heap.name = settings.name.empty() ? "device heap" : settings.name;
    FROSTLINE_TRY(device_, make_device_heap(options));
    return ok();
}

Result<void> OpenHeap::open_host(const HeapSettings& settings) {
    HostHeapOptions options;
    options.capacity_bytes = settings.capacity_bytes;
    options.chunk_bytes = settings.chunk_bytes;
    options.numa_node = settings.numa_node;
    if (settings.pin) {
        FROSTLINE_TRY(options.pin, context(settings.gpu.value_or(0)));
    }
    options.heap.name = settings.name.empty() ? "host heap" : settings.name;
    FROSTLINE_TRY(host_, make_host_heap(options));
    return ok();
}

Result<std::shared_ptr<const CudaContext>> OpenHeap::context(int gpu) {
    FROSTLINE_TRY(driver_, CudaDriver::load());
    FROSTLINE_TRY(auto context, CudaContext::create(*driver_, gpu));
    return std::shared_ptr<const CudaContext>(std::move(context));
}

}  // namespace frostline
