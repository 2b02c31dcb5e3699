// Tells who waits at a terminal what goes on, and since when.
//
// Rule: nothing is printed unless standard error is a terminal and the wait is longer than a
// second, and nothing of it stays.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace frostline::cli {

/// Shows itself from its first second to its end, on a thread of its own. For one thread.
class ProgressLine {
   public:
    ProgressLine();
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;
    ~ProgressLine();

    /// What goes on from now, "planning by lru (2 of 7)".
    void begin(std::string what);

   private:
    void show();

    std::mutex mutex_;
    std::condition_variable ended_;
    std::string what_;
    std::chrono::steady_clock::time_point since_;
    bool is_over_ = false;
    std::thread shower_;  // last: it reads the others
};

}  // namespace frostline::cli
