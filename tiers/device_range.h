// Device memory whose address never changes, while what lies behind it leaves and comes back. The
// order of a move is that of every move: reserve the destination, copy, fence, publish, retire. A
// failure at any step leaves the old place authoritative and gives back what was reserved.
//
// Rule of concurrency. The lock guards state, holds and events. A move takes the state `moving`
// under it, which nobody else leaves, and works without it. Holding is refused while it moves, and
// moving while it is held, so that nobody who launches work can meet unmapped memory.
#pragma once

#include "tiers/copy_engine.h"
#include "tiers/cuda_stream.h"
#include "tiers/device_tier.h"

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

namespace frostline {

/// Thread-safe, but for construction and destruction.
class DeviceRange {
   public:
    enum class State : std::uint8_t { resident, moving, evicted };
    /// Why a range must stay for good.
    enum class Fixed : std::uint8_t {
        no,
        exported,    ///< another process has a handle on it
        registered,  ///< a network card or a communication library knows its memory
        captured,    ///< a graph that may be replayed names its address
    };

    struct Options {
        DeviceTier* tier = nullptr;    ///< outlives the range
        CopyEngine* copies = nullptr;  ///< likewise
        std::uint64_t size_bytes = 0;
        bool verify = false;  ///< compare what comes back with the checksum of what left
    };

    /// Resident, with undefined content. Errors: invalid_argument (0 bytes), no_space, the
    /// driver's.
    static Result<std::unique_ptr<DeviceRange>> create(const Options& options) noexcept;
    DeviceRange(const DeviceRange&) = delete;
    DeviceRange& operator=(const DeviceRange&) = delete;
    /// Waits for the work that used it. Nobody may hold or move it.
    ~DeviceRange();

    CUdeviceptr address() const noexcept;
    std::uint64_t size_bytes() const noexcept { return extent_.length_bytes; }
    State state() const noexcept;

    /// It stays resident until as many calls of let_go(): for whoever is about to queue work on it.
    /// Errors: busy (it is moving, or evicted: resume() it first).
    Result<void> hold() noexcept;
    /// All work has been queued, on `stream`: memory goes only after that work is done. Errors: the
    /// driver's, and then the work has been waited for.
    Result<void> let_go(CUstream stream) noexcept;

    /// It never moves from now on. Errors: busy (it is not resident).
    Result<void> fix(Fixed reason) noexcept;
    Fixed fixed() const noexcept;

    /// Moves its content to another tier and gives its memory up, after all work that used it.
    /// Waits. Errors: busy (held, moving, or fixed; the text says which), not_found (it is evicted
    /// already), those of the tiers and of copying; the range is then as it was. Only if the driver
    /// refuses to unmap is it evicted all the same, for good: the tier has closed, resume() fails.
    Result<void> evict(Tier& to) noexcept;

    /// Brings memory and content back, all or nothing. Waits. Errors: busy (it moves, or is
    /// resident), no_space, corrupt, as evict(); the range then stays evicted.
    Result<void> resume() noexcept;

   private:
    // Where the content is while it is evicted.
    struct Away {
        Tier* tier = nullptr;
        Extent extent;
        std::uint64_t checksum = 0;
    };

    DeviceRange(const Options& options, const Extent& extent)
        : options_(options), extent_(extent) {}
    Result<void> start_move(State from) noexcept;
    void end_move(State to) noexcept;
    Result<void> wait_for_users() noexcept;
    Result<CopyOutcome> copy(Tier& from, const Extent& source, Tier& to,
                             const Extent& target) noexcept;
    Result<Away> copy_away(Tier& to) noexcept;
    Result<void> copy_back() noexcept;

    const Options options_;
    const Extent extent_;

    mutable std::mutex mutex_;  // guards everything below
    State state_ = State::resident;
    Fixed fixed_ = Fixed::no;
    std::uint64_t holds_ = 0;
    std::list<CudaEvent> used_until_;  // of all uses that may not have ended
    Away away_;                        // of whoever moves
};

}  // namespace frostline
