// For ranges that each need one stretch of room and save the same per byte, giving up the one that
// ends last whenever there are too many keeps the most (an exchange shows it).
#include "migration/planning/traffic_sweep.h"

#include <algorithm>
#include <cstddef>

namespace frostline {

TrafficSweep::TrafficSweep(const TensorVersions& versions, const TierCut& cut)
    : versions_(versions), cut_(cut) {
    const std::uint32_t count = kernels();
    lifetime_.resize(versions_.versions.size());
    first_span_.assign(count + 2, 0);
    const auto span_of = [&](std::uint32_t version, std::uint32_t i) {
        const TensorVersion& each = versions_.versions[version];
        const UseInterval& interval = versions_.intervals[each.first_interval + i];
        const std::uint32_t from = interval.begin / 2 - 1;
        return Span{.from = from % count,
                    .length = interval.end / 2 - from,
                    .version = version,
                    .opens = i == 0 && !each.is_clean,
                    .is_born_read = interval.first_out < interval.begin};
    };
    const auto for_each_span = [&](auto&& act) {
        for (std::uint32_t version = 0; version < versions_.versions.size(); ++version) {
            for (std::uint32_t i = 0; i < versions_.versions[version].intervals; ++i) {
                act(span_of(version, i));
            }
        }
    };
    for_each_span([&](const Span& span) {
        ++first_span_[span.from + 1];
        lifetime_[span.version] += span.length;
    });
    for (std::size_t i = 1; i < first_span_.size(); ++i) first_span_[i] += first_span_[i - 1];
    spans_.resize(versions_.intervals.size());
    std::vector<std::uint32_t> next(first_span_);
    for_each_span([&](const Span& span) { spans_[next[span.from]++] = span; });
}

double TrafficSweep::room_beside(std::uint32_t kernel) const {
    return static_cast<double>(cut_.room_bytes) -
           static_cast<double>(versions_.used_bytes[kernel % kernels()]);
}

std::span<const TrafficSweep::Span> TrafficSweep::spans_from(std::uint32_t kernel) const {
    const std::uint32_t at = kernel % kernels();
    return std::span(spans_).subspan(first_span_[at], first_span_[at + 1] - first_span_[at]);
}

std::span<const double> TrafficSweep::sweep(Direction direction, std::uint32_t first,
                                            std::uint32_t kernels) {
    direction_ = direction;
    first_ = first;
    crossed_.assign(kernels, 0);
    losses_.clear();
    ends_ = {};
    if (direction == Direction::in) {
        sweep_in(first, kernels);
    } else {
        sweep_out(first, kernels);
    }
    return crossed_;
}

std::vector<std::uint32_t> TrafficSweep::tight_kernels() const {
    const auto window = static_cast<std::uint32_t>(crossed_.size());
    // What comes back after the window need not come in it; what leaves in it has left.
    std::uint32_t next = direction_ == Direction::in ? window : ~std::uint32_t{0};
    std::vector<std::uint32_t> tight;
    for (std::size_t i = losses_.size(); i > 0; --i) {
        const Loss& loss = losses_[i - 1];
        if (loss.until > next) continue;
        tight.push_back((first_ + kernels() + loss.kernel - 1) % kernels());
        next = loss.kernel;
    }
    return tight;
}

void TrafficSweep::keep(std::uint32_t until, double bytes) {
    if (kept_until_[until] == 0) ends_.push(until);
    kept_until_[until] += bytes;
}

void TrafficSweep::sweep_in(std::uint32_t first, std::uint32_t kernels) {
    // Offsets from the kernel before `first`: that is 0, the window's kernels are 1 and so on. No
    // span is longer than a step.
    const std::uint32_t step = this->kernels();
    const std::uint32_t before = (first + step - 1) % step;
    kept_until_.assign(2 * std::size_t{step} + 2, 0);
    missing_at_.assign(2 * std::size_t{step} + 2, 0);
    double kept = 0;
    for (const Span& span : spans_) {
        const std::uint32_t ago = (before + step - span.from) % step;
        if (ago == 0 || span.length <= ago) continue;
        const auto bytes = static_cast<double>(versions_.versions[span.version].size_bytes);
        keep(span.length - ago, bytes);
        kept += bytes;
    }
    for (std::uint32_t i = 0; i <= kernels; ++i) {
        kept -= kept_until_[i];
        if (i > 0) crossed_[i - 1] = missing_at_[i] + (i > 1 ? crossed_[i - 2] : 0);
        double excess = kept - room_beside(before + i);
        Loss loss{.kernel = i};
        while (excess > 0 && !ends_.empty() && ends_.top() > i) {
            const std::uint32_t end = ends_.top();
            const double given_up = std::min(excess, kept_until_[end]);
            kept_until_[end] -= given_up;
            missing_at_[end] += given_up;
            kept -= given_up;
            excess -= given_up;
            loss.until = end;
            if (kept_until_[end] == 0) ends_.pop();
        }
        if (loss.until > 0) losses_.push_back(loss);
        for (const Span& span : spans_from(before + i)) {
            if (span.length <= 1) continue;
            const auto bytes = static_cast<double>(versions_.versions[span.version].size_bytes);
            keep(i + span.length, bytes);
            kept += bytes;
        }
    }
}

void TrafficSweep::sweep_out(std::uint32_t first, std::uint32_t kernels) {
    kept_.assign(versions_.versions.size(), 0);
    end_.assign(versions_.versions.size(), 0);
    // In use at a kernel: neither counted beside it nor given up there.
    std::vector<std::vector<std::uint32_t>> used_at(kernels + 1);
    std::priority_queue<std::pair<std::uint32_t, std::uint32_t>> by_end;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> set_aside;
    std::vector<std::uint32_t> last_use(versions_.versions.size(), 0);
    double kept = 0;
    double crossed = 0;
    for (std::uint32_t i = 0; i < kernels; ++i) {
        for (const std::uint32_t version : used_at[i]) {
            kept -= kept_[version];
            last_use[version] = i;
        }
        double excess = kept - room_beside(first + i);
        Loss loss{.kernel = i + 1};
        while (excess > 0 && !by_end.empty()) {
            const auto [end, version] = by_end.top();
            if (end <= i || kept_[version] == 0 || end_[version] != end) {
                by_end.pop();
            } else if (last_use[version] == i) {
                set_aside.push_back(by_end.top());
                by_end.pop();
            } else {
                const double given_up = std::min(excess, kept_[version]);
                kept_[version] -= given_up;
                kept -= given_up;
                excess -= given_up;
                crossed += given_up;
                loss.until = end + 1;
            }
        }
        for (const auto& each : set_aside) by_end.push(each);
        set_aside.clear();
        if (loss.until > 0) losses_.push_back(loss);
        crossed_[i] = crossed;
        for (const Span& span : spans_from(first + i)) {
            // The first kernel's run comes before the window: what it only reads may leave then.
            if (span.opens && !(i == 0 && span.is_born_read)) {
                kept_[span.version] =
                    static_cast<double>(versions_.versions[span.version].size_bytes);
                end_[span.version] = i + lifetime_[span.version];
                by_end.emplace(end_[span.version], span.version);
                last_use[span.version] = i;
            }
            if (kept_[span.version] == 0) continue;
            kept += kept_[span.version];
            if (i + span.length < kernels) used_at[i + span.length].push_back(span.version);
        }
    }
}

}  // namespace frostline
