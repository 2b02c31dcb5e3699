// How far each stream has come, as far as a heap needs to know it. Work of a stream falls into
// epochs, which events divide: memory that was freed in an epoch is free for all once the event at
// that epoch's end has been reached.
#pragma once

#include "allocator/heap/heap_backing.h"
#include "allocator/heap/stream_tag.h"

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <new>
#include <utility>

namespace frostline {

/// Not thread-safe: the heap holds its lock. Tag 0 is no stream, and has no work.
template <HeapBacking Backing>
class StreamLedger {
   public:
    explicit StreamLedger(Backing& backing) noexcept : backing_(backing) {}

    /// The stream's tag, given at its first use. Errors: out_of_memory, no_space (more streams than
    /// tags), what the backing has against the stream.
    Result<StreamTag> tag_of(StreamHandle handle) noexcept {
        for (std::size_t i = 0; i < streams_.size(); ++i) {
            if (streams_[i].handle == handle) return static_cast<StreamTag>(i + 1);
        }
        if (streams_.size() >= std::numeric_limits<StreamTag>::max()) {
            return Error(Errc::no_space, 0, "a heap knows of at most 65535 streams");
        }
        if constexpr (JudgesStreams<Backing>) FROSTLINE_TRY_VOID(backing_.admit(handle));
        try {
            streams_.push_back(Stream{handle});
        } catch (const std::bad_alloc&) {
            return Error(Errc::out_of_memory, 0, "noting a stream of a heap");
        }
        return static_cast<StreamTag>(streams_.size());
    }

    std::size_t count() const noexcept { return streams_.size(); }

    /// The epoch that work queued now belongs to.
    std::uint64_t epoch(StreamTag tag) const noexcept {
        return tag == kNoStream ? 0 : stream(tag).epoch;
    }
    /// The last epoch whose work is known to be done.
    std::uint64_t settled(StreamTag tag) const noexcept {
        return tag == kNoStream ? 0 : stream(tag).settled;
    }

    /// Ends the present epoch by an event, if the stream takes one now. Errors: busy (it is being
    /// captured), out_of_memory, the driver's.
    Result<void> mark(StreamTag tag) noexcept {
        Stream& each = stream(tag);
        if (!backing_.may_mark(each.handle)) {
            return Error(Errc::busy, 0, "a stream that is being captured takes no event");
        }
        FROSTLINE_TRY(auto event, backing_.mark(each.handle));
        try {
            each.marks.push_back(
                {each.epoch, std::make_shared<typename Backing::Event>(std::move(event))});
        } catch (const std::bad_alloc&) {
            return Error(Errc::out_of_memory, 0, "noting an event of a heap");
        }
        ++each.epoch;
        return ok();
    }

    /// Asks how far the stream has come.
    Result<void> poll(StreamTag tag) noexcept {
        Stream& each = stream(tag);
        while (!each.marks.empty()) {
            FROSTLINE_TRY(const bool passed, backing_.passed(*each.marks.front().event));
            if (!passed) break;
            each.settled = each.marks.front().epoch;
            each.marks.pop_front();
        }
        return ok();
    }

    /// The event that the stream reaches last, for Backing::wait(); null when all are settled.
    /// Whoever waits for it holds no lock: what the stream runs may need the heap.
    std::shared_ptr<typename Backing::Event> last_mark(StreamTag tag) const noexcept {
        const Stream& each = stream(tag);
        return each.marks.empty() ? nullptr : each.marks.back().event;
    }

    /// What is queued on `later` from now on runs after `epoch` of `earlier`, which a mark has
    /// ended.
    Result<void> order(StreamTag later, StreamTag earlier, std::uint64_t epoch) noexcept {
        for (Mark& mark : stream(earlier).marks) {
            if (mark.epoch < epoch) continue;
            return backing_.order(stream(later).handle, *mark.event);
        }
        return ok();  // settled already
    }

    bool may_mark(StreamTag tag) noexcept { return backing_.may_mark(stream(tag).handle); }

   private:
    struct Mark {
        std::uint64_t epoch = 0;
        std::shared_ptr<typename Backing::Event> event;
    };
    struct Stream {
        StreamHandle handle = 0;
        std::uint64_t epoch = 1;
        std::uint64_t settled = 0;
        std::deque<Mark> marks{};
    };

    Stream& stream(StreamTag tag) noexcept { return streams_[tag - 1U]; }
    const Stream& stream(StreamTag tag) const noexcept { return streams_[tag - 1U]; }
    Backing& backing_;
    std::deque<Stream> streams_;  // never moved, which could fail and lose its marks
};

}  // namespace frostline
