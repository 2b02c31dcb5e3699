// Functions of the host in a stream. They run on a thread of their own and may not call the driver.
#include "tiers/emulator/host_functions.h"

#include "tiers/emulator/exported.h"

using namespace frostline::emulator;

namespace {

std::shared_ptr<Operation> host_operation(int device) {
    auto operation = std::make_shared<Operation>();
    operation->kind = OperationKind::host_function;
    operation->engine = EngineKind::host;
    operation->device = device;
    operation->what = "host function";
    return operation;
}

template <class Function>
std::optional<Violation> run_as_host_function(const Function& function) {
    in_host_function() = true;
    function();
    in_host_function() = false;
    return std::nullopt;
}

}  // namespace

std::shared_ptr<Operation> frostline::emulator::make_host_function(int device, CUhostFn function,
                                                                   void* argument) {
    auto operation = host_operation(device);
    operation->perform = [=] { return run_as_host_function([=] { function(argument); }); };
    return operation;
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuLaunchHostFunc(CUstream handle, CUhostFn function,
                                                     void* argument) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (function == nullptr) return refuse_value(call, "function is null");
        CUresult error = CUDA_SUCCESS;
        const auto stream = resolve_stream(call.context, handle, error);
        if (!stream) return error;
        const auto operation = make_host_function(stream->device, function, argument);
        operation->stream = stream;
        return submit(operation);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuStreamAddCallback(CUstream handle, CUstreamCallback callback,
                                                        void* argument, unsigned flags) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (callback == nullptr) return refuse_value(call, "callback is null");
        if (flags != 0) return refuse_value(call, "flags have to be 0");
        CUresult error = CUDA_SUCCESS;
        const auto stream = resolve_stream(call.context, handle, error);
        if (!stream) return error;
        if (stream->capture) {
            stream->capture->invalidated = true;
            return refuse("illegal-during-capture", call.function,
                          CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        const auto operation = host_operation(stream->device);
        operation->stream = stream;
        // Unlike a host function a callback also runs when work before it failed, and is told so.
        operation->even_if_broken = true;
        operation->perform = [=, context = call.context] {
            CUresult status = CUDA_SUCCESS;
            {
                const Lock lock(driver().mutex);
                status = context->sticky;
            }
            return run_as_host_function([=] { callback(handle, status, argument); });
        };
        return submit(operation);
    });
}
