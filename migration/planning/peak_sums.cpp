// Each range of bytes has the window's earliest start and the earliest end that reach it, so two
// running sums over all pairs give all windows at once.
#include "migration/planning/peak_sums.h"

#include <algorithm>
#include <cstddef>

namespace frostline {

PeakSums::PeakSums(const TensorVersions& versions, std::span<const std::uint32_t> bounds)
    : versions_(versions), bounds_(bounds) {}

std::uint32_t PeakSums::ago(std::size_t peak, std::size_t places) const {
    const std::uint32_t step = versions_.points / 2;
    const std::size_t count = bounds_.size();
    if (places == count) return step;
    return (bounds_[peak] + step - bounds_[(peak + count - places) % count]) % step;
}

std::size_t PeakSums::places_before(std::size_t peak, std::uint32_t kernels) const {
    std::size_t low = 0;
    std::size_t high = bounds_.size() + 1;  // further back than any window begins
    while (low < high) {
        const std::size_t middle = (low + high) / 2;
        if (middle <= bounds_.size() && ago(peak, middle) < kernels) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

std::size_t PeakSums::places_after(std::size_t peak, std::uint32_t kernels) const {
    // The bound so many places later is as far away as it is short of a whole step before.
    const std::uint32_t step = versions_.points / 2;
    std::size_t low = 1;
    std::size_t high = bounds_.size() + 1;
    while (low < high) {
        const std::size_t middle = (low + high) / 2;
        const std::size_t count = bounds_.size();
        const std::uint32_t away = middle >= count ? step : step - ago(peak, count - middle);
        if (away < kernels) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void PeakSums::gather(std::size_t peak) {
    const std::uint32_t step = versions_.points / 2;
    const std::uint32_t kernel = bounds_[peak];
    const std::size_t row = bounds_.size() + 2;
    spared_.assign(row * row, 0);
    all_bytes_ = 0;
    for (const TensorVersion& version : versions_.versions) {
        for (std::uint32_t i = 0; i < version.intervals; ++i) {
            const UseInterval& interval = versions_.intervals[version.first_interval + i];
            const std::uint32_t from = interval.begin / 2 - 1;
            const std::uint32_t to = interval.end / 2;
            // A weight's last interval may contain the kernel as one of the next step.
            const std::uint32_t at = kernel > from ? kernel : kernel + step;
            if (at <= from || at >= to) continue;
            const auto bytes = static_cast<double>(version.size_bytes);
            const UseInterval& first = versions_.intervals[version.first_interval];
            // What is only read at its birth can leave while that kernel runs, so that the window
            // must begin before it.
            const std::uint32_t written = at - (first.begin / 2 - 1);
            const std::uint32_t reach = written + (first.first_out < first.begin ? 1 : 0);
            const std::size_t before =
                version.is_clean ? bounds_.size() + 1 : places_before(peak, reach);
            spared_[before * row + places_after(peak, to - at)] += bytes;
            all_bytes_ += bytes;
        }
    }
    // From "reached from here on" to "not reached yet": the sum of all that lie further both ways.
    for (std::size_t i = row; i-- > 0;) {
        for (std::size_t j = row - 1; j-- > 0;) spared_[i * row + j] += spared_[i * row + j + 1];
    }
    for (std::size_t i = row - 1; i-- > 0;) {
        for (std::size_t j = 0; j < row; ++j) spared_[i * row + j] += spared_[(i + 1) * row + j];
    }
    for (std::size_t i = 0; i < row; ++i) {
        for (std::size_t j = 0; j < row; ++j) {
            const bool is_last = i + 1 == row || j + 1 == row;
            spared_[i * row + j] = is_last ? 0 : spared_[(i + 1) * row + j + 1];
        }
    }
}

}  // namespace frostline
