// Draws the rows of the chart from above to below; each takes the room that it needs.
#include "bindings/cli/plan_chart.h"

#include "bindings/byte_size.h"
#include "bindings/cli/plan_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>

namespace frostline::cli {
namespace {

constexpr double kWidth = 900;
constexpr double kAbove = 26;
constexpr double kBelow = 30;
constexpr double kTierHeight = 84;
constexpr double kLaneHeight = 20;
constexpr double kBetween = 12;
constexpr double kLeastVisible = 1.5;

class Chart {
   public:
    Chart(const PlanningProblem& problem, const ShownStep& step)
        : machine_(problem.machine), step_(step) {}

    std::string draw() {
        for (TierIndex i = 0; i < machine_.tiers.size(); ++i) draw_tier(i);
        draw_kernels();
        for (std::size_t i = 0; i < machine_.links.size(); ++i) draw_link(i);
        draw_time();
        return fmt::format(
            R"(<svg id="timeline" viewBox="0 0 {:g} {:g}" role="img" )"
            R"(aria-labelledby="timeline-title timeline-text">)"
            R"(<title id="timeline-title">Tiers, kernels and links against time</title>)"
            R"(<desc id="timeline-text">{}</desc>{}</svg>)",
            kWidth, y_ + kBelow, escaped(words_), parts_);
    }

   private:
    template <class... Args>
    void add(fmt::format_string<Args...> format, Args&&... args) {
        fmt::format_to(std::back_inserter(parts_), format, std::forward<Args>(args)...);
    }
    static constexpr double kInside = kWidth - kChartLeft - kChartRight;
    static double x(std::size_t column) {
        return kChartLeft +
               kInside * static_cast<double>(column) / static_cast<double>(kChartColumns);
    }

    void label(double y, std::string_view text) {
        add(R"(<text class="tick" x="{:g}" y="{:.1f}" text-anchor="end">{}</text>)", kChartLeft - 8,
            y, escaped(text));
    }
    void floor_line() {
        add(R"(<line class="grid" x1="{:g}" x2="{:g}" y1="{:.1f}" y2="{:.1f}"/>)", kChartLeft,
            kWidth - kChartRight, y_, y_);
    }

    void draw_tier(TierIndex tier) {
        const std::vector<std::uint64_t>& held = step_.held[tier];
        const std::uint64_t peak_bytes = *std::max_element(held.begin(), held.end());
        const MachineTier& what = machine_.tiers[tier];
        // A large tier that holds little is drawn to the scale of what it holds.
        const bool shows_size = what.size_bytes / 3 <= peak_bytes;
        const double top = 1.08 * static_cast<double>(std::max<std::uint64_t>(
                                      shows_size ? what.size_bytes : peak_bytes, 1));
        const auto height = [&](std::uint64_t bytes) {
            return kTierHeight * static_cast<double>(bytes) / top;
        };
        y_ += kTierHeight;
        std::string outline = fmt::format("M{:.1f} {:.1f}", x(0), y_);
        for (std::size_t i = 0; i < held.size(); ++i) {
            fmt::format_to(std::back_inserter(outline), "V{:.1f}H{:.1f}", y_ - height(held[i]),
                           x(i + 1));
        }
        add(R"(<path class="area {}" d="{}V{:.1f}Z"/>)", tier_colour(machine_, tier), outline, y_);
        floor_line();
        label(y_ - kTierHeight / 2, what.name);
        label(y_ - kTierHeight / 2 + 15, format_byte_size(peak_bytes));
        if (shows_size) draw_size(y_ - height(what.size_bytes), what.size_bytes);
        words_ += fmt::format("{} holds at most {} of {}. ", what.name,
                              format_byte_size(peak_bytes), format_byte_size(what.size_bytes));
        y_ += kBetween;
    }

    void draw_size(double y, std::uint64_t size_bytes) {
        add(R"(<line class="level" x1="{:g}" x2="{:g}" y1="{:.1f}" y2="{:.1f}"/>)", kChartLeft,
            kWidth - kChartRight, y, y);
        add(R"(<text class="level-name" x="{:g}" y="{:.1f}" text-anchor="end">size {}</text>)",
            kWidth - kChartRight - 4, y - 3, format_byte_size(size_bytes));
    }

