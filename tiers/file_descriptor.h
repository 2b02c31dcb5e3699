// Owns one open file descriptor and closes it exactly once.
#pragma once

#include "tiers/system_calls.h"

#include <utility>

namespace frostline {

class FileDescriptor {
   public:
    FileDescriptor() = default;
    FileDescriptor(int fd, const SystemCalls& calls) noexcept : fd_(fd), calls_(&calls) {}
    FileDescriptor(FileDescriptor&& other) noexcept
        : fd_(std::exchange(other.fd_, -1)), calls_(other.calls_) {}
    FileDescriptor& operator=(FileDescriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        std::swap(calls_, other.calls_);
        return *this;
    }
    // A failed close loses nothing here: these files hold no data that anybody reads afterwards.
    ~FileDescriptor() {
        if (fd_ >= 0) (void)calls_->close(fd_);
    }

    int get() const noexcept { return fd_; }
    explicit operator bool() const noexcept { return fd_ >= 0; }

   private:
    int fd_ = -1;
    const SystemCalls* calls_ = nullptr;
};

}  // namespace frostline
