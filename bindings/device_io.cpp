// Events before and after each copy. A copy never runs on the framework's own stream, where it
// would hold up kernels, unless it stays within the device.
#include "bindings/device_io.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kChunkBytes = std::uint64_t{4} << 20;
// Of one device: more than a training program has streams that save tensors.
constexpr std::size_t kMostLanes = 16;

Result<int> device_of(const CudaDriver& driver, CUdeviceptr memory) {
    unsigned type = 0;
    int ordinal = 0;
    std::array<CUpointer_attribute, 2> asked{CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                             CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    std::array<void*, 2> answers{&type, &ordinal};
    FROSTLINE_TRY_VOID(driver.check(
        "cuPointerGetAttributes",
        driver.cuPointerGetAttributes(asked.size(), asked.data(), answers.data(), memory)));
    if (type != CU_MEMORYTYPE_DEVICE) {
        return Error(Errc::invalid_argument, 0,
                     "{:#x} is no device memory; give host memory to put() and get()", memory);
    }
    return ordinal;
}

Result<void> refuse_capture(const CudaContext& context, CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    FROSTLINE_TRY_VOID(context.run([&] {
        return context.driver().check("cuStreamIsCapturing",
                                      context.driver().cuStreamIsCapturing(stream, &status));
    }));
    if (status == CU_STREAM_CAPTURE_STATUS_NONE) return ok();
    return Error(Errc::unsupported, 0,
                 "the stream captures a graph, which would move nothing when it is replayed: "
                 "store and fetch tensors outside of the capture");
}

}  // namespace

Result<const CudaDriver*> DeviceIo::loaded_driver() {
    const std::lock_guard lock(mutex_);
    return tiers_.driver();
}

Result<DeviceIo::Link*> DeviceIo::link_to(int device) {
    const std::lock_guard lock(mutex_);
    if (const auto found = links_.find(device); found != links_.end()) return found->second.get();
    FROSTLINE_TRY(const CudaDriver* const driver, tiers_.driver());
    FROSTLINE_TRY(auto context, CudaContext::create(*driver, device));
    auto link = std::make_unique<Link>(std::move(context), tiers_.registration());
    return links_.emplace(device, std::move(link)).first->second.get();
}

Result<const DeviceIo::Lane*> DeviceIo::lane_for(Link& link, CUstream stream) {
    const std::lock_guard lock(mutex_);
    const auto found = link.lane_of.find(stream);
    if (found != link.lane_of.end()) return found->second;
    // The streams that come when all lanes have one share them by turns.
    if (link.lanes.size() == kMostLanes) {
        const Lane* const shared = &link.lanes[link.lane_of.size() % kMostLanes];
        return link.lane_of.emplace(stream, shared).first->second;
    }
    FROSTLINE_TRY(CudaStream out, CudaStream::create(link.context));
    FROSTLINE_TRY(CudaStream in, CudaStream::create(link.context));
    link.lanes.push_back(Lane{std::move(out), std::move(in)});
    return link.lane_of.emplace(stream, &link.lanes.back()).first->second;
}

// To and from the device on which the memory lies, if the stream can be waited for at all.
Result<DeviceIo::Route> DeviceIo::route_of(CUdeviceptr memory, CUstream stream) {
    FROSTLINE_TRY(const CudaDriver* const driver, loaded_driver());
    FROSTLINE_TRY_VOID(driver->need({CudaFeature::contexts, CudaFeature::streams}));
    FROSTLINE_TRY(const int device, device_of(*driver, memory));
    FROSTLINE_TRY(Link* const link, link_to(device));
    FROSTLINE_TRY_VOID(refuse_capture(*link->context, stream));
    const Home home = home_for(*link);
    if (home != Home::host) return Route{*link, home, stream, stream, stream};
    FROSTLINE_TRY(const Lane* const lane, lane_for(*link, stream));
    return Route{*link, home, stream, lane->out.handle(), lane->in.handle()};
}

