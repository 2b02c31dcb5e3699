// Nothing here keeps a pointer of the caller's.
#include "tiers/emulator/launch_parameters.h"

#include <algorithm>
#include <cstring>

#include "tiers/emulator/device_limits.h"

namespace frostline::emulator {
namespace {

constexpr std::size_t kStrictestAlignment = alignof(std::max_align_t);

struct PackedByCaller {
    const void* buffer = nullptr;
    const std::size_t* bytes = nullptr;
};

CUresult read_extra(void** extra, PackedByCaller& packed) {
    for (void** entry = extra; *entry != CU_LAUNCH_PARAM_END; entry += 2) {
        if (*entry == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            packed.buffer = entry[1];
        } else if (*entry == CU_LAUNCH_PARAM_BUFFER_SIZE) {
            packed.bytes = static_cast<const std::size_t*>(entry[1]);
        } else {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    const bool complete = packed.buffer != nullptr && packed.bytes != nullptr;
    return complete ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

bool shape_is_possible(const FrostlineEmulatedLaunch& launch) noexcept {
    const auto [grid, block] = launch;
    const auto within = [](unsigned value, int most) {
        return value > 0 && value <= static_cast<unsigned>(most);
    };
    return within(grid.x, kMaxGridWidth) && within(grid.y, kMaxGridHeight) &&
           within(grid.z, kMaxGridHeight) && within(block.x, kMaxThreadsPerBlock) &&
           within(block.y, kMaxThreadsPerBlock) && within(block.z, kMaxBlockDepth) &&
           within(block.x * block.y * block.z, kMaxThreadsPerBlock);
}

CUresult pack_parameters(const FrostlineEmulatedKernel& kernel, void** pointers, void** extra,
                         std::vector<std::byte>& packed) {
    packed.assign(kernel.parameters_bytes, std::byte{0});
    if (pointers != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (extra != nullptr) {
        PackedByCaller caller;
        const CUresult read = read_extra(extra, caller);
        if (read != CUDA_SUCCESS) return read;
        // A structure that mirrors the parameters may be padded at its end, but by no more.
        const std::size_t bytes = *caller.bytes;
        if (bytes < packed.size() || bytes >= packed.size() + kStrictestAlignment) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        std::copy_n(static_cast<const std::byte*>(caller.buffer), packed.size(), packed.begin());
        return CUDA_SUCCESS;
    }
    if (kernel.parameter_count > 0 && pointers == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < kernel.parameter_count; ++i) {
        if (pointers[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
        std::memcpy(packed.data() + kernel.parameter_offsets[i], pointers[i],
                    kernel.parameter_sizes[i]);
    }
    return CUDA_SUCCESS;
}

std::vector<PossibleAddress> possible_addresses(const FrostlineEmulatedKernel& kernel,
                                                const std::vector<std::byte>& packed) {
    constexpr std::size_t kWord = sizeof(std::uint64_t);
    std::vector<PossibleAddress> found(packed.size() / kWord);
    for (std::size_t i = 0; i < found.size(); ++i) {
        std::memcpy(&found[i].value, packed.data() + i * kWord, kWord);
    }
    for (std::size_t i = 0; i < kernel.parameter_count; ++i) {
        if (kernel.parameter_is_pointer[i]) {
            found[kernel.parameter_offsets[i] / kWord].is_pointer = true;
        }
    }
    return found;
}

}  // namespace frostline::emulator
