// Reads two small files of /sys/dev/char/MAJOR:MINOR.
#include "tiers/dax_device.h"

#include "tiers/file_descriptor.h"
#include "tiers/page.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/sysmacros.h>

#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <optional>

namespace frostline {
namespace {

// The number that the file holds; nothing if there is no such file.
Result<std::optional<std::uint64_t>> read_number(const std::string& file,
                                                 const SystemCalls& calls) {
    const FileDescriptor opened(calls.open(file.c_str(), O_RDONLY | O_CLOEXEC, 0), calls);
    if (!opened && errno == ENOENT) return std::optional<std::uint64_t>();
    std::array<char, 32> text{};
    const ssize_t length = opened ? calls.pread(opened.get(), text.data(), text.size(), 0) : -1;
    if (length < 0) return system_error(errno, "'{}' cannot be read", file);
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + length, number);
    // A number that a short read cut off has no line's end.
    if (error != std::errc() || end == text.data() + length || *end != '\n') {
        return Error(Errc::io, 0, "'{}' holds no number", file);
    }
    return std::optional(number);
}

}  // namespace

Result<DaxDevice> DaxDevice::find(dev_t number, const std::string& path, const SystemCalls& calls) {
    const std::string folder = fmt::format("/sys/dev/char/{}:{}", major(number), minor(number));
    FROSTLINE_TRY(const auto size, read_number(folder + "/size", calls));
    FROSTLINE_TRY(auto alignment, read_number(folder + "/align", calls));
    if (!alignment) {  // kernels before 5.10 say it of the region
        FROSTLINE_TRY(alignment, read_number(folder + "/device/align", calls));
    }
    if (!size || !alignment) {
        return Error(Errc::invalid_argument, 0,
                     "pmem device '{}': not a regular file or a DAX device", path);
    }
    if (!std::has_single_bit(*alignment) || *alignment < kPageBytes || *size < *alignment) {
        return Error(Errc::io, 0, "pmem device '{}': {} says size {} and alignment {}", path,
                     folder, *size, *alignment);
    }
    return DaxDevice{*size / *alignment * *alignment, *alignment};
}

}  // namespace frostline
