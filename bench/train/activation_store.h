// Where tensors live that a training step saves for later. A tensor is either in use, at a fixed
// address that kernels on the stream may touch, or not, and then its bytes may be anywhere.
#pragma once

#include "allocator/residency.h"
#include "bench/train/device.h"

#include <cstdint>
#include <utility>

namespace frostline::train {

/// Keeps tensors between uses. All calls come from one thread, which also queues the kernels, on
/// one stream; a store orders its own work against that stream by events, and does not wait for it
/// on the host unless it has no room otherwise. Virtual because an option picks the store.
///
/// The life of a tensor: allocate, [kernels write it], done, { use, [kernels], done }, drop. Uses
/// do not overlap. In a step, activations are used in the reverse order of their allocation.
class ActivationStore {
   public:
    using Handle = std::uint64_t;
    struct Allocated {
        Handle handle;
        DeviceAddress address;
    };

    virtual ~ActivationStore() = default;

    /// A new tensor, in use, to be written; undefined content. Errors: no_space (no tensor that is
    /// not in use can make room).
    virtual Result<Allocated> allocate(std::uint64_t size_bytes) = 0;
    /// The last kernel of this use has been queued: from the end of what the stream now holds, the
    /// tensor may be moved.
    virtual Result<void> done(Handle handle) = 0;
    /// Makes the tensor ready for kernels queued from now on, at an address that may differ from
    /// earlier ones and holds until `done`. With Access::write they may also change it, which makes
    /// copies elsewhere stale. Errors: no_space, and those of reading it back.
    virtual Result<DeviceAddress> use(Handle handle, Access access) = 0;
    /// A hint that `use` of this tensor comes soon. Hints come in the order of the uses; a store
    /// without room or without need ignores them.
    virtual void prefetch(Handle handle) noexcept = 0;
    /// Ends the tensor, in use or not. Kernels already queued may still be touching it: its memory
    /// may be given to others in stream order only.
    virtual void drop(Handle handle) noexcept = 0;

    /// The most device memory that the store has held at a time.
    virtual std::uint64_t peak_device_bytes() const noexcept = 0;
};

/// One tensor of a store; drops it at its end. Movable; an empty one may only be assigned to. The
/// store must outlive it.
class Activation {
   public:
    Activation() = default;
    Activation(Activation&& other) noexcept { swap(other); }
    Activation& operator=(Activation&& other) noexcept {
        Activation taken(std::move(other));
        swap(taken);
        return *this;
    }
    ~Activation() {
        if (store_ != nullptr) store_->drop(handle_);
    }

    /// A tensor of `count` floats, in use, undefined.
    static Result<Activation> allocate(ActivationStore& store, std::uint64_t count) {
        FROSTLINE_TRY(const auto allocated, store.allocate(count * sizeof(float)));
        Activation made;
        made.store_ = &store;
        made.handle_ = allocated.handle;
        made.address_ = allocated.address;
        return made;
    }

    /// The device address; only while in use.
    float* data() const noexcept { return pointer_to<float>(address_); }

    Result<void> done() { return store_->done(handle_); }
    Result<float*> use(Access access = Access::read) {
        FROSTLINE_TRY(address_, store_->use(handle_, access));
        return data();
    }
    void prefetch() const noexcept { store_->prefetch(handle_); }
    explicit operator bool() const noexcept { return store_ != nullptr; }

   private:
    void swap(Activation& other) noexcept {
        std::swap(store_, other.store_);
        std::swap(handle_, other.handle_);
        std::swap(address_, other.address_);
    }

    ActivationStore* store_ = nullptr;
    ActivationStore::Handle handle_ = 0;
    DeviceAddress address_ = 0;
};

}  // namespace frostline::train
