// Which exported symbol a driver function's plain name means for a program that was written for a
// given version of CUDA. The table alone decides; no symbol's name is guessed from another's.
#pragma once

#include <cuda.h>

#include <span>

namespace frostline::emulator {

/// Which default stream a symbol means when it is given none.
enum class DefaultStream { legacy, per_thread };

struct ProcAddressRow {
    const char* name;    ///< as programs ask for it: cuMemAlloc
    const char* symbol;  ///< as it is exported: cuMemAlloc_v2
    int version;         ///< of CUDA that brought this form, as 3020 for 3.2
    DefaultStream default_stream;
};

/// Every exported driver function in all its forms.
std::span<const ProcAddressRow> proc_address_rows() noexcept;

struct ProcAddress {
    void* address = nullptr;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
};

/// The newest form of `name` that a program for CUDA `asked_version` knows and a driver of
/// `driver_version` has. A form with the per-thread default stream is preferred where that is
/// wanted and there is one. Thread-safe.
ProcAddress find_proc_address(const char* name, int asked_version, int driver_version,
                              DefaultStream wanted) noexcept;

}  // namespace frostline::emulator
