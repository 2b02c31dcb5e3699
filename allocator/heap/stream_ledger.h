// How far each stream has come, as far as a heap needs to know it. Work of a stream falls into
// epochs, which events divide: memory that was freed in an epoch is free for all once the event at
// that epoch's end has been reached.
//
// A stream that the program is about to destroy is forgotten: one last event ends its work, and the
// driver is never asked about it again. One that turns out to be destroyed already is lost: nothing
// tells how far it has come, and its memory stays with it until the whole device was waited for.
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
    static constexpr std::size_t kMostStreams = std::numeric_limits<StreamTag>::max();

    explicit StreamLedger(Backing& backing) noexcept : backing_(backing) {}

    /// The tag of a stream that is known; kNoStream of another.
    StreamTag find(StreamHandle handle) const noexcept { return find(handle, State::known); }

    /// The stream's tag, given at its first use: a new one, or that of a forgotten stream whose
    /// work is done. Its epochs go on, so that what still names them names the past. Errors:
    /// out_of_memory, no_space (more streams than tags), what the backing has against the stream.
    Result<StreamTag> tag_of(StreamHandle handle) noexcept {
        if (const StreamTag known = find(handle); known != kNoStream) return known;
        FROSTLINE_TRY(const StreamTag tag, vacant());
        if constexpr (JudgesStreams<Backing>) FROSTLINE_TRY_VOID(backing_.admit(handle));
        stream(tag).handle = handle;
        stream(tag).state = State::known;
        return tag;
    }

    /// Tags so far, from 1 on.
    std::size_t count() const noexcept { return streams_.size(); }

    /// The epoch that work queued now belongs to; of a forgotten stream, which gets no more, the
    /// last.
    std::uint64_t epoch(StreamTag tag) const noexcept {
        if (tag == kNoStream) return 0;
        return stream(tag).state == State::forgotten ? ended(tag) : stream(tag).epoch;
    }
    /// The last epoch that an event has ended.
    std::uint64_t ended(StreamTag tag) const noexcept { return stream(tag).epoch - 1; }
    /// The last epoch whose work is known to be done.
    std::uint64_t settled(StreamTag tag) const noexcept {
        return tag == kNoStream ? 0 : stream(tag).settled;
    }

    /// Memory was freed in the stream's present epoch.
    void note_freed(StreamTag tag) noexcept {
        if (tag != kNoStream) stream(tag).freed = stream(tag).epoch;
    }
    /// Whether that is so since the last mark.
    bool freed(StreamTag tag) const noexcept { return stream(tag).freed == stream(tag).epoch; }

    /// Ends the present epoch by an event, if the stream takes one now; that of a forgotten stream
    /// has ended. Errors: busy (it is being captured), not_found (it was destroyed, and is lost),
    /// out_of_memory, the driver's.
    Result<void> mark(StreamTag tag) noexcept {
        Stream& each = stream(tag);
        if (each.state == State::forgotten) return ok();
        if (each.state == State::lost) return destroyed(tag);
        const Result<bool> may = backing_.may_mark(each.handle);
        if (!may) return refused(tag, may.error());
        if (!*may) {
            return Error(Errc::busy, 0,
                         "stream {:#x} is being captured and takes no event: end the capture first",
                         each.handle);
        }
        Result<typename Backing::Event> event = backing_.mark(each.handle);
        if (!event) return refused(tag, event.error());
        try {
            each.marks.push_back(
                {each.epoch, std::make_shared<typename Backing::Event>(*std::move(event))});
        } catch (const std::bad_alloc&) {
            return Error(Errc::out_of_memory, 0, "noting an event of a heap");
        }
        ++each.epoch;
        return ok();
    }

    /// The stream gets no more work that concerns the heap. Errors: as mark(), and then nothing has
    /// changed, but that a destroyed stream is lost.
    Result<void> forget(StreamTag tag) noexcept {
        FROSTLINE_TRY_VOID(mark(tag));
        leave(stream(tag), State::forgotten);
        return ok();
    }

    bool is_lost(StreamTag tag) const noexcept { return stream(tag).state == State::lost; }
    /// A lost stream that had this handle; kNoStream when there is none.
    StreamTag find_lost(StreamHandle handle) const noexcept { return find(handle, State::lost); }
    /// Any lost stream; kNoStream when there is none.
    StreamTag any_lost() const noexcept {
        for (std::size_t i = 0; i < streams_.size(); ++i) {
            if (streams_[i].state == State::lost) return static_cast<StreamTag>(i + 1);
        }
        return kNoStream;
    }
    /// What there is to say of a lost stream.
    Error destroyed(StreamTag tag) const noexcept {
        return Error(Errc::not_found, 0,
                     "stream {:#x} was destroyed while the heap knew it: call forget_stream() with "
                     "it now, and with others before they are destroyed",
                     stream(tag).handle);
    }
    /// All that a lost stream was given is done: whoever says so has waited for the device.
    void end(StreamTag tag) noexcept {
        Stream& each = stream(tag);
        each.state = State::forgotten;
        each.marks.clear();
        each.settled = each.epoch++;
    }

    /// Whether any stream that the heap knows is being captured.
    bool any_captured() noexcept {
        for (const Stream& each : streams_) {
            if (each.state == State::known && !backing_.may_mark(each.handle).value_or(true)) {
                return true;
            }
        }
        return false;
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

    bool may_mark(StreamTag tag) noexcept {
        const Stream& each = stream(tag);
        return each.state == State::known && backing_.may_mark(each.handle).value_or(false);
    }

   private:
    enum class State : std::uint8_t { known, forgotten, lost };
    struct Mark {
        std::uint64_t epoch = 0;
        std::shared_ptr<typename Backing::Event> event;
    };
    struct Stream {
        StreamHandle handle = 0;
        State state = State::forgotten;
        std::uint64_t epoch = 1;
        std::uint64_t settled = 0;
        std::uint64_t freed = 0;
        std::deque<Mark> marks{};
    };

    // The tag of a forgotten stream whose work is done, or a new one.
    Result<StreamTag> vacant() noexcept {
        for (std::size_t i = 0; i < streams_.size(); ++i) {
            const auto tag = static_cast<StreamTag>(i + 1);
            if (streams_[i].state != State::forgotten) continue;
            (void)poll(tag);  // one in trouble keeps its tag
            if (settled(tag) == ended(tag)) return tag;
        }
        if (streams_.size() >= kMostStreams) {
            return Error(Errc::no_space, 0,
                         "a heap knows of at most {} streams: forget those that are destroyed",
                         kMostStreams);
        }
        try {
            streams_.emplace_back();
        } catch (const std::bad_alloc&) {
            return Error(Errc::out_of_memory, 0, "noting a stream of a heap");
        }
        return static_cast<StreamTag>(streams_.size());
    }
    StreamTag find(StreamHandle handle, State state) const noexcept {
        for (std::size_t i = 0; i < streams_.size(); ++i) {
            if (streams_[i].handle == handle && streams_[i].state == state) {
                return static_cast<StreamTag>(i + 1);
            }
        }
        return kNoStream;
    }
    Error refused(StreamTag tag, const Error& error) noexcept {
        if (error.code() != Errc::not_found) return error;
        leave(stream(tag), State::lost);
        return destroyed(tag);
    }
    void leave(Stream& each, State state) noexcept {
        each.state = state;
        if constexpr (JudgesStreams<Backing>) backing_.forget(each.handle);
    }

    Stream& stream(StreamTag tag) noexcept { return streams_[tag - 1U]; }
    const Stream& stream(StreamTag tag) const noexcept { return streams_[tag - 1U]; }
    Backing& backing_;
    std::deque<Stream> streams_;  // never moved, which could fail and lose its marks
};

}  // namespace frostline
