// At most so many threads copy at once; the others wait. Persistent memory is fastest with a few
// writers and slows down with more.
//
// Budget: one atomic exchange to enter and one to leave while there is room. A thread that waits
// says so before it looks again, and one that leaves looks for waiting threads after it made room:
// one of the two sees the other, so nobody waits while there is room.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace frostline {

/// Thread-safe, but for set().
class WriterLimit {
   public:
    /// `writers` = 0: no limit.
    explicit WriterLimit(std::uint32_t writers = 0) noexcept { set(writers); }

    /// Nobody may be copying.
    void set(std::uint32_t writers) noexcept {
        limited_ = writers > 0;
        room_ = writers;
    }

    /// Holds one place; waits for it if there is none.
    class Place {
       public:
        explicit Place(WriterLimit& limit) : limit_(limit) {
            if (limit_.limited_ && !limit_.try_enter()) limit_.wait();
        }
        Place(const Place&) = delete;
        Place& operator=(const Place&) = delete;
        ~Place() {
            if (limit_.limited_) limit_.leave();
        }

       private:
        WriterLimit& limit_;
    };

   private:
    bool try_enter() noexcept {
        std::int64_t room = room_.load();
        while (room > 0) {
            if (room_.compare_exchange_weak(room, room - 1)) return true;
        }
        return false;
    }

    void wait() noexcept {
        std::unique_lock lock(mutex_);
        ++waiting_;
        made_room_.wait(lock, [this] { return try_enter(); });
        --waiting_;
    }

    void leave() noexcept {
        ++room_;
        if (waiting_.load() == 0) return;
        // Not between another thread's last look and its sleep.
        const std::lock_guard lock(mutex_);
        made_room_.notify_one();
    }

    bool limited_ = false;
    std::atomic<std::int64_t> room_{0};
    std::atomic<std::int64_t> waiting_{0};
    std::mutex mutex_;
    std::condition_variable made_room_;
};

}  // namespace frostline
