// What belongs to the driver as a whole and to each of its threads.
#include "tiers/emulator/driver.h"

#include <pthread.h>
#include <time.h>

#include <cstdio>

#include "tiers/emulator/function.h"

namespace frostline::emulator {
namespace {

struct ThreadState {
    ContextStack contexts;
    std::uint64_t generation = 0;
    bool in_host_function = false;
    bool null_stream_is_per_thread = false;
};

ThreadState& thread_state() {
    static thread_local ThreadState state;
    return state;
}

// A child of fork has no engines, and must not read what lies in device memory: the mappings are
// not inherited (MADV_DONTFORK), and the files are closed here.
void before_fork() {
    driver().mutex.lock();
}
void in_parent() {
    driver().mutex.unlock();
}
void in_child() {
    Driver& d = driver();
    d.forked = true;
    for (const auto& device : d.devices) device->store.discard();
    for (const auto& [handle, physical] : d.physical.all()) physical->discard_after_fork();
    d.host_store.discard();
    d.mutex.unlock();
}

void at_exit() {
    Driver& d = driver();
    std::vector<Engine*> engines;
    {
        Lock lock(d.mutex);
        if (d.forked || d.state == DriverState::ended) return;
        if (d.state == DriverState::initialised) tear_down(lock, d.settings.report_leaks);
        d.state = DriverState::ended;
        for (const auto& [key, engine] : d.engines) {
            engine->stop();
            engines.push_back(engine.get());
        }
    }
    for (Engine* const engine : engines) engine->join();
}

// Later than what the program itself does at its end, so that its last objects still find a driver.
__attribute__((destructor)) void end_with_process() {
    at_exit();
}

}  // namespace

Driver& driver() {
    static Driver* const instance = [] {
        pthread_atfork(before_fork, in_parent, in_child);
        return new Driver;
    }();
    return *instance;
}

void read_settings() {
    Driver& d = driver();
    if (d.settings_read) return;
    d.settings_read = true;
    ParsedSettings parsed = parse_settings(d.overrides);
    if (const auto* const error = std::get_if<std::string>(&parsed)) {
        d.settings_error = *error;
        return;
    }
    d.settings = std::get<Settings>(std::move(parsed));
    d.settings_error.clear();
    d.random.seed(d.settings.seed);
    for (const PlantedFault& fault : d.settings.faults) {
        if (is_exported(fault.function)) {
            FunctionTable::plant(fault.function, fault.nth, static_cast<CUresult>(fault.result));
        } else {
            d.settings_error = "faults name '" + fault.function + "', which is no function here";
        }
    }
}

void initialise() {
    Driver& d = driver();
    if (d.state != DriverState::uninitialised) return;
    for (unsigned i = 0; i < d.settings.devices; ++i) {
        auto device = std::make_unique<Device>();
        device->ordinal = static_cast<int>(i);
        device->capacity_bytes = d.settings.memory_bytes;
        device->default_pool = make_default_pool(device->ordinal);
        device->current_pool = device->default_pool;
        d.devices.push_back(std::move(device));
    }
    d.state = DriverState::initialised;
}

Device* find_device(int ordinal) {
    Driver& d = driver();
    if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= d.devices.size()) return nullptr;
    return d.devices[static_cast<std::size_t>(ordinal)].get();
}

ContextStack& context_stack() {
    ThreadState& state = thread_state();
    if (state.generation != driver().generation) {
        state.contexts.clear();
        state.generation = driver().generation;
    }
    return state.contexts;
}

std::shared_ptr<Context> current_context() {
    const auto& stack = context_stack();
    return stack.empty() ? nullptr : driver().contexts.find(stack.back());
}

bool& in_host_function() noexcept {
    return thread_state().in_host_function;
}

bool& null_stream_is_per_thread() noexcept {
    return thread_state().null_stream_is_per_thread;
}

Engine& engine_for(int device, EngineKind kind) {
    const int owner = kind == EngineKind::host ? -1 : device;
    auto& engine = driver().engines[{owner, static_cast<int>(kind)}];
    if (!engine) engine = std::make_unique<Engine>();
    return *engine;
}

void make_sticky(const std::shared_ptr<Context>& context, CUresult error) {
    if (context && context->sticky == CUDA_SUCCESS) context->sticky = error;
}

std::uint64_t now_ns() noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace frostline::emulator
