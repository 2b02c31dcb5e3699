// An engine is one thread that carries operations out, one after the other: it takes any of those
// that are ready, at random under the seed, delays it by what the settings say, and performs it as
// late as it can. Engines outlive a restart, idle.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tiers/emulator/operation.h"

namespace frostline::emulator {

class Engine {
   public:
    Engine() = default;
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    /// Gives it an operation that is ready; starts the thread with the first. The driver's mutex
    /// is held, as for stop().
    void add(std::shared_ptr<Operation> operation);

    /// Forgets what it has not begun. The driver's mutex is held.
    void drop_ready() { ready_.clear(); }

    /// Makes the thread end when it is idle; join() then, without the mutex.
    void stop();
    void join();

   private:
    void run();
    void carry_out(std::unique_lock<std::mutex>& lock, Operation& operation);
    /// How long the settings make it take, in ns, jitter included.
    std::uint64_t duration_ns(const Operation& operation) const;
    /// How long before its end it has to begin to copy, so as to be done in time.
    std::uint64_t lead_ns(const Operation& operation) const;
    std::uint64_t schedule(Operation& operation);
    void learn_speed(const Operation& operation, std::uint64_t elapsed_ns);

    std::vector<std::shared_ptr<Operation>> ready_;
    std::condition_variable work_;
    bool stopping_ = false;
    std::thread thread_;
    std::uint64_t free_ns_ = 0;       ///< when its last operation ended, as throttling has it
    double host_bytes_per_ns_ = 4.0;  ///< how fast this thread was seen to copy
};

}  // namespace frostline::emulator
