// Stores tensors that lie in a framework's own device memory, and brings them back there, in the
// order of the framework's streams: events tie the copies to its work, and the host waits only for
// room. No device is assumed: each call is about the one on which its memory lies.
#pragma once

#include "bindings/manager.h"
#include "bindings/stream_pins.h"
#include "bindings/tier_set.h"
#include "migration/migration_engine.h"
#include "tiers/device_copies.h"

#include <cstdint>
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
    /// invalid_argument (empty, or no device memory), unsupported (the stream captures a graph; no
    /// driver), those of MigrationEngine::put(), the driver's.
    Result<TensorId> put(CUdeviceptr source, std::uint64_t size_bytes, CUstream stream,
                         DeviceSource use);

    /// What the stream is given from now on comes after the source was read; it may be freed in
    /// its order. No effect if it has been. Errors: the driver's.
    Result<void> release_source(TensorId tensor, CUstream stream);
    /// Whether a kept source was read, so that release_source() is not needed any more. May throw
    /// std::bad_alloc, as all that allocates.
    bool source_read(TensorId tensor);

    /// Brings a tensor's bytes to device memory: what the stream is given from now on finds them
    /// there, and what it was given before is done with the target. The tensor stays stored.
    /// Errors: as put(), and those of MigrationEngine::pin() and read().
    Result<void> get(TensorId tensor, CUdeviceptr target, std::uint64_t size_bytes,
                     CUstream stream);

    /// For tensor memory in the device tier: the pin ends with the work that the stream has.
    void unpin_after(const PinnedBytes& pinned, CUstream stream) noexcept;

   private:
    // What copies from and to one device go through: streams of our own, one for each direction.
    struct Link {
        Link(std::shared_ptr<const CudaContext> of, const HostRegistration* registered,
             CudaStream out_stream, CudaStream in_stream)
            : context(std::move(of)),
              copies(context, registered),
              out(std::move(out_stream)),
              in(std::move(in_stream)) {}
        std::shared_ptr<const CudaContext> context;
        DeviceCopies copies;
        CudaStream out;
        CudaStream in;
    };
    using EventRef = StreamPins::EventRef;

    Result<const CudaDriver*> loaded_driver();
    Result<Link*> link_to(int device);
    Result<Link*> link_of(CUdeviceptr memory, CUstream stream);
    static Result<EventRef> mark(const Link& link, CUstream stream);
    CUstream way_out(const Link& link, CUstream stream) const noexcept;
    CUstream way_in(const Link& link, CUstream stream) const noexcept;
    Result<EventRef> copy_out(const Link& link, CUdeviceptr source, const PinnedBytes& target,
                              CUstream stream, DeviceSource use);
    Result<EventRef> copy_in(const Link& link, const PinnedBytes& source, CUdeviceptr target,
                             CUstream stream);
    Result<TensorId> put_by_host(const Link& link, CUdeviceptr source, std::uint64_t size_bytes,
                                 CUstream stream);
    Result<void> get_by_host(const Link& link, TensorId tensor, CUdeviceptr target,
                             std::uint64_t size_bytes, CUstream stream);
    /// Whether tensors lie in this very device's memory, or in host memory.
    enum class Home : std::uint8_t { host, same_device, other_device };
    Home home_for(const Link& link) const noexcept;

    MigrationEngine& engine_;
    StreamPins& pins_;
    TierSet& tiers_;

    std::mutex mutex_;  // guards the map; links are never removed
    std::map<int, std::unique_ptr<Link>> links_;
};

}  // namespace frostline
