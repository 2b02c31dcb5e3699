// A run of bytes of a heap's space. The blocks of a space tile it without gaps, in the order of
// their addresses; no two free blocks of one tag touch.
#pragma once

#include "allocator/heap/allocation_record.h"

#include <boost/intrusive/set.hpp>

#include <cstdint>

namespace frostline {

struct HeapBlock
    : boost::intrusive::set_base_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>,
                                      boost::intrusive::optimize_size<true>> {
    enum class Kind : std::uint8_t {
        unbacked,  ///< addresses without memory
        free,
        held,    ///< an allocation, live or on its way back
        lent,    ///< backs a part of a window; `chain` is the next part
        window,  ///< an allocation at addresses of its own; `chain` is what backs its start
    };

    AllocationRecord record{};
    std::uint64_t address = 0;
    std::uint64_t size_bytes = 0;
    HeapBlock* previous = nullptr;  ///< the neighbours in the space; windows have none
    HeapBlock* next = nullptr;
    HeapBlock* chain = nullptr;
    std::uint64_t epoch = 0;  ///< of the stream `tag`, when it was freed last
    Kind kind = Kind::unbacked;
    StreamTag tag = kNoStream;
    bool begins_run = false;  ///< memory that stays together begins here (HeapSpace::Options)

    std::uint64_t end() const noexcept { return address + size_bytes; }
};
// Two cache lines; at blocks of 1 MiB this is an eighth of a thousandth.
static_assert(sizeof(HeapBlock) <= 128);

}  // namespace frostline
