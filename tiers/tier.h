// The interface of a medium: room is reserved and released in extents, bytes are written, fenced
// and read. A tier knows nothing of tensors. Its budget is hard: used_bytes never exceeds
// capacity_bytes.
#pragma once

#include "tiers/extent.h"
#include "tiers/result.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace frostline {

/// Whether what a tier reports is the medium itself or something that stands in for it.
enum class Label : std::uint8_t { real, emulated };

constexpr std::string_view name(Label label) noexcept {
    return label == Label::real ? "real" : "emulated";
}

/// What a tier is; fixed when it is created.
struct TierInfo {
    TierId id{};
    TierKind kind{};
    std::string location;                 ///< path of the file or directory; empty for memory
    Label label = Label::real;            ///< emulated: a file stands in for pmem
    std::uint64_t capacity_bytes = 0;     ///< the budget
    std::uint64_t granularity_bytes = 1;  ///< reservations are charged in multiples of this
    bool host_addressable = false;        ///< host_address() gives an address
    bool durable = false;                 ///< fenced bytes survive a power cut
};

/// How full a tier is.
struct TierUsage {
    std::uint64_t used_bytes = 0;  ///< reserved now
    std::uint64_t peak_bytes = 0;  ///< the most that was reserved at once
    bool open = true;              ///< false once the medium failed: it takes no new data
};

/// A medium. All functions may be called from any thread; two calls may touch the same extent at
/// once only if both read. Whoever reserves an extent owns it until release().
class Tier {
   public:
    Tier() = default;
    Tier(const Tier&) = delete;
    Tier& operator=(const Tier&) = delete;
    virtual ~Tier() = default;

    virtual const TierInfo& info() const noexcept = 0;
    virtual TierUsage usage() const noexcept = 0;

    /// Room for `size_bytes` > 0. Errors: no_space (budget or medium full), closed.
    virtual Result<Extent> reserve(std::uint64_t size_bytes) noexcept = 0;

    /// Gives an extent back, exactly as it was reserved. Anything else ends the program.
    virtual void release(const Extent& extent) noexcept = 0;

    /// Writes `bytes` at `offset` within the extent. On an error that the medium will repeat (full,
    /// input/output error) the tier closes itself to new reservations; what it holds stays
    /// readable.
    virtual Result<void> write(const Extent& extent, std::uint64_t offset,
                               std::span<const std::byte> bytes) noexcept = 0;

    /// Reads into `bytes` from `offset` within the extent.
    virtual Result<void> read(const Extent& extent, std::uint64_t offset,
                              std::span<std::byte> bytes) noexcept = 0;

    /// Returns when everything written to the extent before is in place; on a durable tier, when
    /// it would survive a power cut. Nothing may point to the bytes before that.
    virtual Result<void> fence(const Extent& extent) noexcept = 0;

    /// Where the host finds the extent's bytes, or nullptr if it cannot address them.
    virtual std::byte* host_address(const Extent& extent) const noexcept = 0;
};

}  // namespace frostline
