// Allocation streams of training steps: read from files, or made by a seeded generator of the same
// kind (transformers and U-Nets with AdamW, whose shapes change from step to step).
#pragma once

#include <cstdint>
#include <filesystem>
#include <random>
#include <vector>

namespace frostline {

/// A block with this number is born, with its size, or dies.
struct BirthOrDeath {
    std::uint64_t block = 0;
    std::uint64_t size_bytes = 0;  // 0: it dies
};
using TrainingStream = std::vector<BirthOrDeath>;

/// The format frostline-allocs 1. Empty when the file cannot be read.
TrainingStream read_allocations(const std::filesystem::path& file);

/// The format frostline-trace 1, three steps of it: weights first, then each tensor is born in the
/// first kernel that touches it and dies after its last. Empty when the file cannot be read.
TrainingStream read_trace(const std::filesystem::path& file);

TrainingStream make_transformer_steps(std::mt19937_64& random);
TrainingStream make_unet_steps(std::mt19937_64& random);

}  // namespace frostline
