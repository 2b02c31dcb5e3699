// Thin ownership around xxHash's streaming state.
#include "tiers/checksum.h"

#include <xxhash.h>

#include <new>

namespace frostline {

Checksum::Checksum() : state_(XXH3_createState()) {
    if (!state_) throw std::bad_alloc();
    (void)XXH3_64bits_reset(state_.get());  // fails on a null state only
}

void Checksum::add(std::span<const std::byte> bytes) noexcept {
    (void)XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());  // likewise
}

std::uint64_t Checksum::value() const noexcept {
    return XXH3_64bits_digest(state_.get());
}

void Checksum::Free::operator()(XXH3_state_s* state) const noexcept {
    (void)XXH3_freeState(state);
}

std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
    return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace frostline
