// Only a library that is loaded already is asked: nothing here brings an emulator into a process
// that trains on a GPU.
#include "bench/train/emulated_work.h"

#include <dlfcn.h>

namespace frostline::train {
namespace {

template <class Function>
Function* function_of(void* library, const char* name) {
    return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

std::optional<EmulatedWork> emulated_work(const std::string& library) {
    void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (loaded == nullptr) return std::nullopt;
    std::optional<EmulatedWork> work;
    auto* const timeline =
        function_of<decltype(frostline_emulator_timeline)>(loaded, "frostline_emulator_timeline");
    auto* const misuse_count = function_of<decltype(frostline_emulator_misuse_count)>(
        loaded, "frostline_emulator_misuse_count");
    if (timeline != nullptr && misuse_count != nullptr) {
        work.emplace();
        work->operations.resize(timeline(nullptr, 0));
        // Nothing is queued any more, so that there is room for all; what came since is left out.
        (void)timeline(work->operations.data(), work->operations.size());
        work->misuses = misuse_count();
    }
    (void)dlclose(loaded);
    return work;
}

}  // namespace frostline::train
