// Kernels for the tests of the emulator: each does one thing that a test needs to see.
#include "tiers/emulator/kernel_module.h"

FROSTLINE_DEVICE unsigned global_index(const FrostlineDim3& block, const FrostlineDim3& at,
                                       const FrostlineDim3& in) {
    return at.x * block.x + in.x;
}

FROSTLINE_KERNEL(do_nothing) {}

FROSTLINE_KERNEL(fill, int* data, int value, int count) {
    const unsigned i = global_index(blockDim, blockIdx, threadIdx);
    if (i < static_cast<unsigned>(count)) data[i] = value;
}

FROSTLINE_KERNEL(add_one, int* data, int count) {
    const unsigned i = global_index(blockDim, blockIdx, threadIdx);
    if (i < static_cast<unsigned>(count)) data[i] += 1;
}

// Counts the threads of a whole grid, in all three dimensions.
FROSTLINE_KERNEL(count_threads, unsigned long long* counter) {
    *counter += 1;
}

struct Span {
    int* data;
    int count;
};

// A pointer inside of a structure.
FROSTLINE_KERNEL(fill_span, Span span, int value) {
    const unsigned i = global_index(blockDim, blockIdx, threadIdx);
    if (i < static_cast<unsigned>(span.count)) span.data[i] = value;
}

// Parameters of all sizes, each of which must arrive.
FROSTLINE_KERNEL(store_mixed, double* out, char a, double b, short c, float d, long long e) {
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
    out[4] = static_cast<double>(e);
}

// Computes an address from numbers only, so that nobody can tell beforehand what it touches.
FROSTLINE_KERNEL(write_at, unsigned high, unsigned low, int value) {
    const auto address = (static_cast<unsigned long long>(high) << 32) | low;
    *reinterpret_cast<int*>(address) = value;
}

FROSTLINE_KERNEL(read_at, int* out, unsigned high, unsigned low) {
    const auto address = (static_cast<unsigned long long>(high) << 32) | low;
    *out = *reinterpret_cast<const int*>(address);
}

// Runs until the host, through registered memory, lets it end.
FROSTLINE_KERNEL(run_until_set, const unsigned* flag) {
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) == 0) {
    }
}

FROSTLINE_KERNEL(set_flag, unsigned* flag) {
    __atomic_store_n(flag, 1u, __ATOMIC_RELEASE);
}
