// Where the least of a run of numbers lies, for many runs of the same numbers.
//
// Rule: of equal numbers the first counts, so that what is found does not depend on the run's ends.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace frostline {

/// Runs are cut into blocks, and only whole blocks are tabulated: that takes a small part of the
/// numbers' own memory. Not thread-safe while assign() runs. Budget: building n, a query about 30
/// comparisons.
class RangeMinimum {
   public:
    /// Keeps a view of `numbers`, which outlive it. May throw std::bad_alloc.
    void assign(std::span<const double> numbers) {
        numbers_ = numbers;
        const std::size_t blocks = (numbers.size() + kBlock - 1) / kBlock;
        levels_.resize(std::max<std::size_t>(1, std::bit_width(blocks)));
        levels_[0].resize(blocks);
        for (std::size_t i = 0; i < blocks; ++i) {
            levels_[0][i] = scan(i * kBlock, std::min(numbers.size(), (i + 1) * kBlock));
        }
        for (std::size_t level = 1; level < levels_.size(); ++level) {
            const std::size_t half = std::size_t{1} << (level - 1);
            levels_[level].resize(blocks - 2 * half + 1);
            for (std::size_t i = 0; i < levels_[level].size(); ++i) {
                levels_[level][i] = lesser(levels_[level - 1][i], levels_[level - 1][i + half]);
            }
        }
    }

    /// The index of the least number in [begin, end), which is not empty.
    std::size_t find(std::size_t begin, std::size_t end) const {
        const std::size_t first = (begin + kBlock - 1) / kBlock;
        const std::size_t last = end / kBlock;
        if (first >= last) return scan(begin, end);
        const auto level = static_cast<std::size_t>(std::bit_width(last - first) - 1);
        const std::vector<std::uint32_t>& blocks = levels_[level];
        std::size_t best = lesser(blocks[first], blocks[last - (std::size_t{1} << level)]);
        if (begin < first * kBlock) best = lesser(scan(begin, first * kBlock), best);
        if (last * kBlock < end) best = lesser(best, scan(last * kBlock, end));
        return best;
    }

   private:
    static constexpr std::size_t kBlock = 16;

    std::uint32_t lesser(std::size_t left, std::size_t right) const {
        return static_cast<std::uint32_t>(numbers_[right] < numbers_[left] ? right : left);
    }
    std::uint32_t scan(std::size_t begin, std::size_t end) const {
        const auto* const least = std::min_element(numbers_.data() + begin, numbers_.data() + end);
        return static_cast<std::uint32_t>(least - numbers_.data());
    }

    std::span<const double> numbers_;
    std::vector<std::vector<std::uint32_t>> levels_;  ///< by 2^level blocks
};

}  // namespace frostline
