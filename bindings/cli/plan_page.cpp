// The page: the figures as cards, the chart, and tables that say the same in numbers. Its style and
// script are those of all pages (bindings/page).
#include "bindings/byte_size.h"
#include "bindings/cli/page_assets.h"
#include "bindings/cli/plan_chart.h"
#include "bindings/cli/plan_result.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace frostline::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostStalls = 10;

std::string card(std::string_view label, std::string_view figure, std::string_view detail) {
    return fmt::format(R"(<div class="card"><h2>{}</h2><p class="figure">{}</p>)"
                       R"(<p class="detail">{}</p></div>)",
                       escaped(label), escaped(figure), escaped(detail));
}

std::string cards(const PlanSubject& subject, const PlanOutcome& outcome) {
    const ReplayVerdict& verdict = outcome.result->verdict;
    return card("Step time", time_text(verdict.step_ns),
                fmt::format("{} with infinite memory",
                            time_text(static_cast<double>(verdict.ideal_ns)))) +
           card("Slowdown", fmt::format("{:.4f} \u00d7", verdict.slowdown),
                "over infinite memory") +
           card("Above the lower bound",
                fmt::format("{:.3f} %", std::max(0.0, 100 * above_bound(verdict, subject.bound))),
                fmt::format("no schedule is faster than {}", time_text(subject.bound.step_ns))) +
           card("Planning", fmt::format("{:.3f} s", outcome.result->plan_s),
                fmt::format("by {}", outcome.policy));
}

/// Cells are HTML; the first one heads its row.
std::string row(const std::vector<std::string>& cells) {
    std::string out = fmt::format(R"(<tr><th scope="row">{}</th>)", cells.front());
    for (std::size_t i = 1; i < cells.size(); ++i) out += fmt::format("<td>{}</td>", cells[i]);
    return out + "</tr>";
}

std::string table(std::string_view caption, const std::vector<std::string_view>& head,
                  const std::string& rows) {
    std::string titles;
    for (const std::string_view each : head) {
        titles += fmt::format(R"(<th scope="col">{}</th>)", each);
    }
    return fmt::format(
        R"(<div class="scroll"><table><caption>{}</caption><thead><tr>{}</tr></thead>)"
        "<tbody>{}</tbody></table></div>",
        caption, titles, rows);
}

std::string tier_table(const Machine& machine, const ReplayVerdict& verdict) {
    std::string rows;
    for (TierIndex i = 0; i < machine.tiers.size(); ++i) {
        rows += row({fmt::format(R"(<i class="key {}"></i>{})", tier_colour(machine, i),
                                 escaped(machine.tiers[i].name)),
                     format_byte_size(verdict.peak_bytes[i]),
                     format_byte_size(machine.tiers[i].size_bytes)});
    }
    return table("Tiers, over all steps", {"Tier", "Peak", "Size"}, rows);
}

std::string link_table(const Machine& machine, const ReplayVerdict& verdict,
                       const ShownStep& step) {
    if (machine.links.empty()) return {};
    std::string rows;
    for (std::size_t i = 0; i < machine.links.size(); ++i) {
        rows += row({escaped(link_name(machine, i)), format_byte_size(bytes_per_step(verdict, i)),
                     fmt::format("{:.1f} %", 100 * step.busy[i])});
    }
    return table("Links", {"Link", "Moved, each step", "Copying, in this step"}, rows);
}

std::string stall_table(const Trace& trace, const ShownStep& step) {
    std::vector<Stall> longest = step.stalls;
    std::stable_sort(longest.begin(), longest.end(),
                     [](const Stall& a, const Stall& b) { return a.waited_ns > b.waited_ns; });
    if (longest.size() > kMostStalls) longest.resize(kMostStalls);
    if (longest.empty()) return "<p>No kernel waits in this step.</p>";
    std::string rows;
    for (const Stall& each : longest) {
        rows += row({fmt::format("{} {}", each.kernel, escaped(trace.name(each.kernel))),
                     time_text(static_cast<double>(each.start_ns - step.from_ns)),
                     time_text(static_cast<double>(each.waited_ns))});
    }
    return table("The longest stalls", {"Kernel", "Starts after", "Waits"}, rows);
}

/// What the script shows at the cursor.
std::string hover_data(const Machine& machine, const ShownStep& step) {
    const double span_s = static_cast<double>(step.to_ns - step.from_ns) * 1e-9;
    Json time = Json::array();
    for (std::size_t i = 0; i < kChartColumns; ++i) {
        time.push_back(span_s * static_cast<double>(i) / static_cast<double>(kChartColumns));
    }
    Json lines = Json::array();
    for (std::size_t i = 0; i < machine.tiers.size(); ++i) {
        lines.push_back({{"name", machine.tiers[i].name}, {"bytes", step.held[i]}});
    }
    const Json data{{"timeline",
                     {{"end", span_s},
                      {"margins", {kChartLeft, kChartRight}},
                      {"time", std::move(time)},
                      {"lines", std::move(lines)}}}};
    // "</" would end the script element it stands in; JSON may write the slash escaped.
    std::string text = data.dump();
    for (std::size_t at = 0; (at = text.find("</", at)) != std::string::npos; at += 3) {
        text.replace(at, 2, "<\\/");
    }
    return text;
}

}  // namespace

Result<std::string> plan_page(const PlanSubject& subject, const PlanOutcome& outcome) {
    const PlanningProblem& problem = *subject.problem;
    const ReplayVerdict& verdict = outcome.result->verdict;
    FROSTLINE_TRY(const ShownStep step, shown_step(problem, *outcome.result));
    std::string page = fmt::format(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta name=\"color-scheme\" content=\"light dark\">\n<title>Frostline plan: {0}</title>\n"
        "<style>\n{1}</style>\n</head>\n<body>\n<header><p class=\"name\">Frostline</p>\n"
        "<h1>A step of {0}</h1>\n"
        "<p class=\"verdict good\">\u2713 Legal, by replay of {2} steps.</p></header>\n<main>\n"
        "<div class=\"cards\">{3}</div>\n",
        escaped(subject.trace_path), kPageStyle, verdict.steps, cards(subject, outcome));
    page += fmt::format(
        "<section><h2>Step {0} of {1}</h2><p>Above, what each tier holds; below, the kernels, with "
        "stalls marked, and how much of its speed each link uses. Machine: {2}.</p>\n"
        "<ul class=\"legend\"><li><i class=\"key device\"></i>kernels run</li>"
        "<li><i class=\"key stall\"></i>the device waits</li>"
        "<li><i class=\"key offloaded\"></i>a link copies</li></ul>\n"
        "<div class=\"chart\" data-chart=\"timeline\">{3}</div>\n"
        "<p class=\"readout\" id=\"timeline-values\" aria-live=\"polite\"></p></section>\n",
        step.step + 1, verdict.steps, escaped(subject.machine_path), plan_chart(problem, step));
    page +=
        fmt::format("<section><h2>In numbers</h2>{}{}{}</section>\n</main>\n",
                    tier_table(problem.machine, verdict),
                    link_table(problem.machine, verdict, step), stall_table(problem.trace, step));
    page += fmt::format(
        "<script type=\"application/json\" id=\"data\">{}</script>\n"
        "<script>\n{}</script>\n</body>\n</html>\n",
        hover_data(problem.machine, step), kPageScript);
    return page;
}

}  // namespace frostline::cli
