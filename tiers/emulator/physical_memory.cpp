// Ranges of files in memory. What the system refuses is told to the caller; a range that is given
// back is merged with its neighbours.
#include "tiers/emulator/physical_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <iterator>

namespace frostline::emulator {

int open_memory_file(std::uint64_t bytes) {
    const int file = ::memfd_create("frostline-emulated-memory", MFD_CLOEXEC);
    if (file < 0) return -1;
    if (::ftruncate(file, static_cast<off_t>(bytes)) != 0) {
        ::close(file);
        return -1;
    }
    return file;
}

PhysicalMemory::~PhysicalMemory() {
    if (own_file) {
        ::close(file);
    } else if (store != nullptr) {
        store->give_back(offset, bytes);
    }
    if (charged != nullptr) *charged -= bytes;
}

void PhysicalMemory::discard_after_fork() {
    if (own_file) ::close(file);
    own_file = false;
    store = nullptr;
}

PhysicalStore::~PhysicalStore() {
    if (file_ >= 0) ::close(file_);
}

bool PhysicalStore::open() {
    file_ = open_memory_file(0);
    return file_ >= 0;
}

bool PhysicalStore::take(std::size_t bytes, std::uint64_t& offset) {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
        if (it->second < bytes) continue;
        offset = it->first;
        const std::uint64_t rest = it->second - bytes;
        free_.erase(it);
        if (rest != 0) free_.emplace(offset + bytes, rest);
        return true;
    }
    if (file_ < 0 && !open()) return false;
    if (::ftruncate(file_, static_cast<off_t>(end_ + bytes)) != 0) return false;
    offset = end_;
    end_ += bytes;
    return true;
}

void PhysicalStore::give_back(std::uint64_t offset, std::size_t bytes) {
    auto [it, added] = free_.emplace(offset, bytes);
    if (const auto next = std::next(it); next != free_.end() && offset + bytes == next->first) {
        it->second += next->second;
        free_.erase(next);
    }
    if (it != free_.begin()) {
        const auto before = std::prev(it);
        if (before->first + before->second == offset) {
            before->second += it->second;
            free_.erase(it);
        }
    }
}

void PhysicalStore::discard() {
    if (file_ >= 0) ::close(file_);
    file_ = -1;
    end_ = 0;
    free_.clear();
}

}  // namespace frostline::emulator