Result<DeviceIo::EventRef> DeviceIo::mark(const Link& link, CUstream stream) {
    FROSTLINE_TRY(CudaEvent event, CudaEvent::create(link.context));
    FROSTLINE_TRY_VOID(event.record(stream));
    return std::make_shared<const CudaEvent>(std::move(event));
}

DeviceIo::Home DeviceIo::home_for(const Link& link) const noexcept {
    if (tiers_.order()[0]->info().kind != TierKind::device) return Home::host;
    const bool same = tiers_.device_context()->device() == link.context->device();
    return same ? Home::same_device : Home::other_device;
}

Result<TensorId> DeviceIo::put(CUdeviceptr source, std::uint64_t size_bytes, CUstream stream,
                               DeviceSource use) {
    if (size_bytes == 0) return Error(Errc::invalid_argument, 0, "there are no bytes to store");
    FROSTLINE_TRY(const Route route, route_of(source, stream));
    if (route.home == Home::other_device) return put_by_host(route, source, size_bytes);
    const auto tensor = engine_.allocate(size_bytes, PinEnd::later);
    if (!tensor) {
        if (tensor.error().code() != Errc::no_space) return tensor.error();
        return put_by_host(route, source, size_bytes);
    }
    const auto read = copy_out(route, source, tensor->pinned, use);
    if (!read) {
        engine_.unpin_now(tensor->pinned);
        (void)engine_.drop(tensor->id);
        return read.error();
    }
    pins_.unpin_after(tensor->pinned, *read, route.out);
    return tensor->id;
}

// What a failed attempt has started may still be using the memory, which is about to be freed.
template <class Attempt>
Result<DeviceIo::EventRef> DeviceIo::nothing_left_behind(const Link& link, CUstream way,
                                                         const Attempt& attempt) {
    const auto caught = [&]() -> Result<EventRef> {
        try {
            return attempt();
        } catch (const std::bad_alloc&) {
            return Error(Errc::out_of_memory, 0, "no memory to keep track of a copy");
        }
    };
    auto done = caught();
    if (!done) (void)synchronize(*link.context, way);
    return done;
}

// Returns the event after which the source was read, and the tensor is there. When it fails,
// nothing is in flight.
Result<DeviceIo::EventRef> DeviceIo::copy_out(const Route& route, CUdeviceptr source,
                                              const PinnedBytes& target, DeviceSource use) {
    const Link& link = route.link;
    const auto attempt = [&]() -> Result<EventRef> {
        if (route.out != route.stream) {
            FROSTLINE_TRY(const EventRef written, mark(link, route.stream));
            FROSTLINE_TRY_VOID(wait_for(*link.context, route.out, *written));
        }
        FROSTLINE_TRY_VOID(link.copies.start_read(source, target.bytes, route.out));
        FROSTLINE_TRY(const EventRef read, mark(link, route.out));
        if (route.out != route.stream && use == DeviceSource::given_back) {
            FROSTLINE_TRY_VOID(wait_for(*link.context, route.stream, *read));
        }
        return read;
    };
    return nothing_left_behind(link, route.out, attempt);
}

// For what the fastest tier cannot take: through a buffer of the host, which waits.
Result<TensorId> DeviceIo::put_by_host(const Route& route, CUdeviceptr source,
                                       std::uint64_t size_bytes) {
    const Link& link = route.link;
    std::vector<std::byte> chunk(std::min(kChunkBytes, size_bytes));
    return engine_.put_below(
        size_bytes,
        [&](std::uint64_t offset, std::size_t size) -> Result<std::span<const std::byte>> {
            const auto bytes = std::span(chunk).first(size);
            const Result<void> started =
                link.copies.start_read(source + offset, bytes, route.stream);
            FROSTLINE_TRY_VOID(synchronize(*link.context, route.stream));
            FROSTLINE_TRY_VOID(started);
            return bytes;
        });
}

Result<void> DeviceIo::release_source(TensorId tensor, CUstream stream) {
    for (const EventRef& read : pins_.events_before(tensor, Access::read)) {
        FROSTLINE_TRY_VOID(refuse_capture(read->context(), stream));
        FROSTLINE_TRY_VOID(wait_for(read->context(), stream, *read));
    }
    return ok();
}

