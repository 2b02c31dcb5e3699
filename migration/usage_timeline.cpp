// Thinning by halves.
#include "migration/usage_timeline.h"

namespace frostline {

void UsageTimeline::add(const Sample& sample) noexcept {
    if (samples_.size() == kMaxSamples) {
        for (std::size_t i = 0; 2 * i < kMaxSamples; ++i) samples_[i] = samples_[2 * i];
        samples_.resize(kMaxSamples / 2);
        interval_ns_ *= 2;
    }
    samples_.push_back(sample);
}

}  // namespace frostline
