// Reads machines. Members that are not known are passed over: machines may say more of themselves
// than a planner needs.
#include "migration/planning/machine.h"

#include "migration/planning/lined_json.h"
#include "migration/planning/text_file.h"
#include "migration/planning/text_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <new>
#include <set>
#include <utility>

namespace frostline {
namespace {

// The sizes of all tiers have a sum in 64 bits; a copy's time is neither zero nor infinite.
constexpr double kMostTierBytes = 1e18;
constexpr std::size_t kMostTiers = 8;
constexpr double kLeastBytesPerSecond = 1;
constexpr double kMostBytesPerSecond = 1e18;
constexpr double kMostLatencyNs = 1e15;

class MachineReader {
   public:
    explicit MachineReader(std::string_view name) : file_(shown_file(name)) {}

    Result<Machine> read(std::string_view text) {
        FROSTLINE_TRY(const LinedJson top, parse_lined_json(text, file_));
        if (!std::holds_alternative<LinedJson::Object>(top.value)) {
            return error(top, "a machine is an object");
        }
        if (top.member("name") != nullptr) {
            FROSTLINE_TRY(machine_.name, text_of(top, "name", "the machine"));
        }
        FROSTLINE_TRY_VOID(read_tiers(top));
        FROSTLINE_TRY_VOID(read_device(top));
        FROSTLINE_TRY_VOID(read_resources(top));
        FROSTLINE_TRY_VOID(read_links(top));
        return std::move(machine_);
    }

   private:
    template <class... Args>
    Error error(const LinedJson& at, fmt::format_string<Args...> format, Args&&... args) const {
        return Error(Errc::invalid_argument, 0, "{}:{}: {}", file_, at.line,
                     fmt::format(format, std::forward<Args>(args)...));
    }

    Result<const LinedJson*> member(const LinedJson& object, const char* name,
                                    std::string_view of) const {
        const LinedJson* const found = object.member(name);
        if (found == nullptr) return error(object, "{} has no '{}'", of, name);
        return found;
    }
    Result<std::string> text_of(const LinedJson& object, const char* name,
                                std::string_view of) const {
        FROSTLINE_TRY(const LinedJson* const found, member(object, name, of));
        const auto* const text = std::get_if<std::string>(&found->value);
        if (text == nullptr || text->empty()) {
            return error(*found, "'{}' of {} is not a text in quotes", name, of);
        }
        return *text;
    }
    Result<const LinedJson::List*> list_of(const LinedJson& object, const char* name,
                                           std::string_view of) const {
        FROSTLINE_TRY(const LinedJson* const found, member(object, name, of));
        const auto* const list = std::get_if<LinedJson::List>(&found->value);
        if (list == nullptr) return error(*found, "'{}' of {} is not a list", name, of);
        return list;
    }
    Result<double> number(const LinedJson& value, std::string_view what, double least,
                          double most) const {
        double found = std::numeric_limits<double>::quiet_NaN();
        if (const auto* const whole = std::get_if<std::uint64_t>(&value.value)) {
            found = static_cast<double>(*whole);
        } else if (const auto* const real = std::get_if<double>(&value.value)) {
            found = *real;
        }
        if (found >= least && found <= most) return found;
        return error(value, "{} is not a number from {} to {}", what, least, most);
    }
    Result<std::uint64_t> whole_number(const LinedJson& value, std::string_view what,
                                       double most) const {
        FROSTLINE_TRY(const double found, number(value, what, 0, most));
        if (const auto* const whole = std::get_if<std::uint64_t>(&value.value)) return *whole;
        if (std::floor(found) == found) return static_cast<std::uint64_t>(found);
        return error(value, "{} is not a whole number", what);
    }

    Result<void> read_tiers(const LinedJson& top) {
        FROSTLINE_TRY(const LinedJson::List* const list, list_of(top, "tiers", "the machine"));
        for (const LinedJson& each : *list) {
            FROSTLINE_TRY(std::string name, text_of(each, "name", "a tier"));
            // Schedules have it as a word.
            if (!is_plain_word(name)) {
                return error(each, "the tier's name {} is not one word of printable ASCII",
                             shown(name));
            }
            const auto index = static_cast<TierIndex>(machine_.tiers.size());
            if (index == kMostTiers) return error(each, "there are more than {} tiers", index);
            if (!tiers_.emplace(name, index).second) {
                return error(each, "there are two tiers {}", shown(name));
            }
            const std::string of = fmt::format("tier {}", shown(name));
            FROSTLINE_TRY(const LinedJson* const bytes, member(each, "bytes", of));
            FROSTLINE_TRY(const std::uint64_t size,
                          whole_number(*bytes, fmt::format("'bytes' of {}", of), kMostTierBytes));
            machine_.tiers.push_back({std::move(name), size});
        }
        return ok();
    }

