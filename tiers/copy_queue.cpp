// One list for each priority under one lock.
#include "tiers/copy_queue.h"

namespace frostline {

bool CopyQueue::add(CopyRef copy) noexcept {
    const std::lock_guard lock(mutex_);
    List& list = list_of(*copy);
    if (list.size() >= limit_) return false;
    list.push_back(*copy.detach());
    note_most_urgent();
    filled_.notify_one();
    return true;
}

CopyRef CopyQueue::take(bool wait) {
    std::unique_lock lock(mutex_);
    if (wait) filled_.wait(lock, [this] { return closed_ || !empty(); });
    if (empty()) return nullptr;
    List& list = waiting_[most_urgent_.load(std::memory_order_relaxed)];
    CopyRef copy(&list.front(), false);
    list.pop_front();
    note_most_urgent();
    return copy;
}

void CopyQueue::put_back(CopyRef copy) noexcept {
    const std::lock_guard lock(mutex_);
    list_of(*copy).push_front(*copy);
    (void)copy.detach();
    note_most_urgent();
    filled_.notify_one();  // another worker of this direction may be free
}

void CopyQueue::raise(Copy& copy, CopyPriority priority) noexcept {
    const std::lock_guard lock(mutex_);
    if (copy.priority.load(std::memory_order_relaxed) <= priority) return;
    const bool waits = copy.is_linked();
    if (waits) list_of(copy).erase(list_of(copy).iterator_to(copy));
    copy.priority.store(priority, std::memory_order_relaxed);
    if (waits) list_of(copy).push_back(copy);
    note_most_urgent();
}

void CopyQueue::close() noexcept {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    filled_.notify_all();
}

void CopyQueue::note_most_urgent() noexcept {
    std::size_t first = 0;
    while (first < kCopyPriorities && waiting_[first].empty()) ++first;
    most_urgent_.store(first, std::memory_order_relaxed);
}

}  // namespace frostline
