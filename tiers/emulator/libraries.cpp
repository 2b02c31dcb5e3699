// The driver's functions on libraries: code that belongs to no context until a kernel of it runs in
// one.
#include <cuda.h>

#include "tiers/emulator/exported.h"
#include "tiers/emulator/kernel_objects.h"
#include "tiers/emulator/kernel_operation.h"

namespace frostline::emulator {
namespace {

std::shared_ptr<Library> resolve_library(CUlibrary handle, const Call& call) {
    const KernelObjects& objects = KernelObjects::instance();
    auto library = objects.libraries.find(number_of(handle));
    if (library == nullptr) {
        report_bad_handle(objects.libraries.state(number_of(handle)), "library", number_of(handle),
                          call.function);
    }
    return library;
}

template <class Load>
CUresult add_library(Call& call, CUlibrary* library, Load&& load) {
    auto loaded = std::make_shared<Library>();
    call.lock.unlock();
    const CUresult result = load(loaded->image);
    call.lock.lock();
    if (result != CUDA_SUCCESS) return result;
    loaded->handle = KernelObjects::instance().libraries.add(loaded);
    *library = handle_of<CUlibrary>(loaded->handle);
    return CUDA_SUCCESS;
}

}  // namespace
}  // namespace frostline::emulator

using namespace frostline::emulator;

FROSTLINE_EXPORTED CUresult CUDAAPI cuLibraryLoadData(CUlibrary* library, const void* code,
                                                      CUjit_option*, void**, unsigned,
                                                      CUlibraryOption*, void**, unsigned) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        if (library == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return add_library(call, library,
                           [&](auto& image) { return ModuleImage::from_memory(code, image); });
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary* library, const char* file_name,
                                                          CUjit_option*, void**, unsigned,
                                                          CUlibraryOption*, void**, unsigned) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        if (library == nullptr || file_name == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return add_library(call, library,
                           [&](auto& image) { return ModuleImage::from_file(file_name, image); });
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuLibraryUnload(CUlibrary handle) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        const auto library = resolve_library(handle, call);
        if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        wait_for_kernels_of(call, library->image.get());
        KernelObjects::instance().forget(library);
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuLibraryGetKernel(CUkernel* kernel, CUlibrary handle,
                                                       const char* name) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (kernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const auto library = resolve_library(handle, call);
        if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        return KernelObjects::instance().kernel_of(*library, name, *kernel);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuLibraryGetModule(CUmodule* module, CUlibrary handle) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const auto library = resolve_library(handle, call);
        if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        const auto found = KernelObjects::instance().module_of(*library, call.context);
        *module = handle_of<CUmodule>(found->handle);
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuKernelGetFunction(CUfunction* hfunc, CUkernel handle) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const auto kernel = resolve_kernel(handle, call.function);
        if (kernel == nullptr || kernel->library == 0) return CUDA_ERROR_INVALID_HANDLE;
        KernelObjects& objects = KernelObjects::instance();
        const auto library = objects.libraries.find(kernel->library);
        const auto module = objects.module_of(*library, call.context);
        return objects.function_of(*module, kernel->name, *hfunc);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuKernelGetLibrary(CUlibrary* library, CUkernel handle) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const auto kernel = resolve_kernel(handle, call.function);
        if (kernel == nullptr || kernel->library == 0) return CUDA_ERROR_INVALID_HANDLE;
        *library = handle_of<CUlibrary>(kernel->library);
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuKernelGetName(const char** name, CUkernel handle) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const auto kernel = resolve_kernel(handle, call.function);
        if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        *name = kernel->kernel->name;
        return CUDA_SUCCESS;
    });
}
