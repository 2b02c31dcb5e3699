// The line is written over itself, and wiped out at the end.
#include "bindings/cli/progress_line.h"

#include <fmt/format.h>

#include <unistd.h>

#include <cstdio>
#include <system_error>
#include <utility>

namespace frostline::cli {
namespace {

constexpr std::chrono::seconds kSilence{1};
constexpr std::chrono::milliseconds kBetween{200};
constexpr const char* kWipe = "\r\x1b[K";

}  // namespace

ProgressLine::ProgressLine() : since_(std::chrono::steady_clock::now()) {
    if (isatty(STDERR_FILENO) == 0) return;
    try {
        shower_ = std::thread([this] { show(); });
    } catch (const std::system_error&) {
        // Without a thread for it there is no line, and the work is done all the same.
    }
}

ProgressLine::~ProgressLine() {
    if (!shower_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        is_over_ = true;
    }
    ended_.notify_all();
    shower_.join();
}

void ProgressLine::begin(std::string what) {
    const std::lock_guard lock(mutex_);
    what_ = std::move(what);
    since_ = std::chrono::steady_clock::now();
}

void ProgressLine::show() {
    std::unique_lock lock(mutex_);
    if (ended_.wait_for(lock, kSilence, [this] { return is_over_; })) return;
    do {
        const std::chrono::duration<double> gone = std::chrono::steady_clock::now() - since_;
        fmt::print(stderr, "{}{}: {:.0f} s", kWipe, what_, gone.count());
        std::fflush(stderr);
    } while (!ended_.wait_for(lock, kBetween, [this] { return is_over_; }));
    fmt::print(stderr, "{}", kWipe);
    std::fflush(stderr);
}

}  // namespace frostline::cli
