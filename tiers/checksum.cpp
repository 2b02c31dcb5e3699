// Sums of blocks, and the sum over them.
#include "tiers/checksum.h"

// For the streaming state as a plain object, which needs no memory of its own.
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include <algorithm>

namespace frostline {

Checksum::Checksum(std::uint64_t length_bytes)
    : blocks_((length_bytes + kBlockBytes - 1) / kBlockBytes) {}

void Checksum::add(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    for (std::uint64_t at = 0; at < bytes.size(); at += kBlockBytes) {
        const std::uint64_t size = std::min<std::uint64_t>(kBlockBytes, bytes.size() - at);
        blocks_[(offset + at) / kBlockBytes] = XXH3_64bits(bytes.data() + at, size);
    }
}

std::uint64_t Checksum::value() const noexcept {
    return XXH3_64bits(blocks_.data(), blocks_.size() * sizeof(std::uint64_t));
}

std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
    XXH3_state_t state;
    (void)XXH3_64bits_reset(&state);  // these fail on a null state only
    for (std::uint64_t at = 0; at < bytes.size(); at += Checksum::kBlockBytes) {
        const std::uint64_t size =
            std::min<std::uint64_t>(Checksum::kBlockBytes, bytes.size() - at);
        const std::uint64_t sum = XXH3_64bits(bytes.data() + at, size);
        (void)XXH3_64bits_update(&state, &sum, sizeof sum);
    }
    return XXH3_64bits_digest(&state);
}

}  // namespace frostline
