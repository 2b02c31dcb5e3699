// Events before and after each copy. A copy never runs on the framework's own stream, where it
// would hold up kernels, unless it stays within the device.
#include "bindings/device_io.h"

#include "bindings/device_arguments.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kChunkBytes = std::uint64_t{4} << 20;
// Of one device: more than a training program has streams that save tensors.
constexpr std::size_t kMostLanes = 16;

// What the fastest tier has no room for, or takes no more of because it failed or the manager is
// closing, is no concern of the others': they go on storing, and giving what they hold.
bool lower_tiers_may_do(const Error& refusal) {
    return refusal.code() == Errc::no_space || refusal.code() == Errc::closed;
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

// To and from the device on which the memory lies, if all of it does and the stream can be waited
// for at all.
Result<DeviceIo::Route> DeviceIo::route_of(CUdeviceptr memory, std::uint64_t size_bytes,
                                           CUstream stream) {
    FROSTLINE_TRY(const CudaDriver* const driver, loaded_driver());
    FROSTLINE_TRY_VOID(driver->need({CudaFeature::contexts, CudaFeature::streams}));
    FROSTLINE_TRY(const int device, gpu_of_memory(*driver, memory));
    FROSTLINE_TRY(Link* const link, link_to(device));
    FROSTLINE_TRY_VOID(check_range(*link->context, memory, size_bytes));
    FROSTLINE_TRY_VOID(check_stream(*link->context, stream));
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
    FROSTLINE_TRY(const Route route, route_of(source, size_bytes, stream));
    if (route.home == Home::other_device) return put_by_host(route, source, size_bytes);
    const auto tensor = engine_.allocate(size_bytes, PinEnd::later);
    if (!tensor) {
        if (!lower_tiers_may_do(tensor.error())) return tensor.error();
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
    FROSTLINE_TRY(const Route route, route_of(target, size_bytes, stream));
    FROSTLINE_TRY_VOID(engine_.check_size(tensor, size_bytes));
    if (route.home == Home::other_device) return get_by_host(route, tensor, target, size_bytes);
    const auto pinned = engine_.pin(tensor, Access::read, PinEnd::later);
    if (!pinned) {
        if (!lower_tiers_may_do(pinned.error())) return pinned.error();
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
    const CudaContext& tier = *tiers_.device_context();
    // The work may be another GPU's, which reaches this memory: its end is marked over there.
    const auto mark_end = [&]() -> Result<EventRef> {
        FROSTLINE_TRY(const int gpu, gpu_of_stream(tier, stream));
        FROSTLINE_TRY(const Link* const link, link_to(gpu));
        FROSTLINE_TRY_VOID(refuse_capture(*link->context, stream));
        return mark(*link, stream);
    };
    std::optional<Result<EventRef>> end;
    try {
        end = mark_end();
    } catch (const std::bad_alloc&) {
        // As if the driver had refused: below.
    }
    // A graph that is being captured will use the memory whenever it is replayed.
    if (end && !*end && end->error().code() == Errc::unsupported) return pins_.keep(pinned);
    engine_.unpin_later();
    if (end && *end) return pins_.unpin_after(pinned, **end, stream);
    // Without an event, all that can be done is to wait for everything.
    const Result<void> done = synchronize(tier, stream);
    engine_.unpin_now(pinned, done ? nullptr : &done.error());
}

}  // namespace frostline
