// Stores tensors that lie in a framework's own device memory, and brings them back there, in the
// order of the framework's streams: events tie the copies to its work. No device is assumed: each
// call is about the one on which its memory lies. No stream's work holds up another stream's
// copies, unless there are more streams than lanes.
#pragma once

#include "bindings/manager.h"
#include "bindings/stream_pins.h"
#include "bindings/tier_set.h"
#include "migration/migration_engine.h"
#include "tiers/device_copies.h"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

namespace frostline {

/// Thread-safe. The engine, the pins and the tiers outlive it.
class DeviceIo {
   public:
    DeviceIo(MigrationEngine& engine, StreamPins& pins, TierSet& tiers)
        : engine_(engine), pins_(pins), tiers_(tiers) {}

    /// Stores `size_bytes` of device memory as the stream's work so far leaves them. Errors:
    /// invalid_argument (empty; not all of it is device memory; the stream is another GPU's, or
    /// none), unsupported (the stream captures a graph; no driver), those of
    /// MigrationEngine::put(), the driver's. What the fastest tier takes no more of, because it
    /// failed, goes below.
    Result<TensorId> put(CUdeviceptr source, std::uint64_t size_bytes, CUstream stream,
                         DeviceSource use);

    /// What the stream is given from now on comes after the source was read; it may be freed in
    /// its order, on whichever GPU that is. No effect if it has been. Errors: unsupported (it
    /// captures a graph), the driver's.
    Result<void> release_source(TensorId tensor, CUstream stream);
    /// Whether a kept source was read, so that release_source() is not needed any more. May throw
    /// std::bad_alloc, as all that allocates.
    bool source_read(TensorId tensor);

    /// Brings a tensor's bytes to device memory: what the stream is given from now on finds them
    /// there, and what it was given before is done with the target. The tensor stays stored.
    /// Errors: as put(), and those of MigrationEngine::pin() and read().
    Result<void> get(TensorId tensor, CUdeviceptr target, std::uint64_t size_bytes,
                     CUstream stream);

    /// For tensor memory in the device tier: the pin ends with the work that the stream, of
    /// whichever GPU, has, or never if it is capturing a graph.
    void unpin_after(const PinnedBytes& pinned, CUstream stream) noexcept;

   private:
    // Streams of our own, on which the copies of one of the framework's streams wait for it.
    struct Lane {
        CudaStream out;
        CudaStream in;
    };
    struct Link {
        Link(std::shared_ptr<const CudaContext> of, const HostRegistration* registered)
            : context(std::move(of)), copies(context, registered) {}
        std::shared_ptr<const CudaContext> context;
        DeviceCopies copies;
        std::deque<Lane> lanes;
        std::map<CUstream, const Lane*> lane_of;  // by the framework's stream
    };
    // Where the tensors of the fastest tier lie, as seen from a device.
    enum class Home : std::uint8_t { host, same_device, other_device };
    // The streams on which a call's copies run: the framework's own where they stay within the
    // device, which they leave so fast that they may as well be part of the stream's work.
    struct Route {
        const Link& link;
        Home home;
        CUstream stream;
        CUstream out;
        CUstream in;
    };
    using EventRef = StreamPins::EventRef;

    Result<const CudaDriver*> loaded_driver();
    Result<Link*> link_to(int device);
    Result<const Lane*> lane_for(Link& link, CUstream stream);
    Result<Route> route_of(CUdeviceptr memory, std::uint64_t size_bytes, CUstream stream);
    Home home_for(const Link& link) const noexcept;
    static Result<EventRef> mark(const Link& link, CUstream stream);
    template <class Attempt>
    static Result<EventRef> nothing_left_behind(const Link& link, CUstream way,
                                                const Attempt& attempt);
    static Result<EventRef> copy_out(const Route& route, CUdeviceptr source,
                                     const PinnedBytes& target, DeviceSource use);
    Result<EventRef> copy_in(const Route& route, const PinnedBytes& source, CUdeviceptr target);
    Result<TensorId> put_by_host(const Route& route, CUdeviceptr source, std::uint64_t size_bytes);
    Result<void> get_by_host(const Route& route, TensorId tensor, CUdeviceptr target,
                             std::uint64_t size_bytes);

    MigrationEngine& engine_;
    StreamPins& pins_;
    TierSet& tiers_;

    std::mutex mutex_;  // guards the maps; neither links nor lanes are ever removed
    std::map<int, std::unique_ptr<Link>> links_;
};

}  // namespace frostline
