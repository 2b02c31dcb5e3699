// Random tests draw from one seed, which is printed, so that FROSTLINE_SEED repeats what failed.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace frostline {

/// This process's seed: FROSTLINE_SEED, or a fresh one. Printed at its first use.
inline std::uint64_t test_seed() {
    static const std::uint64_t seed = [] {
        const char* const given = std::getenv("FROSTLINE_SEED");
        const std::uint64_t value =
            given != nullptr ? std::strtoull(given, nullptr, 0)
                             : std::uint64_t{std::random_device{}()} << 32 | std::random_device{}();
        std::printf("[   SEED   ] FROSTLINE_SEED=%llu\n", static_cast<unsigned long long>(value));
        std::fflush(stdout);
        return value;
    }();
    return seed;
}

/// A generator for one stream of a test; streams with different numbers are independent.
inline std::mt19937_64 random_stream(std::uint64_t stream) {
    const std::uint64_t seed = test_seed();
    std::seed_seq words{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                        static_cast<std::uint32_t>(stream),
                        static_cast<std::uint32_t>(stream >> 32)};
    return std::mt19937_64(words);
}

/// Uniform in [low, high].
template <class Random>
std::uint64_t between(Random& random, std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(random);
}

}  // namespace frostline
