// The lookup of driver functions by plain name and version, over the table of all forms.
#include "tiers/emulator/proc_address_table.h"

#include <dlfcn.h>

#include <cstring>

namespace frostline::emulator {
namespace {

// This very library, so that a symbol of the same name elsewhere in the process is not taken.
void* own_library() {
    static void* const library = []() -> void* {
        Dl_info info{};
        if (dladdr(reinterpret_cast<void*>(&find_proc_address), &info) == 0) return nullptr;
        return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    }();
    return library;
}

bool better(const ProcAddressRow& row, const ProcAddressRow* best, DefaultStream wanted) {
    if (best == nullptr) return true;
    if (row.default_stream != best->default_stream) return row.default_stream == wanted;
    return row.version > best->version;
}

}  // namespace

ProcAddress find_proc_address(const char* name, int asked_version, int driver_version,
                              DefaultStream wanted) noexcept {
    ProcAddress found;
    const ProcAddressRow* best = nullptr;
    for (const ProcAddressRow& row : proc_address_rows()) {
        if (std::strcmp(row.name, name) != 0 || row.version > driver_version) continue;
        if (row.default_stream == DefaultStream::per_thread && wanted == DefaultStream::legacy) {
            continue;
        }
        if (row.version > asked_version) {
            found.status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
            continue;
        }
        if (better(row, best, wanted)) best = &row;
    }
    if (best == nullptr) return found;
    void* const library = own_library();
    if (library != nullptr) found.address = dlsym(library, best->symbol);
    found.status = found.address == nullptr ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
                                            : CU_GET_PROC_ADDRESS_SUCCESS;
    return found;
}

}  // namespace frostline::emulator
