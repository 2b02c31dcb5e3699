// Modules, libraries and their kernels. A kernel's handle names one kernel of one module, or of one
// library; both kinds are accepted wherever a CUfunction is, as the driver accepts a CUkernel that
// was cast. What runs keeps its image alive; so unloading pulls no code from under a thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tiers/emulator/function.h"
#include "tiers/emulator/handle_table.h"
#include "tiers/emulator/module_image.h"

namespace frostline::emulator {

/// What CUfunction and CUkernel name.
struct KernelHandle {
    std::uint64_t handle = 0;
    std::string name;
    const FrostlineEmulatedKernel* kernel = nullptr;  ///< lives in the image
    std::shared_ptr<const ModuleImage> image;
    std::uint64_t module = 0;        ///< 0 for a kernel of a library
    std::uint64_t library = 0;       ///< 0 for a function of a module
    std::weak_ptr<Context> context;  ///< of the module; unset for a kernel of a library
    int dynamic_shared_bytes = 0;    ///< the most that a launch may ask for; 0: the default limit
};

struct Module {
    std::uint64_t handle = 0;
    std::shared_ptr<const ModuleImage> image;
    std::weak_ptr<Context> context;
    std::map<std::string, std::uint64_t> functions;  ///< handles by name
    bool of_library = false;                         ///< then only the library unloads it
};

struct Library {
    std::uint64_t handle = 0;
    std::shared_ptr<const ModuleImage> image;
    std::map<std::string, std::uint64_t> kernels;    ///< handles by name
    std::map<std::uint64_t, std::uint64_t> modules;  ///< by the context's id
};

/// The driver's mutex guards it.
struct KernelObjects {
    HandleTable<Module> modules{16};
    HandleTable<Library> libraries{17};
    HandleTable<KernelHandle> kernels{18};

    /// Made with the first use, and known to the driver's restarts from then on.
    static KernelObjects& instance();

    /// The kernel of that name, with one handle for all who ask. Errors: CUDA_ERROR_NOT_FOUND.
    CUresult function_of(Module& module, const std::string& name, CUfunction& function);
    CUresult kernel_of(Library& library, const std::string& name, CUkernel& kernel);
    /// The library's module in the context; made when first asked for.
    std::shared_ptr<Module> module_of(Library& library, const std::shared_ptr<Context>& context);

    void forget(const std::shared_ptr<Module>& module);
    void forget(const std::shared_ptr<Library>& library);
};

/// The kernel that a CUfunction or CUkernel names. Null after a report if there is none; what to
/// return then is CUDA_ERROR_INVALID_HANDLE.
std::shared_ptr<KernelHandle> resolve_kernel(const void* handle, const char* function);

template <class Handle>
std::uint64_t number_of(Handle handle) noexcept {
    return reinterpret_cast<std::uint64_t>(handle);
}
template <class Handle>
Handle handle_of(std::uint64_t number) noexcept {
    return reinterpret_cast<Handle>(number);
}

/// Reports the use of a handle that names nothing (any more).
void report_bad_handle(HandleState state, const char* kind, std::uint64_t handle,
                       const char* function);

}  // namespace frostline::emulator
