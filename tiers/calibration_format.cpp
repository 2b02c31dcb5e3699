// JSON by nlohmann's library, without its exceptions where a file's content is to blame.
#include "tiers/calibration_format.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <utility>

namespace frostline {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;

Error damaged(std::string_view what) {
    return Error(Errc::corrupt, 0, "the cache of measurements is damaged: {}", what);
}

// Takes the members of one object out of it, and remembers whether one was not as it should be.
class Members {
   public:
    explicit Members(const Json& object) : object_(object), good_(object.is_object()) {}

    template <class Number>
    void number(const char* name, Number& value) {
        const Json* const member = find(name);
        good_ = good_ && member != nullptr && member->is_number_unsigned() &&
                std::in_range<Number>(member->get<std::uint64_t>());
        if (good_) value = static_cast<Number>(member->get<std::uint64_t>());
    }
    void text(const char* name, std::string& value) {
        const Json* const member = find(name);
        good_ = good_ && member != nullptr && member->is_string();
        if (good_) value = member->get<std::string>();
    }
    bool good() const { return good_; }

   private:
    const Json* find(const char* name) const {
        if (!good_) return nullptr;
        const auto found = object_.find(name);
        return found == object_.end() ? nullptr : &*found;
    }

    const Json& object_;
    bool good_;
};

}  // namespace

Result<std::vector<CachedCalibration>> parse_calibrations(std::string_view text) {
    const Json file = Json::parse(text, nullptr, false);
    if (file.is_discarded()) return damaged("it is not JSON");
    int format = 0;
    Members top(file);
    top.number("format", format);
    if (!top.good()) return damaged("it does not say its format");
    if (format != kFormat) {
        return Error(Errc::corrupt, 0, "the cache of measurements has format {}, not {}", format,
                     kFormat);
    }
    const auto list = file.find("entries");
    if (list == file.end() || !list->is_array()) return damaged("it has no list of entries");
    std::vector<CachedCalibration> entries;
    for (const Json& each : *list) {
        CachedCalibration entry;
        TierSpeed& speed = entry.calibration.speed;
        Members members(each);
        members.text("machine", entry.key.machine);
        members.text("medium", entry.key.medium);
        members.number("measured_at_s", entry.measured_at_s);
        members.number("sample_bytes", entry.calibration.sample_bytes);
        members.number("read_bytes_per_s", speed.read_bytes_per_s);
        members.number("write_bytes_per_s", speed.write_bytes_per_s);
        members.number("read_latency_ns", speed.read_latency_ns);
        members.number("write_latency_ns", speed.write_latency_ns);
        members.number("best_writers", speed.best_writers);
        if (!members.good() || speed.best_writers == 0) return damaged("an entry is not as it was");
        entries.push_back(std::move(entry));
    }
    return entries;
}

std::string format_calibrations(std::span<const CachedCalibration> entries) {
    Json file{{"format", kFormat}, {"entries", Json::array()}};
    for (const CachedCalibration& entry : entries) {
        const TierSpeed& speed = entry.calibration.speed;
        file["entries"].push_back({{"machine", entry.key.machine},
                                   {"medium", entry.key.medium},
                                   {"measured_at_s", entry.measured_at_s},
                                   {"sample_bytes", entry.calibration.sample_bytes},
                                   {"read_bytes_per_s", speed.read_bytes_per_s},
                                   {"write_bytes_per_s", speed.write_bytes_per_s},
                                   {"read_latency_ns", speed.read_latency_ns},
                                   {"write_latency_ns", speed.write_latency_ns},
                                   {"best_writers", speed.best_writers}});
    }
    // A path with bytes that are no text must not end the program.
    return file.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace frostline
