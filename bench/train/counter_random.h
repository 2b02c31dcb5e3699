// Random numbers by counter: the n-th number of a seed is a function of both, so that it does not
// matter who asks for what first, and no library's generator can change under us.
#pragma once

#include <cstdint>

namespace frostline::train {

/// 64 well-mixed bits of (seed, index), by the finalizer of SplitMix64.
constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index) {
    std::uint64_t bits = seed * 0xD1342543DE82EF95U + (index + 1) * 0x9E3779B97F4A7C15U;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9U;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBU;
    return bits ^ (bits >> 31);
}

/// Near-normal with mean 0 and deviation 1: the sum of four uniform numbers of 16 bits. Exact
/// arithmetic only, so the result is the same everywhere; it never exceeds 3.5 in magnitude.
constexpr float random_normal(std::uint64_t seed, std::uint64_t index) {
    const std::uint64_t bits = random_bits(seed, index);
    std::int64_t sum = 0;
    for (int part = 0; part < 4; ++part) {
        sum += static_cast<std::int64_t>((bits >> (16 * part)) & 0xFFFF);
    }
    constexpr float kMiddle = 2 * 65535.0F;
    constexpr float kDeviation = 37837.2F;  // 65536 * sqrt(4 / 12)
    return (static_cast<float>(sum) - kMiddle) / kDeviation;
}

}  // namespace frostline::train
