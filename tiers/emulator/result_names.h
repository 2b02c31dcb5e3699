// What the driver's results are called, for the functions that programs ask and for reports.
#pragma once

#include <cuda.h>

namespace frostline::emulator {

/// As CUDA_ERROR_OUT_OF_MEMORY; null for a number that is none. Lives as long as the program.
const char* result_name(CUresult result) noexcept;
/// In words: "out of memory"; null for a number that is none. Lives as long as the program.
const char* result_text(CUresult result);

}  // namespace frostline::emulator