    Result<void> read_device(const LinedJson& top) {
        FROSTLINE_TRY(machine_.device, tier(top, "device", "the machine"));
        const MachineTier& device = machine_.tiers[machine_.device];
        if (device.size_bytes > 0) return ok();
        return error(*top.member("device"), "the device {} has no bytes", shown(device.name));
    }

    // The tier that a member names.
    Result<TierIndex> tier(const LinedJson& object, const char* name, std::string_view of) const {
        FROSTLINE_TRY(const std::string text, text_of(object, name, of));
        const auto found = tiers_.find(text);
        if (found != tiers_.end()) return found->second;
        return error(*object.member(name), "'{}' of {} is {}, which is no tier", name, of,
                     shown(text));
    }

    Result<void> read_resources(const LinedJson& top) {
        FROSTLINE_TRY(const LinedJson* const all, member(top, "resources", "the machine"));
        const auto* const object = std::get_if<LinedJson::Object>(&all->value);
        if (object == nullptr) return error(*all, "'resources' is not an object");
        for (const auto& [name, value] : *object) {
            FROSTLINE_TRY(
                const double rate,
                number(value, fmt::format("resource {}, in bytes per second,", shown(name)),
                       kLeastBytesPerSecond, kMostBytesPerSecond));
            resources_.emplace(name, static_cast<ResourceIndex>(machine_.resources.size()));
            machine_.resources.push_back({name, rate});
        }
        return ok();
    }

    Result<void> read_links(const LinedJson& top) {
        FROSTLINE_TRY(const LinedJson::List* const list, list_of(top, "links", "the machine"));
        std::set<std::pair<TierIndex, TierIndex>> known;
        for (const LinedJson& each : *list) {
            MachineLink link;
            FROSTLINE_TRY(link.from, tier(each, "from", "a link"));
            FROSTLINE_TRY(link.to, tier(each, "to", "a link"));
            const std::string of =
                fmt::format("the link {} to {}", shown(machine_.tiers[link.from].name),
                            shown(machine_.tiers[link.to].name));
            if (link.from == link.to) return error(each, "{} leads nowhere", of);
            if (!known.emplace(link.from, link.to).second) {
                return error(each, "{} is there twice", of);
            }
            FROSTLINE_TRY(link.resources, resources_of(each, of));
            if (const LinedJson* const latency = each.member("latency_ns")) {
                FROSTLINE_TRY(
                    link.latency_ns,
                    whole_number(*latency, fmt::format("'latency_ns' of {}", of), kMostLatencyNs));
            }
            machine_.links.push_back(std::move(link));
        }
        return ok();
    }

    Result<std::vector<ResourceIndex>> resources_of(const LinedJson& link,
                                                    std::string_view of) const {
        FROSTLINE_TRY(const LinedJson::List* const list, list_of(link, "resources", of));
        std::vector<ResourceIndex> found;
        for (const LinedJson& each : *list) {
            const auto* const name = std::get_if<std::string>(&each.value);
            const auto known = name == nullptr ? resources_.end() : resources_.find(*name);
            if (known == resources_.end()) {
                return error(each, "{} loads {}, which is no resource", of,
                             name == nullptr ? "something" : shown(*name));
            }
            if (std::find(found.begin(), found.end(), known->second) != found.end()) {
                return error(each, "{} loads {} twice", of, shown(*name));
            }
            found.push_back(known->second);
        }
        if (found.empty()) return error(link, "{} loads no resource, so it has no speed", of);
        return found;
    }

    std::string file_;
    Machine machine_;
    std::map<std::string, TierIndex, std::less<>> tiers_;
    std::map<std::string, ResourceIndex, std::less<>> resources_;
};

Error no_memory(std::string_view name) {
    return Error(Errc::out_of_memory, 0, "no memory to read the machine '{}'", name);
}

}  // namespace

const MachineLink* Machine::link(TierIndex from, TierIndex to) const noexcept {
    for (const MachineLink& each : links) {
        if (each.from == from && each.to == to) return &each;
    }
    return nullptr;
}

double Machine::bytes_per_second(const MachineLink& link) const noexcept {
    double least = std::numeric_limits<double>::infinity();
    for (const ResourceIndex each : link.resources) {
        least = std::min(least, resources[each].bytes_per_second);
    }
    return least;
}

Result<Machine> parse_machine(std::string_view json, std::string_view name) noexcept {
    try {
        return MachineReader(name).read(json);
    } catch (const std::bad_alloc&) {
        return no_memory(name);
    }
}

Result<Machine> read_machine(const std::filesystem::path& path) noexcept {
    try {
        FROSTLINE_TRY(const std::string text, read_text_file(path));
        return parse_machine(text, path.native());
    } catch (const std::bad_alloc&) {
        return no_memory(path.native());
    }
}

}  // namespace frostline
