// Uses are gathered by tensor first, in the order of kernels, and then cut into versions.
#include "migration/planning/tensor_versions.h"

#include <algorithm>
#include <cstddef>

namespace frostline {
namespace {

struct Use {
    std::uint32_t kernel = 0;
    bool writes = false;
};

/// The uses of all tensors, those of each together and in the order of kernels.
struct UsesByTensor {
    std::vector<std::size_t> first;  ///< by tensor, and one more for the end
    std::vector<Use> uses;
};

UsesByTensor gather_uses(const Trace& trace) {
    const std::size_t tensors = trace.tensors().size();
    UsesByTensor result;
    result.first.assign(tensors + 1, 0);
    for (KernelIndex kernel = 0; kernel < trace.kernels().size(); ++kernel) {
        for (const TensorIndex tensor : trace.uses(kernel)) ++result.first[tensor + 1];
    }
    for (std::size_t i = 0; i < tensors; ++i) result.first[i + 1] += result.first[i];
    std::vector<std::size_t> next(result.first.begin(), result.first.end() - 1);
    result.uses.resize(result.first.back());
    for (KernelIndex kernel = 0; kernel < trace.kernels().size(); ++kernel) {
        for (const TensorIndex each : trace.reads(kernel)) {
            result.uses[next[each]++] = {.kernel = kernel, .writes = false};
        }
        for (const TensorIndex each : trace.writes(kernel)) {
            result.uses[next[each]++] = {.kernel = kernel, .writes = true};
        }
    }
    return result;
}

/// A tensor that a kernel reads and writes, or names twice, is used by it once.
std::vector<Use> uses_once(std::span<const Use> uses) {
    std::vector<Use> result;
    for (const Use& use : uses) {
        if (!result.empty() && result.back().kernel == use.kernel) {
            result.back().writes |= use.writes;
        } else {
            result.push_back(use);
        }
    }
    return result;
}

/// For a weight, goes on into the next step up to where it repeats: at its first write, if any.
std::vector<Use> one_cycle(const std::vector<Use>& uses, std::uint32_t kernels) {
    auto start = std::find_if(uses.begin(), uses.end(), [](const Use& use) { return use.writes; });
    if (start == uses.end()) start = uses.begin();
    std::vector<Use> result(start, uses.end());
    for (auto each = uses.begin(); each <= start; ++each) {
        result.push_back({.kernel = each->kernel + kernels, .writes = each->writes});
    }
    return result;
}

void cut_into_versions(TensorIndex tensor, const TraceTensor& what, const std::vector<Use>& uses,
                       TensorVersions& result) {
    const bool written =
        std::any_of(uses.begin(), uses.end(), [](const Use& use) { return use.writes; });
    TensorVersion version;
    const auto close = [&] {
        if (version.intervals > 0) result.versions.push_back(version);
    };
    for (std::size_t i = 0; i + 1 < uses.size(); ++i) {
        const Use& from = uses[i];
        const Use& to = uses[i + 1];
        if (from.writes || i == 0) {
            close();
            version = {.tensor = tensor,
                       .size_bytes = what.size_bytes,
                       .first_interval = static_cast<std::uint32_t>(result.intervals.size()),
                       .is_clean = what.is_weight && !written};
        }
        const UseInterval interval{.begin = 2 * from.kernel + 2,
                                   .end = 2 * to.kernel,
                                   .first_out = 2 * from.kernel + (from.writes ? 2U : 1U)};
        result.intervals.push_back(interval);
        const bool wraps = interval.begin <= result.points && interval.end >= result.points;
        if (!wraps && version.wrapping == version.intervals) ++version.wrapping;
        ++version.intervals;
    }
    close();
}

}  // namespace

TensorVersions tensor_versions(const Trace& trace) {
    const auto kernels = static_cast<std::uint32_t>(trace.kernels().size());
    TensorVersions result;
    result.points = 2 * kernels;
    result.used_bytes.assign(kernels, 0);
    // How the sum of the living changes at each kernel's start; unsigned arithmetic wraps back.
    std::vector<std::uint64_t> change(kernels + 1, 0);
    const UsesByTensor all = gather_uses(trace);
    for (TensorIndex tensor = 0; tensor < trace.tensors().size(); ++tensor) {
        const TraceTensor& what = trace.tensors()[tensor];
        const std::size_t first = all.first[tensor];
        const auto uses =
            uses_once(std::span(all.uses).subspan(first, all.first[tensor + 1] - first));
        for (const Use& use : uses) result.used_bytes[use.kernel] += what.size_bytes;
        if (what.is_weight) {
            change[0] += what.size_bytes;
        } else if (!uses.empty()) {
            change[uses.front().kernel] += what.size_bytes;
            change[uses.back().kernel + 1] -= what.size_bytes;
        }
        if (uses.empty()) continue;
        cut_into_versions(tensor, what, what.is_weight ? one_cycle(uses, kernels) : uses, result);
    }
    result.live_bytes.resize(kernels);
    std::uint64_t live = 0;
    for (std::uint32_t kernel = 0; kernel < kernels; ++kernel) {
        result.live_bytes[kernel] = live += change[kernel];
    }
    return result;
}

}  // namespace frostline
