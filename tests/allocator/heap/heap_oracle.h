// What a heap must not get wrong, kept outside of it: for every 512 bytes of memory who holds them
// and which work used them last. Memory is named by the chunk behind an address, so that a window
// and its chunks are the same bytes. Every birth, and every removal of memory, is judged by it.
#pragma once

#include "tests/allocator/heap/recorded_backing.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace frostline {

/// Thread-safe; uses the lock of the memory that it watches.
class HeapOracle {
   public:
    using Clock = RecordedStreams::Clock;
    struct Life {
        std::uint64_t size_bytes = 0;
        std::vector<StreamHandle> streams;  // its own first
    };

    /// Without streams, work is done when the block is freed.
    HeapOracle(std::shared_ptr<RecordedMemory> memory, bool has_streams)
        : memory_(std::move(memory)), has_streams_(has_streams) {
        memory_->on_unback = [this](std::uint64_t chunk) {
            for (const Unit& unit : chunks_[chunk]) judge_removal(unit, "memory is taken away");
            chunks_.erase(chunk);
        };
        memory_->on_unmap = [this](std::uint64_t address) {
            judge_removal(windows_[address], "a window is closed");
            windows_.erase(address);
        };
    }
    HeapOracle(const HeapOracle&) = delete;
    HeapOracle& operator=(const HeapOracle&) = delete;
    ~HeapOracle() {
        memory_->on_unback = nullptr;
        memory_->on_unmap = nullptr;
    }

    /// The heap gave it for `stream`, which works on it from now on.
    void birth(std::uint64_t address, std::uint64_t size_bytes, StreamHandle stream,
               std::uint64_t alignment_bytes) {
        const std::lock_guard lock(memory_->mutex);
        if (address % std::max<std::uint64_t>(alignment_bytes, 512) != 0) fault("misaligned");
        lives_[address] = {size_bytes, {stream}};
        live_bytes_ += size_bytes;
        each_unit(address, size_bytes, [&](Unit& unit) {
            if (unit.held) fault("a block over a living one");
            if (unit.uses != nullptr && !memory_->streams.precede(*unit.uses, stream)) {
                fault("memory is used again before its last use");
            }
            unit = {true, nullptr};
        });
        if (has_streams_) memory_->streams.queue(stream);
    }
    void use(std::uint64_t address, StreamHandle stream) {
        const std::lock_guard lock(memory_->mutex);
        lives_.at(address).streams.push_back(stream);
        if (has_streams_) memory_->streams.queue(stream);
    }
    /// It is about to be freed.
    void death(std::uint64_t address) {
        const std::lock_guard lock(memory_->mutex);
        const auto life = lives_.find(address);
        auto uses = std::make_shared<Clock>();
        for (const StreamHandle stream : life->second.streams) {
            for (const auto& [other, position] : memory_->streams.mark(stream).clock) {
                (*uses)[other] = std::max((*uses)[other], position);
            }
        }
        each_unit(address, life->second.size_bytes, [&](Unit& unit) { unit = {false, uses}; });
        live_bytes_ -= life->second.size_bytes;
        lives_.erase(life);
    }

    std::uint64_t live_bytes() const {
        const std::lock_guard lock(memory_->mutex);
        return live_bytes_;
    }
    std::map<std::uint64_t, Life> lives() const {
        const std::lock_guard lock(memory_->mutex);
        return lives_;
    }

   private:
    struct Unit {
        bool held = false;
        std::shared_ptr<const Clock> uses;  // of the last that held it
    };

    void fault(const std::string& what) { memory_->object("oracle: " + what); }
    void judge_removal(const Unit& unit, const std::string& what) {
        if (unit.held) fault(what + " from a living block");
        if (unit.uses != nullptr && !memory_->streams.done(*unit.uses)) {
            fault(what + " under work that uses it");
        }
    }
    template <class Visit>
    void each_unit(std::uint64_t address, std::uint64_t size_bytes, Visit&& visit) {
        const std::uint64_t chunk_bytes = memory_->options().chunk_bytes;
        for (std::uint64_t at = address; at < address + size_bytes;) {
            const auto [chunk, offset] = memory_->memory_at(at);
            std::vector<Unit>& units = chunks_[chunk];
            units.resize(chunk_bytes / 512);
            const std::uint64_t end = std::min(address + size_bytes, at - offset + chunk_bytes);
            for (std::uint64_t i = offset / 512; i < (end - at + offset + 511) / 512; ++i) {
                visit(units[i]);
            }
            // The uses of a window's addresses are its only block's.
            if (at >= memory_->addresses().windows()) {
                windows_[at - offset] = units[offset / 512];
            }
            at = end;
        }
    }

    const std::shared_ptr<RecordedMemory> memory_;
    const bool has_streams_;
    std::map<std::uint64_t, Life> lives_;
    std::map<std::uint64_t, std::vector<Unit>> chunks_;
    std::map<std::uint64_t, Unit> windows_;  // by the address of each chunk
    std::uint64_t live_bytes_ = 0;
};

}  // namespace frostline
