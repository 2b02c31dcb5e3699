// Each version of a tensor takes its cheapest plan by itself. Leaving and coming back are chosen
// apart from each other: a return before the leave costs no less than staying does, and so is
// never chosen.
#include "migration/planning/bound_prices.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace frostline {
namespace {

/// Steps 2 to 5 are judged, so every end of a step lies between two judged ones but the first and
/// the last.
constexpr double kJudgedSteps = 4;

}  // namespace

CutValue CutPricing::value(const CutPrices& prices, CutUse* use) {
    const std::uint32_t points = versions_.points;
    use_ = use;
    if (use_ != nullptr) {
        use_->in_bytes.assign(points, 0);
        use_->out_bytes.assign(points, 0);
        room_change_.assign(2 * std::size_t{points} + 1, 0);
    }
    tabulate(prices);
    CutValue value;
    for (std::uint32_t point = 0; point < points; ++point) {
        const auto room = static_cast<double>(cut_.room_bytes) -
                          static_cast<double>(versions_.used_bytes[point / 2]);
        value.repeating_ns -= prices.room[point] * room;
    }
    value.judged_ns = value.repeating_ns;
    for (const TensorVersion& version : versions_.versions) {
        const auto intervals =
            std::span(versions_.intervals).subspan(version.first_interval, version.intervals);
        const bool wraps = version.wrapping < version.intervals;
        const double share = wraps ? (kJudgedSteps - 1) / kJudgedSteps : 1;
        const double bytes = share * static_cast<double>(version.size_bytes);
        const double cost_ns =
            version.is_clean ? with_copy_ns(intervals, bytes) : without_copy_ns(intervals, bytes);
        value.repeating_ns += cost_ns / share;
        value.judged_ns += cost_ns;
        if (wraps) value.judged_ns += wrapping_ns(version, intervals);
    }
    if (use_ != nullptr) sum_up(*use_);
    return value;
}

void CutPricing::tabulate(const CutPrices& prices) {
    const std::size_t points = versions_.points;
    room_before_.resize(2 * points + 1);
    in_less_room_.resize(2 * points);
    out_.resize(2 * points);
    out_and_room_.resize(2 * points);
    for (std::size_t i = 0; i < 2 * points; ++i) {
        const std::size_t point = i % points;
        room_before_[i + 1] = room_before_[i] + prices.room[point];
        in_less_room_[i] = prices.in[point] - room_before_[i];
        out_[i] = prices.out[point];
        out_and_room_[i] = prices.out[point] + room_before_[i];
    }
    least_in_less_room_.assign(in_less_room_);
    least_out_.assign(out_);
    least_out_and_room_.assign(out_and_room_);
}

CutPricing::Choice CutPricing::cheapest_return(const UseInterval& interval) const {
    const std::size_t phase = least_in_less_room_.find(interval.begin + 1, interval.end + 1);
    return {static_cast<std::uint32_t>(phase), in_less_room_[phase] + room_before_[interval.end]};
}

CutPricing::Choice CutPricing::cheapest_leave(const UseInterval& interval) const {
    const std::size_t phase = least_out_and_room_.find(interval.begin, interval.end);
    const double cost_ns = out_and_room_[phase] - room_before_[interval.begin];
    // In the run of the kernel before, the copy can be made, but nothing can leave before its end.
    if (interval.first_out < interval.begin && out_[interval.first_out] <= cost_ns) {
        return {interval.first_out, out_[interval.first_out]};
    }
    return {static_cast<std::uint32_t>(phase), cost_ns};
}

CutPricing::Choice CutPricing::cheapest_copy(const UseInterval& interval) const {
    const std::size_t phase = least_out_.find(interval.first_out, interval.end + 1);
    return {static_cast<std::uint32_t>(phase), out_[phase]};
}

double CutPricing::with_copy_ns(const UseInterval& interval, double bytes) {
    if (interval.begin == interval.end) return 0;
    const double stay = stay_ns(interval);
    if (stay == 0) return 0;
    const Choice back = cheapest_return(interval);
    if (stay <= back.cost_ns) {
        note_stay(interval.begin, interval.end, bytes);
        return bytes * stay;
    }
    note_in(back.phase, bytes);
    note_stay(back.phase, interval.end, bytes);
    return bytes * back.cost_ns;
}

