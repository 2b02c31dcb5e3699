// The table of kinds of misuse.
#include "tiers/emulator/misuse.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "tiers/emulator/driver.h"

namespace frostline::emulator {
namespace {

constexpr std::size_t kMostKept = 10'000;

constexpr auto kKinds = std::to_array<MisuseKind>({
    {"access-not-set", "A device reached a mapping for which its access was not set."},
    {"api-in-host-function", "A host function of a stream called the driver, which it may not."},
    {"bad-handle", "A handle that no call of the driver has returned."},
    {"bad-offset", "A mapping began elsewhere than at the start of its handle."},
    {"bad-size", "A size or an address is zero, too large or not a multiple of the granularity."},
    {"bad-value", "An argument that the function does not allow."},
    {"copy-across-registrations",
     "A copy reaches from one registration of host memory into the next."},
    {"copy-out-of-range", "A copy or fill reaches beyond the memory that it begins in."},
    {"destroyed-handle", "A handle was used after it had been destroyed."},
    {"double-free", "An allocation was freed twice."},
    {"double-release", "A physical handle was released more often than it was taken."},
    {"event-not-recorded", "An event was timed that had never been recorded."},
    {"free-mapped-reservation", "A reservation was freed in which memory is still mapped."},
    {"free-under-work", "Memory was freed while work that touches it was queued or running."},
    {"host-register-overlap", "Host memory was registered that is registered already, in part."},
    {"illegal-during-capture", "A call was made that is prohibited while a stream is captured."},
    {"leak-at-exit", "Something was not given back by the time that the driver ended."},
    {"map-over-mapping", "Memory was mapped where memory is mapped already."},
    {"no-context", "A thread without a current context made a call that needs one."},
    {"not-an-allocation", "Something was freed that is not the start of an allocation."},
    {"not-captured-whole", "A capture was left in a state in which it cannot be used."},
    {"not-exportable", "A handle was exported that was not created for it."},
    {"not-mapped", "Addresses were named as a mapping where no mapping begins."},
    {"not-reserved", "Addresses were used that are not within one reservation."},
    {"peer-not-enabled", "A device reached another's memory without being allowed to."},
    {"read-only", "Memory was written that is mapped or registered for reading only."},
    {"reservation-mismatch", "A reservation was freed with another address or size than it has."},
    {"split-mapping", "A part of a mapping was named where it has to be whole."},
    {"unload-under-work", "A module was unloaded while its kernels were queued or running."},
    {"unmap-under-work", "Memory was unmapped while work that touches it was queued or running."},
    {"unmapped-access", "A kernel or a copy touched addresses where nothing is mapped."},
    {"unpooled-free", "Memory was released in stream order that is not from a pool."},
    {"unregister-under-work",
     "Host memory was unregistered while work that touches it was queued."},
    {"wrong-device", "An object of one device or context was used with another."},
});

}  // namespace

std::span<const MisuseKind> misuse_kinds() {
    return kKinds;
}

const MisuseKind* find_misuse_kind(std::string_view name) {
    const auto* const kind = std::find_if(kKinds.begin(), kKinds.end(),
                                          [&](const MisuseKind& k) { return k.name == name; });
    return kind == kKinds.end() ? nullptr : kind;
}

void MisuseReports::report(std::string_view name, std::string_view details, bool abort_now) {
    if (find_misuse_kind(name) == nullptr) std::abort();
    std::string text(name);
    text.append(": ").append(details);
    std::fprintf(stderr, "frostline emulator: misuse: %s\n", text.c_str());
    if (abort_now) std::abort();
    if (count_++ < kMostKept) kept_.push_back(std::move(text));
}

void MisuseReports::clear() {
    kept_.clear();
    count_ = 0;
}

const std::string* MisuseReports::at(std::size_t index) const {
    return index < kept_.size() ? &kept_[index] : nullptr;
}

void report_misuse(std::string_view name, std::string_view details) {
    driver().misuse.report(name, details, driver().settings.abort_at_misuse);
}

}  // namespace frostline::emulator
