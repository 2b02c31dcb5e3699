// How every exported function opens: the call is counted, a planted fault applied, and it is
// checked that the driver is initialised, that the call is legal during the captures that are
// active, that the thread has a context if one is needed, and that the context is not broken. Only
// then does the function's own body run, with the driver's mutex held. Nothing is thrown to the
// caller.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "tiers/emulator/context.h"
#include "tiers/emulator/scheduler.h"

namespace frostline::emulator {

/// What a function needs before its body runs.
enum class Needs {
    nothing,  ///< may be called before cuInit
    driver,   ///< cuInit
    context   ///< a current context that is not broken
};

/// Whether a function may be called while a stream is captured: `unsafe` as
/// cuThreadExchangeStreamCaptureMode has it.
enum class InCapture { allowed, unsafe };

/// What the body of a function works with; valid during the call.
struct Call {
    Lock& lock;
    std::shared_ptr<Context> context;  ///< the current one; null if there is none
    const char* function;
};

/// One exported function: its rules, how often it was called, and which calls shall fail.
class Function {
   public:
    /// The record of that name, with or without a version suffix; made when first asked for.
    static Function& named(const char* name, Needs needs, InCapture in_capture);

    /// Runs the body, a function of Call& that returns CUresult, unless a check fails.
    template <class Body>
    CUresult call(Body&& body) {
        Lock lock = lock_driver();
        Call call{lock, nullptr, name_.c_str()};
        if (const std::optional<CUresult> refused = open(call)) return *refused;
        try {
            return body(call);
        } catch (const std::bad_alloc&) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }

   private:
    friend struct FunctionTable;
    static Lock lock_driver();
    /// Nothing if the body may run; the driver's mutex is held.
    std::optional<CUresult> open(Call& call);

    std::string name_;
    Needs needs_ = Needs::nothing;
    InCapture in_capture_ = InCapture::allowed;
    std::uint64_t calls_ = 0;
    std::map<std::uint64_t, CUresult> faults_;  ///< by the number of the call
};

/// All records, by name without a version suffix. The driver's mutex guards it.
struct FunctionTable {
    std::map<std::string, Function> functions;

    static FunctionTable& instance();
    Function& find_or_add(std::string_view name);
    static void plant(std::string_view name, unsigned nth, CUresult result);
    static std::uint64_t calls(std::string_view name);
    static void forget_calls_and_faults();
};

/// "cuMemAlloc" of "cuMemAlloc_v2" and "cuMemcpyHtoD" of "cuMemcpyHtoD_v2_ptds".
std::string_view without_suffix(std::string_view name);

/// Whether the emulator exports a function of that name, with or without a suffix.
bool is_exported(std::string_view name);

}  // namespace frostline::emulator
