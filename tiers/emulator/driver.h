// The state of the emulated driver: one object, guarded by one mutex. Whoever reads or changes
// anything below, or anything that it owns, holds the mutex; nobody holds it while bytes are
// copied, kernels or host functions run, or a thread waits. Conditions are waited for with the
// mutex. The object is never destroyed, because engines and late callers may still use it when the
// process ends; from then on calls are refused.
#pragma once

#include <cuda.h>

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tiers/emulator/address_space.h"
#include "tiers/emulator/capture.h"
#include "tiers/emulator/context.h"
#include "tiers/emulator/emulator.h"
#include "tiers/emulator/engine.h"
#include "tiers/emulator/handle_table.h"
#include "tiers/emulator/memory_pool.h"
#include "tiers/emulator/misuse.h"
#include "tiers/emulator/scheduler.h"
#include "tiers/emulator/settings.h"

namespace frostline::emulator {

/// What other parts of the emulator own and the core does not know: they tell what was leaked, and
/// free it, when the driver restarts or ends. Called with the mutex held and all work done.
struct Owner {
    /// May report `leak(kind, count, first)` for each kind that was not given back.
    std::function<void(const std::function<void(const char*, std::size_t, std::uint64_t)>&)> leaks;
    std::function<void()> free_all;
};

enum class DriverState { uninitialised, initialised, ended };

struct Driver {
    std::mutex mutex;
    std::condition_variable completed;  ///< an operation is done
    unsigned waiters = 0;               ///< threads that wait for `completed`
    std::uint64_t unfinished = 0;       ///< operations queued or running, of all streams

    DriverState state = DriverState::uninitialised;
    bool settings_read = false;
    std::string settings_error;    ///< empty: they are valid
    bool forked = false;           ///< this is a child of the process that initialised it
    std::uint64_t generation = 1;  ///< grows with each restart: what threads remember is stale
    std::string overrides;         ///< of the last restart
    Settings settings;
    std::mt19937_64 random;
    std::uint64_t next_id = 1;  ///< of contexts, streams and buffers

    std::vector<std::unique_ptr<Device>> devices;
    std::map<std::pair<int, int>, std::unique_ptr<Engine>> engines;  ///< by device and kind
    HandleTable<Context> contexts{1};
    HandleTable<Stream> streams{2};
    HandleTable<Event> events{3};
    HandleTable<PhysicalMemory> physical{4};
    HandleTable<MemoryPool> pools{5};
    PhysicalStore host_store;  ///< pinned host memory and handles that lie on the host
    AddressSpace memory;
    std::set<std::uintptr_t> freed_addresses;  ///< to tell a double free from a wild one
    /// Every stream that has work, those that the user destroyed included.
    std::map<Stream*, std::shared_ptr<Stream>> busy_streams;
    std::vector<std::shared_ptr<Capture>> captures;  ///< active ones
    /// What waits for work to end: called after each operation until it returns true.
    std::vector<std::function<bool()>> deferred;

    MisuseReports misuse;
    std::deque<frostline_emulator_operation> timeline;
    std::vector<Owner> owners;
};

Driver& driver();

/// Reads the settings unless that has been done, and plants the faults that they name. An error is
/// kept in settings_error, for cuInit to tell.
void read_settings();
/// Makes the devices: the work of cuInit, once.
void initialise();
/// Ends all work, reports leaks if told to, and frees everything that users own.
void tear_down(Lock& lock, bool report_leaks);
/// The device of that ordinal; null if there is none.
Device* find_device(int ordinal);

/// The contexts of one thread, by handle; the back is current. Nothing of it needs a destructor,
/// because a program's static objects call the driver after the thread-local ones are gone.
class ContextStack {
   public:
    bool empty() const { return count_ == 0; }
    std::uint64_t back() const { return handles_[count_ - 1]; }
    /// False if it is full.
    bool push(std::uint64_t handle) {
        if (count_ == handles_.size()) return false;
        handles_[count_++] = handle;
        return true;
    }
    void pop() { --count_; }
    void clear() { count_ = 0; }

   private:
    // Deeper than programs nest, and little: a library that is loaded late has only a few hundred
    // bytes of thread-local memory.
    std::array<std::uint64_t, 32> handles_{};
    std::size_t count_ = 0;
};

/// That of the calling thread.
ContextStack& context_stack();
/// The calling thread's current context; null if there is none, or it was destroyed.
std::shared_ptr<Context> current_context();

/// True while the calling thread runs a host function: it may not call the driver then.
bool& in_host_function() noexcept;
/// True while an entry point of the per-thread default stream runs (_ptds, _ptsz): a null stream
/// then means the thread's own.
bool& null_stream_is_per_thread() noexcept;

/// The stream that `handle` names for the current context, with the special ones. Null after a
/// report if there is none; `error` then says what to return.
std::shared_ptr<Stream> resolve_stream(const std::shared_ptr<Context>& context, CUstream handle,
                                       CUresult& error);

/// The engine of that kind for a device; made when first asked for.
Engine& engine_for(int device, EngineKind kind);

/// Makes an error stick to the context, as on a device whose memory can no longer be trusted.
void make_sticky(const std::shared_ptr<Context>& context, CUresult error);

/// CLOCK_MONOTONIC.
std::uint64_t now_ns() noexcept;

}  // namespace frostline::emulator
