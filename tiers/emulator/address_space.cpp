// Which addresses a device may reach, and how: asked when a call is made and again when the
// operation runs.
#include "tiers/emulator/address_space.h"

#include <fmt/format.h>

#include <algorithm>

#include "tiers/emulator/driver.h"

namespace frostline::emulator {
namespace {

std::string place(std::uintptr_t address) {
    return fmt::format("{:#x}", address);
}

std::optional<Violation> check_mapping(const Region& region, Need need, int device) {
    const CUmemAccess_flags access = region.access[static_cast<std::size_t>(device)];
    if (access == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
        return Violation{"access-not-set", fmt::format("device {} has no access to the mapping {}",
                                                       device, place(region.start))};
    }
    if (need == Need::write && access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        return Violation{"read-only", fmt::format("device {} may only read the mapping {}", device,
                                                  place(region.start))};
    }
    return std::nullopt;
}

std::optional<Violation> check_pooled(const Region& region, Need need, int device) {
    if (device == region.device) return std::nullopt;
    const CUmemAccess_flags access = region.pool->access[static_cast<std::size_t>(device)];
    if (access == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
        (need == Need::write && access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
        return Violation{"access-not-set", fmt::format("device {} has no access to the pool of {}",
                                                       device, place(region.start))};
    }
    return std::nullopt;
}

std::optional<Violation> check_region(const Region& region, Need need, int device) {
    if (!region.live) {
        return Violation{"unmapped-access", fmt::format("{} is not allocated at this point of its "
                                                        "stream's order",
                                                        place(region.start))};
    }
    if (region.kind == RegionKind::mapping) return check_mapping(region, need, device);
    if (region.kind == RegionKind::pooled) return check_pooled(region, need, device);
    if (region.read_only && need == Need::write) {
        return Violation{"read-only", place(region.start) + " is registered for reading only"};
    }
    if (!region.on_host() && !peer_reachable(device, region.device)) {
        return Violation{"peer-not-enabled", fmt::format("device {} reaches memory of device {}",
                                                         device, region.device)};
    }
    return std::nullopt;
}

}  // namespace

Region* AddressSpace::region_at(std::uintptr_t address) {
    auto it = regions.upper_bound(address);
    if (it == regions.begin()) return nullptr;
    --it;
    return address < it->second.end() ? &it->second : nullptr;
}

const Reservation* AddressSpace::reservation_at(std::uintptr_t address) const {
    auto it = reservations.upper_bound(address);
    if (it == reservations.begin()) return nullptr;
    --it;
    return address - it->first < it->second.bytes ? &it->second : nullptr;
}

bool AddressSpace::overlaps_region(std::uintptr_t start, std::size_t bytes) const {
    auto it = regions.lower_bound(start);
    if (it != regions.end() && it->first < start + bytes) return true;
    return it != regions.begin() && std::prev(it)->second.end() > start;
}

std::optional<Violation> AddressSpace::check(const TouchedRange& range, int device) {
    if (range.need == Need::possible) return std::nullopt;
    const int reacher = range.device < 0 ? device : range.device;
    std::uintptr_t at = range.address;
    const std::uintptr_t end = range.address + range.bytes;
    while (at < end) {
        const Region* const region = region_at(at);
        if (region == nullptr) {
            const bool reserved = reservation_at(at) != nullptr;
            return Violation{"unmapped-access",
                             fmt::format("nothing is mapped at {}, which is {}", place(at),
                                         reserved ? "reserved" : "not the driver's")};
        }
        if (auto violation = check_region(*region, range.need, reacher)) return violation;
        at = region->end();
    }
    return std::nullopt;
}

bool peer_reachable(int device, int owner) {
    if (device == owner) return true;
    for (const auto& [handle, context] : driver().contexts.all()) {
        if (context->device == device && context->peers.contains(owner)) return true;
    }
    return false;
}

}  // namespace frostline::emulator
