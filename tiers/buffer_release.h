// How a buffer that was lent to a tier goes back to its owner.
#pragma once

#include <cstddef>
#include <cstdint>

namespace frostline {

/// Called exactly once when an adopted buffer is needed no longer; from then on it is its former
/// owner's again. Called without any lock held, on the thread that released the last use of it.
struct BufferRelease {
    void (*call)(void* user, std::byte* address, std::uint64_t size_bytes) = nullptr;
    void* user = nullptr;
};

}  // namespace frostline
