// Streams without a device, for tests that decide how far each has come. Work has a position in its
// stream; what a position comes after is known as a clock, one position for each stream, so that
// whether one use of memory precedes another is a comparison and needs no luck with timing.
#pragma once

#include "allocator/heap/heap_backing.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

namespace frostline {

/// Not thread-safe: RecordedMemory holds its lock.
class RecordedStreams {
   public:
    using Clock = std::map<StreamHandle, std::uint64_t>;
    struct Event {
        Clock clock;
    };

    /// One more piece of work on the stream.
    void queue(StreamHandle stream) { ++streams_[stream].queued; }
    std::uint64_t queued(StreamHandle stream) { return streams_[stream].queued; }

    /// The device has come to `position` of the stream, and to whatever that had to wait for.
    void reach(StreamHandle stream, std::uint64_t position) {
        Stream& each = streams_[stream];
        const std::uint64_t reached = std::min(position, each.queued);
        if (reached <= each.done) return;
        each.done = reached;
        for (const auto& [other, before] : each.after) reach(other, before);
    }
    void finish(StreamHandle stream) { reach(stream, queued(stream)); }
    void finish_all() {
        for (auto& [handle, stream] : streams_) stream.done = stream.queued;
    }

    void capture(StreamHandle stream, bool begins) {
        if (begins) {
            captured_.insert(stream);
        } else {
            captured_.erase(stream);
        }
    }
    bool captured(StreamHandle stream) const { return captured_.contains(stream); }

    /// What it was given goes on; nobody may name it any more, until another is made with its
    /// handle.
    void destroy(StreamHandle stream) { destroyed_.insert(stream); }
    void make_again(StreamHandle stream) { destroyed_.erase(stream); }
    bool destroyed(StreamHandle stream) const { return destroyed_.contains(stream); }

    bool done(const Clock& uses) const {
        return std::all_of(uses.begin(), uses.end(), [&](const auto& use) {
            const auto stream = streams_.find(use.first);
            return use.second == 0 ||
                   (stream != streams_.end() && stream->second.done >= use.second);
        });
    }
    /// Whether work queued on `stream` from now on comes after all the uses.
    bool precede(const Clock& uses, StreamHandle stream) {
        const Stream& each = streams_[stream];
        return std::all_of(uses.begin(), uses.end(), [&](const auto& use) {
            if (use.first == stream || streams_[use.first].done >= use.second) return true;
            const auto after = each.after.find(use.first);
            return after != each.after.end() && after->second >= use.second;
        });
    }

    Event mark(StreamHandle stream) {
        Event event{streams_[stream].after};
        event.clock[stream] = queued(stream);
        return event;
    }
    bool passed(const Event& event) const { return done(event.clock); }
    void wait(const Event& event) {
        for (const auto& [stream, position] : event.clock) reach(stream, position);
    }
    void order(StreamHandle later, const Event& event) {
        for (const auto& [stream, before] : event.clock) {
            if (stream == later) continue;
            std::uint64_t& after = streams_[later].after[stream];
            after = std::max(after, before);
        }
    }

   private:
    struct Stream {
        std::uint64_t queued = 0;
        std::uint64_t done = 0;
        Clock after;
    };
    std::map<StreamHandle, Stream> streams_;
    std::set<StreamHandle> captured_;
    std::set<StreamHandle> destroyed_;
};

}  // namespace frostline
