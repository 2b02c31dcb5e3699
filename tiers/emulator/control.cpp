// The control interface: everything here takes the driver's mutex like a driver function does, but
// is neither counted nor refused.
#include <algorithm>
#include <cstdio>

#include "tiers/emulator/driver.h"
#include "tiers/emulator/emulator.h"
#include "tiers/emulator/function.h"

using frostline::emulator::Driver;
using frostline::emulator::driver;
using frostline::emulator::DriverState;
using frostline::emulator::FunctionTable;
using frostline::emulator::Lock;

int frostline_emulator_restart(const char* settings) {
    Driver& d = driver();
    Lock lock(d.mutex);
    d.misuse.clear();
    if (d.state == DriverState::initialised) {
        frostline::emulator::tear_down(lock, d.settings.report_leaks);
    }
    FunctionTable::forget_calls_and_faults();
    d.timeline.clear();
    d.overrides = settings == nullptr ? "" : settings;
    d.settings_read = false;
    frostline::emulator::read_settings();
    if (d.settings_error.empty()) return 0;
    std::fprintf(stderr, "frostline emulator: %s\n", d.settings_error.c_str());
    return -1;
}

int frostline_emulator_plant_fault(const char* function, unsigned nth, int result) {
    const Lock lock(driver().mutex);
    if (function == nullptr || nth == 0) return -1;
    if (!frostline::emulator::is_exported(function)) return -1;
    frostline::emulator::read_settings();
    FunctionTable::plant(function, nth, static_cast<CUresult>(result));
    return 0;
}

uint64_t frostline_emulator_calls(const char* function) {
    const Lock lock(driver().mutex);
    return function == nullptr ? 0 : FunctionTable::calls(function);
}

size_t frostline_emulator_misuse_count() {
    const Lock lock(driver().mutex);
    return driver().misuse.count();
}

const char* frostline_emulator_misuse(size_t index) {
    const Lock lock(driver().mutex);
    const std::string* const text = driver().misuse.at(index);
    return text == nullptr ? nullptr : text->c_str();
}

void frostline_emulator_clear_misuse() {
    const Lock lock(driver().mutex);
    driver().misuse.clear();
}

const char* frostline_emulator_misuse_kind(size_t index) {
    const auto kinds = frostline::emulator::misuse_kinds();
    return index < kinds.size() ? kinds[index].name.data() : nullptr;
}

const char* frostline_emulator_explain(const char* misuse_name) {
    if (misuse_name == nullptr) return nullptr;
    const auto* const kind = frostline::emulator::find_misuse_kind(misuse_name);
    return kind == nullptr ? nullptr : kind->sentence.data();
}

void frostline_emulator_limit_registration(size_t bytes) {
    const Lock lock(driver().mutex);
    frostline::emulator::read_settings();
    driver().settings.registration_limit_bytes = bytes;
}

size_t frostline_emulator_timeline(struct frostline_emulator_operation* operations,
                                   size_t capacity) {
    const Lock lock(driver().mutex);
    const auto& timeline = driver().timeline;
    const size_t count = std::min(capacity, timeline.size());
    if (operations != nullptr) {
        std::copy_n(timeline.begin(), static_cast<std::ptrdiff_t>(count), operations);
    }
    return timeline.size();
}

void frostline_emulator_clear_timeline() {
    const Lock lock(driver().mutex);
    driver().timeline.clear();
}
