// The chunk loop, and the batch.
#include "tiers/cpu_copies.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

namespace frostline {

CpuCopies::CpuCopies(CopyQueue& queue, std::uint64_t chunk_bytes, const std::atomic<bool>& stopping)
    : queue_(queue), chunk_bytes_(chunk_bytes), stopping_(stopping) {
    batch_.reserve(kBatchCopies);
}

void CpuCopies::run() {
    while (true) {
        CopyRef copy = queue_.take(batch_.empty());
        if (copy == nullptr) {
            if (batch_.empty()) return;
            fence_batch();
            continue;
        }
        do {
            chunk(*copy);
        } while (!copy->all_started() && !queue_.has_more_urgent(copy->priority));
        finish(std::move(copy));
    }
}

bool CpuCopies::step() {
    CopyRef copy = queue_.take(false);
    if (copy == nullptr) return false;
    chunk(*copy);
    finish(std::move(copy));
    fence_batch();
    return true;
}

void CpuCopies::chunk(Copy& copy) noexcept {
    if (!copy.may_go_on(stopping_)) return;
    if (copy.method == CopyMethod::staged && staging_ == nullptr) {
        staging_.reset(new (std::nothrow) std::byte[chunk_bytes_]);
        if (staging_ == nullptr) {
            copy.fail(Error(Errc::out_of_memory, 0, "copy engine: no memory to stage a copy"));
            return;
        }
    }
    const CopyRequest& request = copy.request;
    const std::size_t bytes = std::min(chunk_bytes_, copy.length_bytes() - copy.started_bytes);
    const auto moved = copy_chunk({copy.method, request.source_tier, &request.source,
                                   request.target_tier, &request.target, copy.started_bytes, bytes,
                                   std::span(staging_.get(), staging_ ? chunk_bytes_ : 0)});
    if (!moved) {
        copy.fail(moved.error());
        return;
    }
    if (copy.checksum) copy.checksum->add(copy.started_bytes, *moved);
    copy.started_bytes += bytes;
}

// After its last chunk for now: the copy waits for a fence, has failed, or gives way.
void CpuCopies::finish(CopyRef copy) {
    const CopyRequest& request = copy->request;
    if (!copy->outcome.status) {
        copy->end();
    } else if (copy->all_started()) {
        const bool at_once =
            copy->priority == CopyPriority::demand || !request.target_tier->info().durable;
        batch_bytes_ += copy->length_bytes();
        batch_.push_back(std::move(copy));
        if (at_once || batch_bytes_ >= kBatchBytes || batch_.size() == kBatchCopies) fence_batch();
    } else {
        // Another worker may take it up.
        const Result<void> fenced = request.target_tier->fence(request.target);
        if (!fenced) copy->fail(fenced.error());
        queue_.put_back(std::move(copy));
    }
}

void CpuCopies::fence_batch() {
    if (batch_.empty()) return;
    std::array<Extent, kBatchCopies> targets;
    for (std::size_t i = 0; i < batch_.size(); ++i) targets[i] = batch_[i]->request.target;
    Tier& tier = *batch_.front()->request.target_tier;
    const Result<void> fenced = tier.fence(std::span(targets.data(), batch_.size()));
    // Which of them failed is not known, and a second fence need not fail again.
    for (const CopyRef& copy : batch_) copy->outcome.status = fenced;
    batch_bytes_ = 0;
    // What `done` holds may submit copies, but nothing comes back here: the batch is this thread's.
    for (CopyRef& copy : batch_) std::exchange(copy, nullptr)->end();
    batch_.clear();
}

}  // namespace frostline
