// Events and the streams that wait for them; both go to captures where one is active. The driver's
// mutex is held.
#pragma once

#include <memory>

#include "tiers/emulator/stream.h"

namespace frostline::emulator {

/// Null after a report if there is no such event; `error` then says what to return.
std::shared_ptr<Event> resolve_event(CUevent handle, CUresult& error);

/// What follows in the stream waits for the event's last record; nothing if there is none.
CUresult stream_wait_event(const std::shared_ptr<Stream>& stream,
                           const std::shared_ptr<Event>& event);

/// Records the event in the stream, in place of its earlier record.
CUresult record_event(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event);

}  // namespace frostline::emulator
