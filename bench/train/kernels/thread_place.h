// Where a thread stands in its grid, and sums in a fixed order. Only for kernel sources: names the
// built-in indices, which exist inside of kernels, as macros therefore.
#pragma once

#include "bench/train/kernels/arguments.h"
#include "tiers/emulator/kernel_module.h"

#define FROSTLINE_X (static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x))
#define FROSTLINE_Y (static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y))
#define FROSTLINE_Z (static_cast<int>(blockIdx.z))

namespace frostline::train {

constexpr int kLanes = 8;

/// Eight partial sums in place of one: independent of each other, so that neither a GPU nor a CPU
/// waits for the previous addition, and joined in an order that never varies.
struct LaneSums {
    float lane[kLanes];
};

FROSTLINE_DEVICE float total(const LaneSums& sums) {
    const float* lane = sums.lane;
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/// The sum of term(i) for i in [0, count).
template <class Term>
FROSTLINE_DEVICE float sum_of(int count, const Term& term) {
    LaneSums sums = {};
    const int whole = count - count % kLanes;
    for (int i = 0; i < whole; i += kLanes) {
        for (int j = 0; j < kLanes; ++j) sums.lane[j] += term(i + j);
    }
    // A loop of constant length, so that the sums stay in registers.
    for (int j = 0; j < kLanes; ++j) {
        if (whole + j < count) sums.lane[j] += term(whole + j);
    }
    return total(sums);
}

/// The end of a group of `size` elements that starts at `first`.
template <class Index>
FROSTLINE_DEVICE Index group_end(Index first, Index size, Index count) {
    return first + size < count ? first + size : count;
}

}  // namespace frostline::train
