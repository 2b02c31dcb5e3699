// What a launch says, checked and copied at the call: the shape of grid and block, and the kernel's
// parameters packed as the kernel reads them. Whoever launches may change or free its own right
// after the call.
#pragma once

#include "tiers/emulator/kernel_module.h"

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace frostline::emulator {

/// Whether a device could run this shape at all.
bool shape_is_possible(const FrostlineEmulatedLaunch& launch) noexcept;

/// Copies the parameters into one buffer, from the array of pointers or from `extra`, whichever is
/// given. Errors: CUDA_ERROR_INVALID_VALUE (both or, with parameters to pass, neither; an entry is
/// null, unknown or missing; the buffer's size is not that of the kernel's parameters).
CUresult pack_parameters(const FrostlineEmulatedKernel& kernel, void** pointers, void** extra,
                         std::vector<std::byte>& packed);

struct PossibleAddress {
    std::uint64_t value;
    bool is_pointer;  ///< a parameter of its own, of a pointer's type
};

/// Every value in packed parameters that could be an address: whole 8-byte words. Pointers inside
/// of structures are found, too, among numbers that only look like some.
std::vector<PossibleAddress> possible_addresses(const FrostlineEmulatedKernel& kernel,
                                                const std::vector<std::byte>& packed);

}  // namespace frostline::emulator
