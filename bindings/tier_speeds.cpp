// The cache first; what it does not know shares the time of one calibration.
#include "bindings/tier_speeds.h"

#include "tiers/calibration.h"
#include "tiers/calibration_cache.h"
#include "tiers/clock.h"

#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <optional>
#include <string_view>
#include <utility>

namespace frostline {
namespace {

// $XDG_CACHE_HOME/frostline or ~/.cache/frostline; a relative path counts as none.
std::optional<std::string> cache_folder() {
    const char* const cache = std::getenv("XDG_CACHE_HOME");
    if (cache != nullptr && *cache == '/') return std::string(cache) + "/frostline";
    const char* const home = std::getenv("HOME");
    if (home != nullptr && *home == '/') return std::string(home) + "/.cache/frostline";
    return std::nullopt;
}

bool may_use_cache(SpeedSource source) {
    return source == SpeedSource::cache || source == SpeedSource::cache_or_measurement;
}
bool may_measure(SpeedSource source) {
    return source == SpeedSource::measurement || source == SpeedSource::cache_or_measurement;
}

// One call of find_speeds().
class Search {
   public:
    explicit Search(std::span<const TierToRate> tiers)
        : tiers_(tiers), machine_(machine_fingerprint()), now_s_(std::time(nullptr)) {
        report_.tiers.resize(tiers.size());
        if (auto folder = cache_folder()) {
            cache_.emplace(std::move(*folder), ::geteuid());
            report_.cache_path = cache_->path();
        } else {
            report_.cache_problem = "neither XDG_CACHE_HOME nor HOME is set to an absolute path";
        }
    }

    SpeedReport run() {
        std::vector<std::size_t> unknown;
        for (std::size_t i = 0; i < tiers_.size(); ++i) {
            const SpeedSource source = tiers_[i].source;
            if (may_use_cache(source) && take_from_cache(i)) continue;
            if (may_measure(source)) {
                unknown.push_back(i);
            } else {
                report_.tiers[i].problem =
                    source == SpeedSource::none ? "measuring is switched off" : "never measured";
            }
        }
        const std::uint64_t start_ns = monotonic_ns();
        for (const std::size_t i : unknown) measure(i, kCalibrationBudgetNs / unknown.size());
        report_.measuring_ns = unknown.empty() ? 0 : monotonic_ns() - start_ns;
        if (cache_ && !measured_.empty()) {
            const Result<void> stored = cache_->store(measured_, now_s_);
            if (!stored) report_.cache_problem = stored.error().message();
        }
        return std::move(report_);
    }

   private:
    CalibrationKey key_of(const Tier& tier) const {
        return {machine_, medium_fingerprint(tier.info())};
    }

    bool take_from_cache(std::size_t i) {
        if (!cache_) return false;
        Tier& tier = *tiers_[i].tier;
        const auto found = cache_->find(key_of(tier));
        if (!found) {
            // That there is none yet is no problem.
            if (found.error().code() != Errc::not_found) {
                report_.cache_problem = found.error().message();
            }
            return false;
        }
        if (!found->good_for(calibration_sample_bytes(tier), now_s_)) return false;
        tier.calibrated(found->calibration.speed);
        report_.tiers[i] = {found->measured_at_s, true, {}};
        return true;
    }

    void measure(std::size_t i, std::uint64_t budget_ns) {
        Tier& tier = *tiers_[i].tier;
        const auto result = calibrate(tier, {.budget_ns = budget_ns});
        // In any case, because a measurement that failed has left its peak, too.
        tier.calibrated(result ? result->speed : TierSpeed{});
        if (!result) {
            report_.tiers[i].problem = result.error().message();
            return;
        }
        report_.tiers[i].measured_at_s = now_s_;
        measured_.push_back({key_of(tier), *result, now_s_});
    }

    std::span<const TierToRate> tiers_;
    std::string machine_;
    std::int64_t now_s_;
    std::optional<CalibrationCache> cache_;
    std::vector<CachedCalibration> measured_;
    SpeedReport report_;
};

}  // namespace

Result<SpeedSource> speed_source_from_environment() {
    const char* const value = std::getenv("FROSTLINE_CALIBRATION");
    const std::string_view asked = value == nullptr ? "" : value;
    if (asked.empty()) return SpeedSource::cache_or_measurement;
    if (asked == "off") return SpeedSource::none;
    if (asked == "now") return SpeedSource::measurement;
    return Error(Errc::invalid_argument, 0, "FROSTLINE_CALIBRATION: '{}' is neither off nor now",
                 asked);
}

SpeedReport find_speeds(std::span<const TierToRate> tiers) {
    return Search(tiers).run();
}

}  // namespace frostline
