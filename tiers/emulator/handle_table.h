// Handles that are never used twice, not even after a restart: so a handle that was destroyed is
// told from one that never was, and a stale one never names something new. They are numbers and
// not addresses; nobody but the driver may look behind a CUDA handle anyhow.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

namespace frostline::emulator {

enum class HandleState { live, destroyed, unknown };

/// Keeps objects of one type by handle. Not thread-safe: the driver's mutex guards it.
template <class Object>
class HandleTable {
   public:
    /// Every table has its own tag, so that handles of different types are different numbers.
    explicit HandleTable(std::uint16_t tag)
        : first_((std::uint64_t{0xf0} << 56 >> 16) | (std::uint64_t{tag} << 32)), next_(first_) {}

    std::uint64_t add(std::shared_ptr<Object> object) {
        next_ += 16;
        objects_.emplace(next_, std::move(object));
        return next_;
    }

    /// Null unless the handle is live.
    std::shared_ptr<Object> find(std::uint64_t handle) const {
        const auto it = objects_.find(handle);
        return it == objects_.end() ? nullptr : it->second;
    }

    HandleState state(std::uint64_t handle) const {
        if (objects_.contains(handle)) return HandleState::live;
        const bool was = handle > first_ && handle <= next_ && (handle - first_) % 16 == 0;
        return was ? HandleState::destroyed : HandleState::unknown;
    }

    bool remove(std::uint64_t handle) { return objects_.erase(handle) != 0; }
    void clear() { objects_.clear(); }
    /// In the order in which they were made.
    const std::map<std::uint64_t, std::shared_ptr<Object>>& all() const { return objects_; }

   private:
    std::uint64_t first_;
    std::uint64_t next_;
    std::map<std::uint64_t, std::shared_ptr<Object>> objects_;
};

}  // namespace frostline::emulator
