// XXH3-64 over bytes that come in pieces: what left a tier's care must be what comes back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

struct XXH3_state_s;

namespace frostline {

/// Not thread-safe. Algorithm: xxHash's XXH3, 64 bits, seed 0.
class Checksum {
   public:
    /// May throw std::bad_alloc.
    Checksum();
    void add(std::span<const std::byte> bytes) noexcept;
    std::uint64_t value() const noexcept;

   private:
    struct Free {
        void operator()(XXH3_state_s* state) const noexcept;
    };
    std::unique_ptr<XXH3_state_s, Free> state_;
};

/// The checksum of bytes that lie together.
std::uint64_t checksum(std::span<const std::byte> bytes) noexcept;

}  // namespace frostline
