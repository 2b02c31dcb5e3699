// Measurements that outlive the process, in one JSON file of the user's. The file is only ever
// replaced as a whole, and what it says is believed only if nobody else could have written it; in
// every doubt a tier is measured again.
#pragma once

#include "tiers/calibration.h"
#include "tiers/result.h"
#include "tiers/tier.h"

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace frostline {

/// What a measurement holds for. Another machine, kernel, medium or way of access is another key.
struct CalibrationKey {
    std::string machine;
    std::string medium;

    friend bool operator==(const CalibrationKey&, const CalibrationKey&) = default;
};

/// Kernel, CPU model and count, memory size in GiB, number of NUMA nodes.
std::string machine_fingerprint();

/// Kind and way of access of the tier, file system and device of its location, not its path: two
/// folders on one disk are one medium.
std::string medium_fingerprint(const TierInfo& info);

struct CachedCalibration {
    CalibrationKey key;
    Calibration calibration;
    std::int64_t measured_at_s = 0;  ///< since 1970

    /// Whether it can be used now for a tier that would be measured on `sample_bytes`.
    bool good_for(std::uint64_t sample_bytes, std::int64_t now_s) const noexcept;
};

/// Thread-compatible; any number of processes may use the same file.
class CalibrationCache {
   public:
    static constexpr std::int64_t kDaysUntilExpiry = 30;
    static constexpr std::size_t kMostEntries = 256;

    /// `folder` is created when something is stored; its parents, too. Only what `owner` wrote is
    /// believed.
    CalibrationCache(std::string folder, uid_t owner);

    /// What the file says for the key, good or not. Errors: not_found (no file, no such entry),
    /// permission (somebody else can write to the file or the folder), corrupt (damaged, or of a
    /// newer version), io.
    Result<CachedCalibration> find(const CalibrationKey& key) const noexcept;

    /// Adds the entries or replaces those with the same key, and lets expired ones go.
    /// Errors: those of the file system; busy (another process keeps it locked).
    Result<void> store(std::span<const CachedCalibration> entries, std::int64_t now_s) noexcept;

    std::string path() const;

   private:
    Result<std::vector<CachedCalibration>> read(int folder) const;
    Result<void> store_locked(int folder, std::span<const CachedCalibration> entries,
                              std::int64_t now_s) const;

    std::string folder_;
    uid_t owner_;
};

}  // namespace frostline
