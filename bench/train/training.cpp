// Time is measured from before a step's batch is sent until its loss is on the host, which is when
// the device has done all of it.
#include "bench/train/training.h"

#include "bench/train/gpu.h"
#include "bench/train/model.h"
#include "bench/train/offload_store.h"
#include "bench/train/plain_store.h"

#include <xxhash.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <system_error>

namespace frostline::train {
namespace {

Result<std::string> next_to_executable(const char* name) {
    std::error_code failure;
    const auto executable = std::filesystem::read_symlink("/proc/self/exe", failure);
    if (failure) return system_error(failure.value(), "cannot find the executable's folder");
    return (executable.parent_path() / name).string();
}

Result<std::string> module_path(const Options& options, const CudaDriver& driver) {
    if (!options.module.empty()) return options.module;
    return next_to_executable(driver.label() == Label::emulated ? "frostline_train_kernels.so"
                                                                : "frostline_train_kernels.fatbin");
}

Result<TextBatches> open_text(const Options& options) {
    std::string path = options.text;
    if (path.empty()) {
        FROSTLINE_TRY(path, next_to_executable("frostline_train_text.txt"));
    }
    return TextBatches::open(path, options.shape, options.seed);
}

// Of each group's weights, one after the other, as they are in memory.
Result<std::uint64_t> hash_weights(Model& model) {
    const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                         &XXH3_freeState);
    if (state == nullptr) return Error(Errc::out_of_memory, 0, "no memory for a checksum");
    XXH3_64bits_reset(state.get());
    for (ParameterGroup* group : model.groups()) {
        FROSTLINE_TRY(const std::vector<float> weights,
                      model.download(group->weights(), group->size()));
        XXH3_64bits_update(state.get(), weights.data(), weights.size() * sizeof(float));
    }
    return XXH3_64bits_digest(state.get());
}

Result<StepOutcome> train_step(Model& model, const Batch& batch, const Options& options,
                               int number) {
    const auto start = std::chrono::steady_clock::now();
    FROSTLINE_TRY(const double loss, model.step(batch, options.optimizer, number));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (!std::isfinite(loss)) {
        return Error(Errc::io, 0, "the loss of step {} is {}: lower --lr", number, loss);
    }
    const auto since_boot =
        std::chrono::duration_cast<std::chrono::nanoseconds>(start.time_since_epoch());
    return StepOutcome{number, static_cast<std::uint64_t>(since_boot.count()), loss, took.count()};
}

}  // namespace

Result<TrainingOutcome> train(const Options& options,
                              const std::function<void(const StepOutcome&)>& on_step) {
    FROSTLINE_TRY(const TextBatches text, open_text(options));
    FROSTLINE_TRY(const CudaDriver driver, CudaDriver::load());
    FROSTLINE_TRY(const std::string module, module_path(options, driver));
    FROSTLINE_TRY(const auto gpu, Gpu::create(driver, options.device, module));
    PlainStore plain(*gpu);
    std::unique_ptr<OffloadStore> offloading;
    if (options.offload != Offload::none) {
        FROSTLINE_TRY(offloading, OffloadStore::open(*gpu, options.tiers));
    }
    const auto store = [&](bool offloads) -> ActivationStore& {
        if (offloads) return *offloading;
        return plain;
    };
    ActivationStore& activations = store(options.offload != Offload::none);
    ActivationStore& states = store(options.offload == Offload::all);
    FROSTLINE_TRY(const auto model,
                  Model::create(options.shape, options.seed, *gpu, Stores{activations, states}));
    TrainingOutcome outcome;
    FROSTLINE_TRY(outcome.device_name, gpu->name());
    outcome.label = gpu->label() == Label::emulated ? "emulated" : "real";
    for (int number = 1; number <= options.steps; ++number) {
        FROSTLINE_TRY(const StepOutcome step, train_step(*model, text.at(number), options, number));
        if (offloading) FROSTLINE_TRY_VOID(offloading->end_step());
        outcome.steps.push_back(step);
        on_step(step);
    }
    outcome.peak_device_bytes = model->resident_bytes() + plain.peak_device_bytes();
    outcome.fixed_device_bytes =
        model->resident_bytes() + plain.bytes_below(OffloadStore::kSmallestMovedBytes);
    if (offloading) {
        outcome.peak_device_bytes += offloading->peak_device_bytes();
        outcome.tiers = offloading->manager().stats();
        outcome.timeline = offloading->manager().timeline();
    }
    outcome.work = emulated_work(CudaDriver::library_from_environment());
    FROSTLINE_TRY(outcome.weights_hash, hash_weights(*model));
    return outcome;
}

}  // namespace frostline::train
