// What one copy or fill does, worked out when it is called: which way it goes, which memory it may
// touch, and whether the caller has to wait. The driver's mutex is held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tiers/emulator/function.h"
#include "tiers/emulator/stream.h"

namespace frostline::emulator {

/// What a function takes an address for; `any`: it asks what lies there.
enum class Expect { host, device, any };

/// One side of a copy. Rows begin `pitch` bytes after each other.
struct CopySide {
    std::uintptr_t address = 0;
    std::size_t pitch = 0;
    Expect expect = Expect::any;
    int device = -1;  ///< that reaches it; -1: the stream's
};

struct CopyShape {
    std::size_t width_bytes = 0;
    std::size_t rows = 1;
};

/// Whether the function is one of those that synchronise with the host, so far as the kinds of
/// memory demand it, or of those that are asynchronous, so far as they allow it.
enum class Waiting { synchronous, asynchronous };

/// Checks, submits and waits as the API's rules of synchronisation say.
CUresult copy(Call& call, const std::shared_ptr<Stream>& stream, CopySide target, CopySide source,
              CopyShape shape, Waiting waiting);

/// A fill with a value of 1, 2 or 4 bytes; shape.width_bytes is a multiple of it.
CUresult fill(Call& call, const std::shared_ptr<Stream>& stream, CopySide target, CopyShape shape,
              std::uint32_t value, std::size_t value_bytes, Waiting waiting);

}  // namespace frostline::emulator
