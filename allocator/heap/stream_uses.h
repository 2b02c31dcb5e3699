// Which blocks are used by streams other than their own. While a block lives that is a list; once
// it was freed it waits, in the queue of each of those streams, for the epoch in which it was
// freed.
//
// Rule: what a freed block needs was made while it lived, so that freeing needs no memory; and a
// stream's queue is in the order of epochs, so that whoever learns how far the stream has come
// looks at the blocks that wait no longer, and at no others.
#pragma once

#include "allocator/heap/stream_tag.h"
#include "allocator/heap/thread_cache.h"

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace frostline {

/// Not thread-safe: the heap holds its lock. A block goes by its record.
class StreamUses {
   public:
    /// Makes room for the queue of `tag`. May throw std::bad_alloc.
    void admit(StreamTag tag) {
        if (queues_.size() <= tag) queues_.resize(tag + std::size_t{1});
    }

    /// The living block is used by the stream. May throw std::bad_alloc, and nothing has changed.
    void note(AllocationRecord& record, StreamTag tag);

    /// The block was freed, and is in the hands of this object if it has to wait: then the answer
    /// is true. `mark` says for which epoch of a stream: 0 for none, and nothing while the stream
    /// takes no event.
    template <class Mark>
    bool wait(CachedBlock block, Mark&& mark) {
        const auto found = blocks_.find(block.record);
        Block& freed = found->second;
        freed.block = block;
        for (Use& use : freed.uses) {
            use.of = &freed;
            const std::optional<std::uint64_t> epoch = mark(use.tag);
            if (epoch == std::uint64_t{0}) continue;
            ++freed.waits;
            if (epoch.has_value()) {
                append(queues_[use.tag], use, *epoch);
            } else {
                Use*& unmarked = queues_[use.tag].unmarked;
                use.next = std::exchange(unmarked, &use);
            }
        }
        if (freed.waits == 0) {
            blocks_.erase(found);
            return false;
        }
        ++waiting_;
        return true;
    }

    /// How many freed blocks wait.
    std::size_t waiting() const noexcept { return waiting_; }
    /// Whether any waits for this stream; and whether any waits for it to take an event.
    bool wait_for(StreamTag tag) const noexcept {
        return queues_[tag].first != nullptr || queues_[tag].unmarked != nullptr;
    }
    bool unmarked(StreamTag tag) const noexcept { return queues_[tag].unmarked != nullptr; }
    /// The stream took an event that ends `epoch`.
    void marked(StreamTag tag, std::uint64_t epoch) noexcept;

    /// The stream's work is done up to `settled`. Calls `release` with each block that waits for
    /// nobody any longer, and is the caller's.
    template <class Release>
    void settle(StreamTag tag, std::uint64_t settled, Release&& release) {
        while (const Use* const use = queues_[tag].first) {
            if (use->epoch > settled) return;
            queues_[tag].first = use->next;
            Block& freed = *use->of;
            if (--freed.waits > 0) continue;
            --waiting_;
            const CachedBlock block = freed.block;
            blocks_.erase(block.record);
            release(block);
        }
    }

   private:
    struct Block;
    struct Use {
        StreamTag tag = kNoStream;
        std::uint64_t epoch = 0;
        Block* of = nullptr;
        Use* next = nullptr;
    };
    struct Block {
        CachedBlock block;
        std::size_t waits = 0;
        std::vector<Use> uses;  // does not change any more when the block was freed
    };
    struct Queue {
        Use* first = nullptr;
        Use* last = nullptr;  // where `first` is not null
        Use* unmarked = nullptr;
    };

    static void append(Queue& queue, Use& use, std::uint64_t epoch) noexcept {
        use.epoch = epoch;
        use.next = nullptr;
        (queue.first == nullptr ? queue.first : queue.last->next) = &use;
        queue.last = &use;
    }

    std::unordered_map<const AllocationRecord*, Block> blocks_;
    std::vector<Queue> queues_;  // by tag
    std::size_t waiting_ = 0;
};

}  // namespace frostline
