// The end of the driver or of one generation of it: work is dropped, but for what is running, which
// is waited for; what users did not give back is reported, one report for each kind; then all of
// it is freed.
#include <fmt/format.h>

#include "tiers/emulator/driver.h"
#include "tiers/emulator/unmapping.h"

namespace frostline::emulator {
namespace {

void report_leak(const char* kind, std::size_t count, std::uint64_t first) {
    if (count == 0) return;
    report_misuse("leak-at-exit", fmt::format("{} {}, the first {:#x}", count, kind, first));
}

template <class Table>
void report_table(const char* kind, const Table& table) {
    if (!table.empty()) report_leak(kind, table.size(), table.begin()->first);
}

const char* plural_of(RegionKind kind) {
    switch (kind) {
        case RegionKind::mapping:
            return "mappings";
        case RegionKind::allocation:
            return "allocations";
        case RegionKind::pooled:
            return "stream-ordered allocations";
        case RegionKind::pinned:
            return "pinned host allocations";
        case RegionKind::registered:
            return "registrations of host memory";
        case RegionKind::imported:
            return "imported allocations";
    }
    return "regions";
}

void report_leaks_now() {
    Driver& d = driver();
    report_table("contexts", d.contexts.all());
    report_table("streams", d.streams.all());
    report_table("events", d.events.all());
    std::map<RegionKind, std::pair<std::size_t, std::uintptr_t>> regions;
    for (const auto& [start, region] : d.memory.regions) {
        if (region.freed) continue;
        auto& [count, first] = regions[region.kind];
        if (count++ == 0) first = start;
    }
    for (const auto& [kind, found] : regions) {
        report_leak(plural_of(kind), found.first, found.second);
    }
    report_table("reservations", d.memory.reservations);
    std::size_t handles = 0;
    std::uint64_t first_handle = 0;
    for (const auto& [handle, physical] : d.physical.all()) {
        if (physical->handle_uses == 0) continue;
        if (handles++ == 0) first_handle = handle;
    }
    report_leak("physical handles", handles, first_handle);
    std::size_t pools = 0;
    std::uint64_t first_pool = 0;
    for (const auto& [handle, pool] : d.pools.all()) {
        if (pool->is_default || pool->destroyed) continue;
        if (pools++ == 0) first_pool = handle;
    }
    report_leak("memory pools", pools, first_pool);
    for (const Owner& owner : d.owners) owner.leaks(report_leak);
}

}  // namespace

void tear_down(Lock& lock, bool report_leaks) {
    Driver& d = driver();
    abandon_work(lock);
    if (report_leaks) report_leaks_now();
    for (const Owner& owner : d.owners) owner.free_all();
    d.deferred.clear();
    d.captures.clear();
    while (!d.memory.regions.empty()) remove_region(d.memory.regions.begin()->first);
    for (const auto& [start, reservation] : d.memory.reservations) {
        release_addresses(start, reservation.bytes);
    }
    d.memory.reservations.clear();
    d.freed_addresses.clear();
    d.events.clear();
    d.streams.clear();
    d.contexts.clear();
    d.physical.clear();
    d.pools.clear();
    d.host_store.discard();
    d.devices.clear();
    d.state = DriverState::uninitialised;
    ++d.generation;
}

}  // namespace frostline::emulator
