// What a step asks of the tiers, in the terms in which bounds are proved: which bytes must lie on
// the device when, and between which uses they may be elsewhere.
//
// Rule: points and phases. Kernel k starts at point 2k and ends at point 2k + 1 (before deaths);
// phase p is the time that ends at point p, so phase 2k is the gap before kernel k and phase
// 2k + 1 its run. Points of the next step go on counting from 2n.
#pragma once

#include "migration/planning/trace.h"

#include <cstdint>
#include <span>
#include <vector>

namespace frostline {

/// A tensor between two uses by kernels a < b: it may be absent at the points in
/// [begin, end) = [2a + 2, 2b), and can come back in the phases (begin, end].
struct UseInterval {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    /// The first phase in which it can be copied out: 2a + 1, or 2a + 2 if kernel a writes it.
    std::uint32_t first_out = 0;
};

/// What a tensor holds from one write (or birth) to the next (or death): one copy, made once, is
/// good for every absence until then.
struct TensorVersion {
    TensorIndex tensor = 0;
    std::uint64_t size_bytes = 0;
    std::uint32_t first_interval = 0;  ///< in TensorVersions::intervals
    std::uint32_t intervals = 0;
    /// Never written in a step: the copy exists for ever.
    bool is_clean = false;
    /// The interval, counted from first_interval, that spans the end of the step; if there is
    /// none, `intervals`.
    std::uint32_t wrapping = 0;
};

struct TensorVersions {
    std::uint32_t points = 0;  ///< of one step: twice the kernels
    std::vector<TensorVersion> versions;
    std::vector<UseInterval> intervals;
    std::vector<std::uint64_t> used_bytes;  ///< by kernel: what it needs on the device
    std::vector<std::uint64_t> live_bytes;  ///< by kernel: that, and all that lives meanwhile
};

/// May throw std::bad_alloc. O(uses log kernels).
TensorVersions tensor_versions(const Trace& trace);

}  // namespace frostline
