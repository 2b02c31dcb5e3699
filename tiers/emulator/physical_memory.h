// Physical memory without an address: ranges of files that only this process can open. A device's
// memory is one such file; what may be exported to another process is a file of its own, so that
// the importer sees nothing else. Released ranges are reused with their old contents, as on a
// device, until the driver restarts.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

namespace frostline::emulator {

class PhysicalStore;

/// What a CUmemGenericAllocationHandle names, or what stands behind a classic allocation. Gives its
/// room back when the last reference to it goes.
struct PhysicalMemory {
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties{};
    std::size_t bytes = 0;
    int file = -1;
    std::uint64_t offset = 0;
    bool own_file = false;
    unsigned handle_uses = 0;  ///< cuMemCreate and cuMemRetainAllocationHandle
    unsigned mappings = 0;
    PhysicalStore* store = nullptr;    ///< that the range belongs to; null for a file of its own
    std::uint64_t* charged = nullptr;  ///< the device's used bytes; null for host memory

    PhysicalMemory() = default;
    PhysicalMemory(const PhysicalMemory&) = delete;
    PhysicalMemory& operator=(const PhysicalMemory&) = delete;
    ~PhysicalMemory();
    /// Closes a file of its own, in the child of a fork.
    void discard_after_fork();
};

/// One file and which ranges of it are free. Not thread-safe.
class PhysicalStore {
   public:
    PhysicalStore() = default;
    PhysicalStore(const PhysicalStore&) = delete;
    PhysicalStore& operator=(const PhysicalStore&) = delete;
    ~PhysicalStore();

    /// A range of whole pages, the first that fits; grows the file if none does. False if the
    /// system refuses.
    bool take(std::size_t bytes, std::uint64_t& offset);
    void give_back(std::uint64_t offset, std::size_t bytes);
    int file() const { return file_; }
    /// Forgets everything: for the child of a fork, which must not read what was in here.
    void discard();

   private:
    bool open();

    int file_ = -1;
    std::uint64_t end_ = 0;
    std::map<std::uint64_t, std::uint64_t> free_;  ///< offset to bytes, coalesced
};

/// A file in memory of that size, closed on exec and without a name; -1 with errno if refused.
int open_memory_file(std::uint64_t bytes);

}  // namespace frostline::emulator
