// The driver's functions on modules. A module belongs to the context that was current when it was
// loaded, and its kernels run nowhere else.
#include <cuda.h>
#include <fmt/format.h>

#include "tiers/emulator/exported.h"
#include "tiers/emulator/kernel_objects.h"
#include "tiers/emulator/kernel_operation.h"

namespace frostline::emulator {
namespace {

std::shared_ptr<Module> resolve_module(CUmodule handle, const Call& call) {
    const KernelObjects& objects = KernelObjects::instance();
    auto module = objects.modules.find(number_of(handle));
    if (module == nullptr) {
        report_bad_handle(objects.modules.state(number_of(handle)), "module", number_of(handle),
                          call.function);
    }
    return module;
}

// `load(image)` runs without the mutex: a library's constructors may do anything.
template <class Load>
CUresult add_module(Call& call, CUmodule* module, Load&& load) {
    auto loaded = std::make_shared<Module>();
    call.lock.unlock();
    const CUresult result = load(loaded->image);
    call.lock.lock();
    if (result != CUDA_SUCCESS) return result;
    loaded->context = call.context;
    loaded->handle = KernelObjects::instance().modules.add(loaded);
    *module = handle_of<CUmodule>(loaded->handle);
    return CUDA_SUCCESS;
}

CUresult add_module_from(Call& call, CUmodule* module, const void* image) {
    if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return add_module(call, module,
                      [&](auto& loaded) { return ModuleImage::from_memory(image, loaded); });
}

}  // namespace
}  // namespace frostline::emulator

using namespace frostline::emulator;

FROSTLINE_EXPORTED CUresult CUDAAPI cuModuleLoad(CUmodule* module, const char* fname) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        if (module == nullptr || fname == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return add_module(call, module,
                          [&](auto& loaded) { return ModuleImage::from_file(fname, loaded); });
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return self.call([&](Call& call) { return add_module_from(call, module, image); });
}

// The options steer the compiler of PTX, which there is none of.
FROSTLINE_EXPORTED CUresult CUDAAPI cuModuleLoadDataEx(CUmodule* module, const void* image,
                                                       unsigned, CUjit_option*, void**) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return self.call([&](Call& call) { return add_module_from(call, module, image); });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule* module,
                                                          const void* fat_binary) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return self.call([&](Call& call) { return add_module_from(call, module, fat_binary); });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuModuleUnload(CUmodule hmod) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::unsafe);
    return self.call([&](Call& call) -> CUresult {
        const auto module = resolve_module(hmod, call);
        if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (module->of_library) {
            report_misuse("bad-value", fmt::format("{}: module {:#x} belongs to a library",
                                                   call.function, module->handle));
            return CUDA_ERROR_NOT_PERMITTED;
        }
        wait_for_kernels_of(call, module->image.get());
        KernelObjects::instance().forget(module);
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call&) -> CUresult {
        if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *mode = CU_MODULE_EAGER_LOADING;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod,
                                                        const char* name) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (hfunc == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const auto module = resolve_module(hmod, call);
        if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        return KernelObjects::instance().function_of(*module, name, *hfunc);
    });
}

// Host functions keep their constants in host memory, so no module has globals on a device.
FROSTLINE_EXPORTED CUresult CUDAAPI cuModuleGetGlobal(CUdeviceptr*, size_t*, CUmodule hmod,
                                                      const char* name) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (resolve_module(hmod, call) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        return CUDA_ERROR_NOT_FOUND;
    });
}