bool DeviceIo::source_read(TensorId tensor) {
    return pins_.events_before(tensor, Access::read).empty();
}

Result<void> DeviceIo::get(TensorId tensor, CUdeviceptr target, std::uint64_t size_bytes,
                           CUstream stream) {
    FROSTLINE_TRY(const Route route, route_of(target, stream));
    FROSTLINE_TRY_VOID(engine_.check_size(tensor, size_bytes));
    if (route.home == Home::other_device) return get_by_host(route, tensor, target, size_bytes);
    const auto pinned = engine_.pin(tensor, Access::read, PinEnd::later);
    if (!pinned) {
        if (pinned.error().code() != Errc::no_space) return pinned.error();
        return get_by_host(route, tensor, target, size_bytes);
    }
    const auto there = copy_in(route, *pinned, target);
    if (!there) {
        engine_.unpin_now(*pinned);
        return there.error();
    }
    pins_.unpin_after(*pinned, *there, route.in);
    return ok();
}

// The target may still be in use by what the stream was given before, and the tensor's own bytes
// may still be on their way; what the stream is given afterwards waits for the copy.
Result<DeviceIo::EventRef> DeviceIo::copy_in(const Route& route, const PinnedBytes& source,
                                             CUdeviceptr target) {
    const Link& link = route.link;
    const auto attempt = [&]() -> Result<EventRef> {
        if (route.in != route.stream) {
            FROSTLINE_TRY(const EventRef free, mark(link, route.stream));
            FROSTLINE_TRY_VOID(wait_for(*link.context, route.in, *free));
        }
        for (const EventRef& stored : pins_.events_before(source.tensor->id(), Access::read)) {
            FROSTLINE_TRY_VOID(wait_for(*link.context, route.in, *stored));
        }
        FROSTLINE_TRY_VOID(link.copies.start_write(target, source.bytes, route.in));
        FROSTLINE_TRY(const EventRef there, mark(link, route.in));
        if (route.in != route.stream) {
            FROSTLINE_TRY_VOID(wait_for(*link.context, route.stream, *there));
        }
        return there;
    };
    return nothing_left_behind(link, route.in, attempt);
}

Result<void> DeviceIo::get_by_host(const Route& route, TensorId tensor, CUdeviceptr target,
                                   std::uint64_t size_bytes) {
    const Link& link = route.link;
    // The stream may have been made to wait for whoever still writes the tensor.
    FROSTLINE_TRY_VOID(synchronize(*link.context, route.stream));
    FROSTLINE_TRY_VOID(pins_.wait_for(tensor, Access::read));
    std::vector<std::byte> chunk(std::min(kChunkBytes, size_bytes));
    return engine_.read(
        tensor, size_bytes,
        {.room = [&](std::uint64_t, std::size_t size) { return std::span(chunk).first(size); },
         .full = [&](std::uint64_t offset, std::span<std::byte> bytes) -> Result<void> {
             const Result<void> started =
                 link.copies.start_write(target + offset, bytes, route.stream);
             FROSTLINE_TRY_VOID(synchronize(*link.context, route.stream));
             return started;
         }});
}

void DeviceIo::unpin_after(const PinnedBytes& pinned, CUstream stream) noexcept {
    const CudaContext& context = *tiers_.device_context();
    // A graph that is being captured will use the memory whenever it is replayed.
    if (const auto captures = refuse_capture(context, stream);
        !captures && captures.error().code() == Errc::unsupported) {
        pins_.keep(pinned);
        return;
    }
    engine_.unpin_later();
    const auto mark_end = [&]() -> Result<EventRef> {
        FROSTLINE_TRY(const Link* const link, link_to(context.device()));
        return mark(*link, stream);
    };
    try {
        if (const auto end = mark_end()) {
            pins_.unpin_after(pinned, *end, stream);
            return;
        }
    } catch (const std::bad_alloc&) {
    }
    // Without an event, all that can be done is to wait for everything.
    const Result<void> done = synchronize(context, stream);
    engine_.unpin_now(pinned, done ? nullptr : &done.error());
}

}  // namespace frostline
