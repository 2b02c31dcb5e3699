// The files and block devices behind the swap tier, striped into one address space. No file has a
// name, so that none stays behind however the process ends; blocks are allocated before they
// are used, and read as zeros until they are written, so that neither a full disk nor what others
// left on a device can surprise anybody later.
#pragma once

#include "tiers/file_descriptor.h"
#include "tiers/result.h"
#include "tiers/system_calls.h"

#include <cstdint>
#include <string>
#include <vector>

namespace frostline {

/// Not thread-safe where it allocates or punches; place() and descriptor() are.
class SwapFiles {
   public:
    /// Neighbouring stripes lie in neighbouring files.
    static constexpr std::uint64_t kStripeBytes = std::uint64_t{2} << 20;

    struct Options {
        std::vector<std::string> places;  ///< directories, and block devices where allowed
        bool block_devices = false;
        bool direct = true;  ///< with O_DIRECT; false: through the page cache
        const SystemCalls* calls = &SystemCalls::real();
    };

    /// Opens an unnamed file in each directory, and each device exclusively. With `direct`,
    /// Errc::unsupported means that a place does not take O_DIRECT, which its message says.
    /// Other errors: not_found, permission, invalid_argument (a device without leave, not a
    /// directory), busy (a device in use).
    static Result<SwapFiles> open(const Options& options) noexcept;

    /// What all places together can take: of a directory nine tenths of what is free, of a device
    /// everything. The smallest place counts for all, because stripes go to each in turn.
    Result<std::uint64_t> usable_bytes() const;

    /// As many bytes as its devices can give; UINT64_MAX without a device.
    std::uint64_t device_limit_bytes() const noexcept;

    /// Makes a range readable and writable, all zeros. On an error some of it may be allocated.
    Result<void> allocate(std::uint64_t offset, std::uint64_t size_bytes) const;
    /// Gives the blocks of an allocated range back to the file system or the device.
    Result<void> punch(std::uint64_t offset, std::uint64_t size_bytes) const;

    /// Gives all blocks of the unnamed files back; nothing may be read or written any more.
    void empty_files() const noexcept;

    struct Place {
        unsigned file = 0;
        std::uint64_t offset = 0;
        std::uint64_t contiguous_bytes = 0;  ///< from here on in that file
    };
    Place place(std::uint64_t offset) const noexcept;

    /// Whether the first page of each can be written as O_DIRECT wants it: some file systems refuse
    /// that only now. Errors: the system's.
    Result<bool> takes_direct() const;

    bool direct() const noexcept { return direct_; }
    /// A place that lies in memory, so that nothing is saved by going there; empty if none does.
    const std::string& place_in_memory() const noexcept { return place_in_memory_; }
    std::size_t size() const noexcept { return files_.size(); }
    int descriptor(std::size_t file) const noexcept { return files_[file].descriptor.get(); }
    /// The places in words, for messages.
    const std::string& location() const noexcept { return location_; }

   private:
    struct File {
        std::string name;
        FileDescriptor descriptor;
        std::uint64_t device_bytes = 0;  ///< 0: not a device
        dev_t file_system = 0;           ///< that an unnamed file lies on
    };

    // What of a range lies in one file; a length of 0: nothing.
    struct Part {
        off_t start;
        off_t length;
    };

    SwapFiles() = default;
    static Result<File> open_place(const Options& options, const std::string& place);
    static Result<File> open_device(const Options& options, const std::string& place);
    std::uint64_t striped(std::uint64_t smallest_bytes) const noexcept;
    Part part(std::size_t file, std::uint64_t offset, std::uint64_t size_bytes) const noexcept;
    int change_blocks(const File& file, int mode, const Part& part) const noexcept;
    std::uint64_t bytes_before(std::size_t file, std::uint64_t offset) const noexcept;

    const SystemCalls* calls_ = nullptr;
    bool direct_ = false;
    std::vector<File> files_;
    std::string location_;
    std::string place_in_memory_;
};

}  // namespace frostline
