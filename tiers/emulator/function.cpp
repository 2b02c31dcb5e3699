// The checks that every call passes before its own body runs, in the order in which a real driver
// makes them.
#include "tiers/emulator/function.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

#include "tiers/emulator/driver.h"

namespace frostline::emulator {

std::string_view without_suffix(std::string_view name) {
    for (const std::string_view suffix : {"_ptds", "_ptsz"}) {
        if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
    }
    if (name.size() > 3 && name[name.size() - 3] == '_' && name[name.size() - 2] == 'v') {
        name.remove_suffix(3);
    }
    return name;
}

bool is_exported(std::string_view name) {
    Dl_info self{};
    static const int anchor = 0;
    if (::dladdr(&anchor, &self) == 0) return false;
    void* const library = ::dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return false;
    const std::string plain(without_suffix(name));
    bool found = false;
    for (const char* const suffix : {"", "_v2", "_v3", "_v4"}) {
        found = found || ::dlsym(library, (plain + suffix).c_str()) != nullptr;
    }
    ::dlclose(library);
    return found && plain.starts_with("cu");
}

FunctionTable& FunctionTable::instance() {
    static auto* const table = new FunctionTable;
    return *table;
}

Function& FunctionTable::find_or_add(std::string_view name) {
    const std::string plain(without_suffix(name));
    Function& function = functions[plain];
    if (function.name_.empty()) function.name_ = plain;
    return function;
}

void FunctionTable::plant(std::string_view name, unsigned nth, CUresult result) {
    Function& function = instance().find_or_add(name);
    function.faults_[function.calls_ + nth] = result;
}

std::uint64_t FunctionTable::calls(std::string_view name) {
    const auto& functions = instance().functions;
    const auto it = functions.find(std::string(without_suffix(name)));
    return it == functions.end() ? 0 : it->second.calls_;
}

void FunctionTable::forget_calls_and_faults() {
    for (auto& [name, function] : instance().functions) {
        function.calls_ = 0;
        function.faults_.clear();
    }
}

Function& Function::named(const char* name, Needs needs, InCapture in_capture) {
    const Lock lock = lock_driver();
    Function& function = FunctionTable::instance().find_or_add(name);
    function.needs_ = needs;
    function.in_capture_ = in_capture;
    return function;
}

Lock Function::lock_driver() {
    return Lock(driver().mutex);
}

std::optional<CUresult> Function::open(Call& call) {
    Driver& d = driver();
    if (d.forked) return CUDA_ERROR_NOT_INITIALIZED;
    read_settings();
    ++calls_;
    if (const auto fault = faults_.find(calls_); fault != faults_.end()) {
        const CUresult result = fault->second;
        faults_.erase(fault);
        return result;
    }
    if (d.state == DriverState::ended) return CUDA_ERROR_DEINITIALIZED;
    if (needs_ == Needs::nothing) return std::nullopt;
    if (in_host_function()) {
        report_misuse("api-in-host-function", name_);
        return CUDA_ERROR_NOT_PERMITTED;
    }
    if (d.state == DriverState::uninitialised) return CUDA_ERROR_NOT_INITIALIZED;
    if (in_capture_ == InCapture::unsafe && unsafe_call_prohibited()) {
        invalidate_captures();
        report_misuse("illegal-during-capture", name_);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    call.context = current_context();
    if (needs_ != Needs::context) return std::nullopt;
    if (!call.context) {
        report_misuse("no-context", name_);
        return context_stack().empty() ? CUDA_ERROR_INVALID_CONTEXT
                                       : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    if (call.context->sticky != CUDA_SUCCESS) return call.context->sticky;
    return std::nullopt;
}

}  // namespace frostline::emulator
