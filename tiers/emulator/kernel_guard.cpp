// What runs in the signal handler allocates nothing, takes no lock, and touches only memory of the
// faulting thread and what was written before the handler was installed.
#include "tiers/emulator/kernel_guard.h"

#include <ucontext.h>

#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace frostline::emulator {
namespace {

struct Guard {
    sigjmp_buf landing;
    std::uintptr_t address = 0;
};

// Initial-exec, because the first access to an ordinary thread-local of a loaded library allocates.
__attribute__((tls_model("initial-exec"))) thread_local Guard* current_guard = nullptr;

struct sigaction previous_segv;
struct sigaction previous_bus;

void pass_on(int signal, siginfo_t* info, void* context) {
    struct sigaction& previous = signal == SIGSEGV ? previous_segv : previous_bus;
    if ((previous.sa_flags & SA_SIGINFO) != 0) {
        previous.sa_sigaction(signal, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(signal);
    } else if (sigaction(signal, &previous, nullptr) != 0) {
        std::abort();
    }
    // With the default action back in place, returning repeats the access and ends the process.
}

void on_fault(int signal, siginfo_t* info, void* context) {
    Guard* const guard = current_guard;
    // A signal that somebody sent has no address, and is not the kernel's fault.
    const bool sent = info->si_code <= 0;
    if (guard == nullptr || sent) {
        pass_on(signal, info, context);
        return;
    }
    current_guard = nullptr;
    guard->address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    // The mask of the interrupted kernel, restored only here: for sigsetjmp to keep it would cost
    // every kernel a system call.
    const auto* const interrupted = static_cast<const ucontext_t*>(context);
    if (pthread_sigmask(SIG_SETMASK, &interrupted->uc_sigmask, nullptr) != 0) std::abort();
    siglongjmp(guard->landing, 1);
}

void install(int signal, struct sigaction& previous) {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    // The old action is stored before the new one can run.
    if (sigaction(signal, nullptr, &previous) != 0 || sigaction(signal, &action, nullptr) != 0) {
        std::perror("frostline emulator: cannot catch the faults of kernels");
        std::abort();
    }
}

void install_once() {
    static const bool installed = [] {
        install(SIGSEGV, previous_segv);
        install(SIGBUS, previous_bus);
        return true;
    }();
    (void)installed;
}

}  // namespace

std::optional<KernelFault> run_guarded(void (*body)(void*), void* argument) {
    install_once();
    Guard guard;
    // Nothing in this frame changes between here and the jump but the guard, which lies in memory.
    if (sigsetjmp(guard.landing, 0) != 0) return KernelFault{guard.address};
    current_guard = &guard;
    body(argument);
    current_guard = nullptr;
    return std::nullopt;
}

}  // namespace frostline::emulator
