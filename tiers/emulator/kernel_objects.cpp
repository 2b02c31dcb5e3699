// Every handle in a module's or library's map is live in the table of kernels, and goes with it.
#include "tiers/emulator/kernel_objects.h"

#include <fmt/format.h>

#include <utility>

#include "tiers/emulator/driver.h"

namespace frostline::emulator {
namespace {

using Leak = std::function<void(const char*, std::size_t, std::uint64_t)>;

std::shared_ptr<KernelHandle> find_kernel(const std::shared_ptr<const ModuleImage>& image,
                                          const std::string& name) {
    const FrostlineEmulatedKernel* const kernel = image->kernel(name);
    if (kernel == nullptr) return nullptr;
    auto found = std::make_shared<KernelHandle>();
    found->name = name;
    found->kernel = kernel;
    found->image = image;
    return found;
}

void report_leaks(const KernelObjects& objects, const Leak& leak) {
    // A module that belongs to a library, or whose context is gone, went with it.
    std::size_t modules = 0;
    std::uint64_t first = 0;
    for (const auto& [handle, module] : objects.modules.all()) {
        if (module->of_library || module->context.expired()) continue;
        if (modules++ == 0) first = handle;
    }
    if (modules > 0) leak("modules", modules, first);
    const auto& libraries = objects.libraries.all();
    if (!libraries.empty()) leak("libraries", libraries.size(), libraries.begin()->first);
}

}  // namespace

KernelObjects& KernelObjects::instance() {
    // Never destroyed, as the driver: kernels may run until the process ends.
    static KernelObjects* const objects = [] {
        auto* const made = new KernelObjects;
        driver().owners.push_back({[made](const Leak& leak) { report_leaks(*made, leak); },
                                   [made] {
                                       made->kernels.clear();
                                       made->modules.clear();
                                       made->libraries.clear();
                                   }});
        return made;
    }();
    return *objects;
}

CUresult KernelObjects::function_of(Module& module, const std::string& name, CUfunction& function) {
    if (const auto known = module.functions.find(name); known != module.functions.end()) {
        function = handle_of<CUfunction>(known->second);
        return CUDA_SUCCESS;
    }
    const auto found = find_kernel(module.image, name);
    if (found == nullptr) return CUDA_ERROR_NOT_FOUND;
    found->module = module.handle;
    found->context = module.context;
    found->handle = kernels.add(found);
    module.functions.emplace(name, found->handle);
    function = handle_of<CUfunction>(found->handle);
    return CUDA_SUCCESS;
}

CUresult KernelObjects::kernel_of(Library& library, const std::string& name, CUkernel& kernel) {
    if (const auto known = library.kernels.find(name); known != library.kernels.end()) {
        kernel = handle_of<CUkernel>(known->second);
        return CUDA_SUCCESS;
    }
    const auto found = find_kernel(library.image, name);
    if (found == nullptr) return CUDA_ERROR_NOT_FOUND;
    found->library = library.handle;
    found->handle = kernels.add(found);
    library.kernels.emplace(name, found->handle);
    kernel = handle_of<CUkernel>(found->handle);
    return CUDA_SUCCESS;
}

std::shared_ptr<Module> KernelObjects::module_of(Library& library,
                                                 const std::shared_ptr<Context>& context) {
    const auto known = library.modules.find(context->id);
    if (known != library.modules.end()) return modules.find(known->second);
    auto module = std::make_shared<Module>();
    module->image = library.image;
    module->context = context;
    module->of_library = true;
    module->handle = modules.add(module);
    library.modules.emplace(context->id, module->handle);
    return module;
}

void KernelObjects::forget(const std::shared_ptr<Module>& module) {
    for (const auto& [name, handle] : module->functions) kernels.remove(handle);
    modules.remove(module->handle);
}

void KernelObjects::forget(const std::shared_ptr<Library>& library) {
    for (const auto& [name, handle] : library->kernels) kernels.remove(handle);
    for (const auto& [context, handle] : library->modules) forget(modules.find(handle));
    libraries.remove(library->handle);
}

std::shared_ptr<KernelHandle> resolve_kernel(const void* handle, const char* function) {
    const KernelObjects& objects = KernelObjects::instance();
    const std::uint64_t number = number_of(handle);
    auto found = objects.kernels.find(number);
    if (found == nullptr) {
        report_bad_handle(objects.kernels.state(number), "kernel", number, function);
    }
    return found;
}

void report_bad_handle(HandleState state, const char* kind, std::uint64_t handle,
                       const char* function) {
    const bool destroyed = state == HandleState::destroyed;
    report_misuse(destroyed ? "destroyed-handle" : "bad-handle",
                  fmt::format("{}: {} {:#x} {}", function, kind, handle,
                              destroyed ? "does not exist any more" : "was never made"));
}

}  // namespace frostline::emulator
