// A living block's uses may still move in memory, and are in no queue.
#include "allocator/heap/stream_uses.h"

#include <algorithm>

namespace frostline {

void StreamUses::note(AllocationRecord& record, StreamTag tag) {
    const auto [found, is_new] = blocks_.try_emplace(&record);
    std::vector<Use>& uses = found->second.uses;
    if (std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return use.tag == tag; })) {
        return;
    }
    try {
        uses.push_back(Use{tag});
    } catch (...) {
        if (is_new) blocks_.erase(found);
        throw;
    }
}

void StreamUses::marked(StreamTag tag, std::uint64_t epoch) noexcept {
    Queue& queue = queues_[tag];
    while (Use* const use = queue.unmarked) {
        queue.unmarked = use->next;
        append(queue, *use, epoch);
    }
}

}  // namespace frostline
