// The room that a calibration measures on, and the transfers in it. The room is a number of equal
// pieces, each reserved by itself, so that each can be fenced by itself; all are given back at the
// end. Nothing is in flight between two calls.
#pragma once

#include "tiers/page.h"
#include "tiers/result.h"
#include "tiers/tier.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <vector>

namespace frostline {

/// Not thread-safe, but for write_every_nth_piece().
class CalibrationStreams {
   public:
    struct Options {
        Tier* tier = nullptr;
        std::uint64_t piece_bytes = 0;  ///< whole pages
        std::size_t pieces = 0;         ///< the most that are reserved
        /// No transfer is chosen so large that it is expected to take longer.
        std::uint64_t patience_ns = 0;
        const std::function<std::uint64_t()>* now_ns = nullptr;
    };

    /// Errors: out_of_memory, those of reserving a piece and of the first transfer.
    static Result<std::unique_ptr<CalibrationStreams>> create(const Options& options);
    CalibrationStreams(const CalibrationStreams&) = delete;
    CalibrationStreams& operator=(const CalibrationStreams&) = delete;
    ~CalibrationStreams();

    std::size_t pieces() const noexcept { return pieces_.size(); }

    /// Moves the first `limit_bytes` of the room, or less when time is up; at least one transfer.
    /// Returns how many bytes. What was written is fenced.
    Result<std::uint64_t> pass(Transfer::Direction direction, std::uint64_t limit_bytes,
                               std::uint64_t until_ns);

    /// Moves one page, at a place within the first `limit_bytes` that differs with `turn`.
    Result<void> one_page(Transfer::Direction direction, std::size_t turn,
                          std::uint64_t limit_bytes);

    /// Writes and fences the pieces first, first + step, ... again and again until time is up.
    /// Different threads may have different pieces. Returns how many bytes.
    Result<std::uint64_t> write_every_nth_piece(std::size_t first, std::size_t step,
                                                std::uint64_t until_ns);

   private:
    static constexpr std::size_t kBufferAlignment = std::size_t{2} << 20;  // of huge pages
    struct FreeAligned {
        void operator()(std::byte* memory) const noexcept {
            ::operator delete[](memory, std::align_val_t{kBufferAlignment});
        }
    };

    explicit CalibrationStreams(const Options& options) : options_(options) {}
    Result<void> prepare();
    Result<void> choose_unit();
    Result<void> call(Transfer::Direction direction, std::uint64_t unit, std::uint64_t size_bytes);
    Result<std::uint64_t> pass_by_calls(Transfer::Direction direction, std::uint64_t limit_bytes,
                                        std::uint64_t until_ns);
    Result<std::uint64_t> pass_by_queue(Transfer::Direction direction, std::uint64_t limit_bytes,
                                        std::uint64_t until_ns);
    Result<std::uint64_t> push(Transfer::Direction direction, std::uint64_t place,
                               std::size_t slot);
    std::uint64_t units_per_piece() const { return options_.piece_bytes / unit_bytes_; }
    const Extent& piece_of(std::uint64_t unit) const { return pieces_[unit / units_per_piece()]; }
    std::uint64_t offset_of(std::uint64_t unit) const {
        return unit % units_per_piece() * unit_bytes_;
    }
    std::uint64_t units_in(std::uint64_t limit_bytes) const;
    std::span<std::byte> memory_for(std::uint64_t unit) const;
    std::uint64_t now() const { return (*options_.now_ns)(); }

    Options options_;
    std::unique_ptr<TransferQueue> queue_;  // nullptr: calls
    std::vector<Extent> pieces_;
    std::unique_ptr<std::byte[], FreeAligned> buffer_;
    std::uint64_t buffer_bytes_ = 0;
    std::uint64_t unit_bytes_ = 0;  // of one call; units are counted through all pieces
    std::size_t in_flight_ = 1;     // at most, in the queue
};

}  // namespace frostline
