// Device memory behind an address range: physical handles that are mapped one after the other, all
// of them or none. A mapping cannot be split, and access is set anew after each.
#pragma once

#include "tiers/cuda_context.h"
#include "tiers/device_chunks.h"
#include "tiers/result.h"

#include <cstdint>
#include <span>
#include <vector>

namespace frostline {

/// Maps handles at the start of reserved, unmapped addresses, in their order, and gives `devices`
/// (as CUDA counts them) access to read and write. On an error nothing is mapped.
Result<void> map_chunks(const CudaContext& context, CUdeviceptr address,
                        std::span<const DeviceChunk> chunks,
                        std::span<const CUmemAccessDesc> access) noexcept;

/// Undoes it for all of the handles. No work may use the memory any longer: unmapping does not wait
/// for it. On an error it is not known what is mapped.
Result<void> unmap_chunks(const CudaContext& context, CUdeviceptr address,
                          std::uint64_t size_bytes) noexcept;

/// Whether these devices can be given access to the memory of the context's. Errors:
/// invalid_argument (one cannot reach it), the driver's.
Result<void> check_peers(const CudaContext& context, std::span<const int> peers) noexcept;

/// What map_chunks() takes as `access`. May throw std::bad_alloc.
std::vector<CUmemAccessDesc> access_for(std::span<const int> devices);

}  // namespace frostline
