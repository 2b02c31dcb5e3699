// Opening heaps.
#include "bindings/heaps/open_heap.h"

namespace frostline {
namespace {

HeapOptions heap_options(const HeapSettings& settings, const char* default_name) {
    HeapOptions options;
    options.name = settings.name.empty() ? default_name : settings.name;
    options.debug = settings.debug;
    options.traced = settings.trace;
    return options;
}

}  // namespace

Result<std::unique_ptr<OpenHeap>> OpenHeap::open(const HeapSettings& settings) {
    FROSTLINE_TRY_VOID(check_settings(settings));
    std::unique_ptr<OpenHeap> heap(new OpenHeap());
    const bool on_device = *settings.kind == HeapKind::device;
    const HeapOptions options = heap_options(settings, on_device ? "device heap" : "host heap");
    const Result<void> opened =
        on_device ? heap->open_device(settings, options) : heap->open_host(settings, options);
    if (!opened) {
        return Error(opened.error().code(), 0, "opening {}: {}", options.name,
                     opened.error().message());
    }
    return heap;
}

Result<void> OpenHeap::open_device(const HeapSettings& settings, const HeapOptions& heap) {
    DeviceHeapOptions options;
    FROSTLINE_TRY(options.context, context(settings.gpu.value_or(0)));
    options.capacity_bytes = settings.capacity_bytes;
    options.chunk_bytes = settings.chunk_bytes;
    options.peers = settings.peers;
    options.heap = heap;
    FROSTLINE_TRY(device_, make_device_heap(options));
    return ok();
}

Result<void> OpenHeap::open_host(const HeapSettings& settings, const HeapOptions& heap) {
    HostHeapOptions options;
    options.capacity_bytes = settings.capacity_bytes;
    options.chunk_bytes = settings.chunk_bytes;
    options.numa_node = settings.numa_node;
    if (settings.pin) {
        FROSTLINE_TRY(options.pin, context(settings.gpu.value_or(0)));
    }
    options.heap = heap;
    FROSTLINE_TRY(host_, make_host_heap(options));
    return ok();
}

Result<std::shared_ptr<const CudaContext>> OpenHeap::context(int gpu) {
    FROSTLINE_TRY(driver_, CudaDriver::load());
    FROSTLINE_TRY(auto context, CudaContext::create(*driver_, gpu));
    return std::shared_ptr<const CudaContext>(std::move(context));
}

}  // namespace frostline
