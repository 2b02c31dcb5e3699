// The kernel's own data are copied at the launch and never change, so that a graph may replay it.
#include "tiers/emulator/kernel_operation.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "tiers/emulator/driver.h"
#include "tiers/emulator/kernel_guard.h"
#include "tiers/emulator/launch_parameters.h"

namespace frostline::emulator {
namespace {

struct KernelRun {
    std::shared_ptr<KernelHandle> kernel;
    FrostlineEmulatedLaunch shape;
    std::vector<std::byte> packed;
    int device;
};

void run_kernel(void* argument) {
    const auto& run = *static_cast<const KernelRun*>(argument);
    run.kernel->kernel->run(run.shape, run.packed.data());
}

// What is wrong with the byte, as far as that can be told after the event.
Violation explain_fault(const KernelRun& run, std::uintptr_t address) {
    const std::lock_guard<std::mutex> lock(driver().mutex);
    AddressSpace& memory = driver().memory;
    std::optional<Violation> found = memory.check({address, 1, Need::read}, run.device);
    if (!found) found = memory.check({address, 1, Need::write}, run.device);
    if (!found) {
        found = Violation{"unmapped-access", fmt::format("{:#x} was not mapped then", address)};
    }
    found->result = CUDA_ERROR_ILLEGAL_ADDRESS;
    found->details = fmt::format("touched {:#x}: {}", address, found->details);
    return *std::move(found);
}

std::optional<Violation> perform(const std::shared_ptr<KernelRun>& run) {
    const std::optional<KernelFault> fault = run_guarded(run_kernel, run.get());
    if (!fault) return std::nullopt;
    return explain_fault(*run, fault->address);
}

// Whether the value is an address in the host's own memory, of which a device knows nothing.
bool is_plain_host_memory(std::uint64_t value) {
    constexpr std::uint64_t kLowest = 1 << 16;
    constexpr std::uint64_t kEnd = std::uint64_t{1} << 47;
    if (value < kLowest || value >= kEnd) return false;
    static const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    unsigned char resident = 0;
    return mincore(reinterpret_cast<void*>(value / page * page), 1, &resident) == 0;
}

// What may be a number and no address counts for who uses a range, but is no reason to fail.
void add_touched(Operation& operation, const PossibleAddress& possible) {
    AddressSpace& memory = driver().memory;
    const Need need = possible.is_pointer ? Need::read : Need::possible;
    if (const Region* const region = memory.region_at(possible.value)) {
        operation.touched.push_back({region->start, region->bytes, need});
    } else if (possible.is_pointer && memory.reservation_at(possible.value) == nullptr &&
               is_plain_host_memory(possible.value)) {
        operation.touched.push_back({possible.value, 1, need});
    }
}

}  // namespace

std::shared_ptr<Operation> make_kernel_operation(const std::shared_ptr<KernelHandle>& kernel,
                                                 const FrostlineEmulatedLaunch& shape,
                                                 std::vector<std::byte> packed, int device) {
    auto operation = std::make_shared<Operation>();
    operation->kind = OperationKind::kernel;
    operation->engine = EngineKind::compute;
    operation->device = device;
    operation->what = "kernel " + kernel->name;
    operation->code = kernel->image;
    for (const PossibleAddress& possible : possible_addresses(*kernel->kernel, packed)) {
        add_touched(*operation, possible);
    }
    auto run = std::make_shared<KernelRun>(KernelRun{kernel, shape, std::move(packed), device});
    operation->perform = [run = std::move(run)] { return perform(run); };
    return operation;
}

void wait_for_kernels_of(Call& call, const ModuleImage* image) {
    const auto find = [image]() -> const Operation* {
        for (const auto& [key, stream] : driver().busy_streams) {
            for (const auto& operation : stream->queue) {
                if (operation->code.get() == image) return operation.get();
            }
        }
        return nullptr;
    };
    const Operation* const user = find();
    if (user == nullptr) return;
    report_misuse("unload-under-work",
                  fmt::format("{}: {} is queued or running", call.function, user->what));
    wait_until(call.lock, [&] { return find() == nullptr; });
}

}  // namespace frostline::emulator
