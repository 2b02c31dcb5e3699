// Which host memory is registered, asked of the driver and not of whoever keeps books of it.
#pragma once

#include "tiers/cuda_driver.h"
#include "tiers/page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace frostline {

struct RegisteredPiece {
    std::uint64_t address = 0;
    std::uint64_t size_bytes = 0;
    CUcontext context = nullptr;  ///< in which it was registered
};

/// What reaches into the whole pages of `memory`, by address.
inline std::vector<RegisteredPiece> registered_pieces(const CudaDriver& driver,
                                                      std::span<const std::byte> memory) {
    std::vector<RegisteredPiece> pieces;
    const auto start = reinterpret_cast<std::uint64_t>(memory.data());
    for (std::uint64_t at = start; at < start + memory.size();) {
        unsigned type = 0;
        RegisteredPiece piece;
        std::array attributes{CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                              CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                              CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_CONTEXT};
        std::array<void*, 4> answers{&type, &piece.address, &piece.size_bytes, &piece.context};
        EXPECT_EQ(driver.cuPointerGetAttributes(4, attributes.data(), answers.data(), at),
                  CUDA_SUCCESS);
        const bool registered = type == CU_MEMORYTYPE_HOST;
        if (registered) pieces.push_back(piece);
        at = registered ? piece.address + piece.size_bytes : at + kPageBytes;
    }
    return pieces;
}

/// How many bytes of it are registered.
inline std::uint64_t registered_bytes(const CudaDriver& driver, std::span<const std::byte> memory) {
    const auto start = reinterpret_cast<std::uint64_t>(memory.data());
    std::uint64_t bytes = 0;
    for (const RegisteredPiece& each : registered_pieces(driver, memory)) {
        const std::uint64_t from = std::max(each.address, start);
        bytes += std::min(each.address + each.size_bytes, start + memory.size()) - from;
    }
    return bytes;
}

}  // namespace frostline