    double x_of(std::uint64_t at_ns) const {
        return kChartLeft + kInside * static_cast<double>(at_ns - step_.from_ns) /
                                static_cast<double>(step_.to_ns - step_.from_ns);
    }

    // Stalls that would overlap become one, so that a million of them are no more than can be seen.
    void draw_kernels() {
        add(R"(<rect class="lane kernels" x="{:g}" y="{:.1f}" width="{:g}" height="{:g}"/>)",
            kChartLeft, y_, kInside, kLaneHeight);
        std::string boxes;
        double drawn = 0;
        std::uint64_t waited_ns = 0;
        for (const Stall& each : step_.stalls) {
            waited_ns += each.waited_ns;
            const double left = std::max(x_of(each.start_ns - each.waited_ns), drawn);
            const double right = std::max(x_of(each.start_ns), left + kLeastVisible);
            if (x_of(each.start_ns) <= drawn) continue;
            drawn = right;
            fmt::format_to(std::back_inserter(boxes), "M{:.1f} {:.1f}H{:.1f}v{:g}H{:.1f}Z", left,
                           y_, right, kLaneHeight, left);
        }
        add(R"(<path class="lane stall" d="{}"/>)", boxes);
        y_ += kLaneHeight;
        label(y_ - 5, "kernels");
        words_ += fmt::format("Kernels wait {} times, {} in all. ", step_.stalls.size(),
                              time_text(static_cast<double>(waited_ns)));
        y_ += kBetween;
    }

    void draw_link(std::size_t link) {
        double most = std::numeric_limits<double>::infinity();
        for (const ResourceIndex each : machine_.links[link].resources) {
            most = std::min(most, machine_.resources[each].bytes_per_second);
        }
        const double most_in_column = most * 1e-9 *
                                      static_cast<double>(step_.to_ns - step_.from_ns) /
                                      static_cast<double>(kChartColumns);
        y_ += kLaneHeight;
        std::string bars;
        for (std::size_t i = 0; i < kChartColumns; ++i) {
            const double load = std::min(step_.carried[link][i] / most_in_column, 1.0);
            if (load <= 0) continue;
            fmt::format_to(std::back_inserter(bars), "M{:.1f} {:.1f}V{:.1f}H{:.1f}V{:.1f}Z", x(i),
                           y_, y_ - std::max(load * kLaneHeight, kLeastVisible), x(i + 1), y_);
        }
        add(R"(<path class="lane to_device" d="{}"/>)", bars);
        floor_line();
        const std::string name = link_name(machine_, link);
        label(y_ - 5, name);
        words_ += fmt::format("{} copies {:.0f} % of the time. ", name, 100 * step_.busy[link]);
        y_ += kBetween;
    }

    // At most ten marks, at round times.
    void draw_time() {
        const auto span = static_cast<double>(step_.to_ns - step_.from_ns);
        double between = std::pow(10.0, std::floor(std::log10(span)));
        for (const double part : {0.1, 0.2, 0.5}) {
            if (span / (between * part) <= 10) {
                between *= part;
                break;
            }
        }
        for (double at = 0; at <= span; at += between) {
            const double where = kChartLeft + kInside * at / span;
            add(R"(<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)", where,
                y_ + 14,
                span >= 1e9 ? fmt::format("{:g} s", at * 1e-9) : fmt::format("{:g} ms", at * 1e-6));
        }
    }

    const Machine& machine_;
    const ShownStep& step_;
    double y_ = kAbove;
    std::string parts_;
    std::string words_;
};

}  // namespace

std::string_view tier_colour(const Machine& machine, TierIndex tier) noexcept {
    constexpr std::array<std::string_view, 3> kLower = {"dram", "swap", "pmem"};
    if (tier == machine.device) return "device";
    // Counted without the device, wherever it stands.
    return kLower[(tier - (tier > machine.device ? 1 : 0)) % kLower.size()];
}

std::string plan_chart(const PlanningProblem& problem, const ShownStep& step) {
    return Chart(problem, step).draw();
}

std::string escaped(std::string_view text) {
    std::string out;
    for (const char each : text) {
        switch (each) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '"':
                out += "&quot;";
                break;
            default:
                out += each;
        }
    }
    return out;
}

}  // namespace frostline::cli