double CutPricing::with_copy_ns(std::span<const UseInterval> intervals, double bytes) {
    double sum_ns = 0;
    for (const UseInterval& interval : intervals) sum_ns += with_copy_ns(interval, bytes);
    return sum_ns;
}

double CutPricing::without_copy_ns(std::span<const UseInterval> intervals, double bytes) {
    CutUse* const noted = std::exchange(use_, nullptr);  // of the plans weighed, none is made yet
    later_ns_.assign(intervals.size() + 1, 0);
    for (std::size_t i = intervals.size(); i > 0; --i) {
        later_ns_[i - 1] = later_ns_[i] + with_copy_ns(intervals[i - 1], 1);
    }
    use_ = noted;
    enum class Kind : std::uint8_t { none, copy, leave };
    double best_ns = 0;
    for (const UseInterval& interval : intervals) best_ns += stay_ns(interval);
    Kind kind = Kind::none;
    std::size_t where = intervals.size();
    double before_ns = 0;
    for (std::size_t i = 0; i < intervals.size(); ++i) {
        const UseInterval& interval = intervals[i];
        const double stay = stay_ns(interval);
        const double base_ns = before_ns + later_ns_[i + 1];
        const double copy_ns = base_ns + stay + cheapest_copy(interval).cost_ns;
        if (copy_ns < best_ns) best_ns = copy_ns, kind = Kind::copy, where = i;
        if (stay > 0) {
            const double leave_ns =
                base_ns + cheapest_leave(interval).cost_ns + cheapest_return(interval).cost_ns;
            if (leave_ns < best_ns) best_ns = leave_ns, kind = Kind::leave, where = i;
        }
        before_ns += stay;
    }
    if (use_ == nullptr) return bytes * best_ns;
    for (std::size_t i = 0; i < std::min(intervals.size(), where + (kind == Kind::copy ? 1 : 0));
         ++i) {
        note_stay(intervals[i].begin, intervals[i].end, bytes);
    }
    if (kind == Kind::none) return bytes * best_ns;
    if (kind == Kind::copy) {
        note_out(cheapest_copy(intervals[where]).phase, bytes);
    } else {
        const Choice leave = cheapest_leave(intervals[where]);
        const Choice back = cheapest_return(intervals[where]);
        note_out(leave.phase, bytes);
        note_in(back.phase, bytes);
        note_stay(intervals[where].begin, std::max(leave.phase, intervals[where].begin), bytes);
        note_stay(back.phase, intervals[where].end, bytes);
    }
    with_copy_ns(intervals.subspan(where + 1), bytes);
    return bytes * best_ns;
}

double CutPricing::wrapping_ns(const TensorVersion& version,
                               std::span<const UseInterval> intervals) {
    const double bytes = static_cast<double>(version.size_bytes) / kJudgedSteps;
    // After step 5 nothing has to come back; before step 2 everything may lie where it is best,
    // and have a copy.
    const auto last = intervals.first(version.wrapping);
    double sum_ns = version.is_clean ? with_copy_ns(last, bytes) : without_copy_ns(last, bytes);
    UseInterval first = intervals[version.wrapping];
    first.begin = versions_.points;
    sum_ns += with_copy_ns(first, bytes);
    return sum_ns + with_copy_ns(intervals.subspan(version.wrapping + 1), bytes);
}

void CutPricing::note_stay(std::uint32_t begin, std::uint32_t end, double bytes) {
    if (use_ == nullptr) return;
    room_change_[begin] += bytes;
    room_change_[end] -= bytes;
}

void CutPricing::note_in(std::uint32_t phase, double bytes) {
    if (use_ != nullptr) use_->in_bytes[phase % versions_.points] += bytes;
}

void CutPricing::note_out(std::uint32_t phase, double bytes) {
    if (use_ != nullptr) use_->out_bytes[phase % versions_.points] += bytes;
}

void CutPricing::sum_up(CutUse& use) const {
    use.room_bytes.assign(versions_.points, 0);
    double room = 0;
    for (std::size_t i = 0; i < 2 * std::size_t{versions_.points}; ++i) {
        room += room_change_[i];
        use.room_bytes[i % versions_.points] += room;
    }
}

}  // namespace frostline
