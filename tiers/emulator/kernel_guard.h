// A kernel that touches memory which is not there is ended where it stands, and the process goes
// on, as a GPU ends a kernel and not the program. Faults outside of kernels are none of this
// file's: they go to whoever handled them before.
#pragma once

#include <cstdint>
#include <optional>

namespace frostline::emulator {

struct KernelFault {
    std::uintptr_t address = 0;  ///< the byte that was touched
};

/// Runs `body(argument)` on the calling thread. A SIGSEGV or SIGBUS in it ends it, at any address:
/// what a GPU's page table lacks is illegal to a kernel, whether the host knows the address or not.
/// The body's frames are left without destructors, so it must own nothing and hold no lock. May be
/// called from any number of threads at once; must not be nested.
std::optional<KernelFault> run_guarded(void (*body)(void*), void* argument);

}  // namespace frostline::emulator
