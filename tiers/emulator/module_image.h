// A module is a shared library whose kernels are host functions (kernel_module.h). This file knows
// how one is found in a file or in memory, and nothing of contexts or launches.
#pragma once

#include "tiers/emulator/kernel_module.h"

#include <cuda.h>

#include <cstddef>
#include <memory>
#include <string>

namespace frostline::emulator {

/// A loaded library; unloaded when its last owner lets go. Immutable and safe to share.
class ModuleImage {
   public:
    /// Loads a file. Errors: CUDA_ERROR_FILE_NOT_FOUND, and those of from_memory.
    static CUresult from_file(const std::string& path, std::shared_ptr<const ModuleImage>& image);

    /// Loads what lies at `data`, which says its own length and is copied. Errors:
    /// CUDA_ERROR_NO_BINARY_FOR_GPU (made for a real GPU: machine code, a fat binary or PTX),
    /// CUDA_ERROR_INVALID_IMAGE (anything else that is no library of this machine),
    /// CUDA_ERROR_SHARED_OBJECT_INIT_FAILED (a library that does not load; stderr has the reason).
    static CUresult from_memory(const void* data, std::shared_ptr<const ModuleImage>& image);

    explicit ModuleImage(void* library) : library_(library) {}
    ModuleImage(const ModuleImage&) = delete;
    ModuleImage& operator=(const ModuleImage&) = delete;
    ~ModuleImage();

    /// The description of a kernel; null if the module has none of this name.
    const FrostlineEmulatedKernel* kernel(const std::string& name) const;

   private:
    void* library_;
};

}  // namespace frostline::emulator
