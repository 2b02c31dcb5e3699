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

// The limits of the emulated devices, which are those of compute capability 9.0.
inline constexpr unsigned kMaxThreadsPerBlock = 1024;
inline constexpr unsigned kMaxBlockDepth = 64;
inline constexpr unsigned kMaxGridWidth = 0x7fffffff;
inline constexpr unsigned kMaxGridHeight = 65535;
inline constexpr std::size_t kDefaultSharedBytes = std::size_t{48} << 10;
inline constexpr std::size_t kMaxSharedBytes = std::size_t{227} << 10;
inline constexpr std::size_t kSharedBytesPerMultiprocessor = std::size_t{228} << 10;
inline constexpr unsigned kMaxThreadsPerMultiprocessor = 2048;
inline constexpr unsigned kMaxBlocksPerMultiprocessor = 32;
inline constexpr int kMultiprocessors = 132;

/// Whether a device could run this shape at all.
bool shape_is_possible(const FrostlineEmulatedLaunch& launch) noexcept;

/// Copies the parameters into one buffer, from the array of pointers or from `extra`, whichever is
/// given. Errors: CUDA_ERROR_INVALID_VALUE (both or, with parameters to pass, neither; an entry is
/// null, unknown or missing; the buffer's size is not that of the kernel's parameters).
CUresult pack_parameters(const FrostlineEmulatedKernel& kernel, void** pointers, void** extra,
                         std::vector<std::byte>& packed);

/// A whole 8-byte word of the parameters, which could be an address.
struct PossibleAddress {
    std::uint64_t value;
    bool is_parameter;  ///< a parameter by itself; if not, maybe two numbers of a structure
};

/// Pointers inside of structures are found, too; small numbers among the values are not addresses
/// of anything.
std::vector<PossibleAddress> possible_addresses(const FrostlineEmulatedKernel& kernel,
                                                const std::vector<std::byte>& packed);

}  // namespace frostline::emulator
