// A chunk is a power of two, because the driver's granularity is one and chunks are whole multiples
// of it; the heap needs a span of slots in each.
#include "bindings/torch/torch_settings.h"

#include "bindings/byte_size.h"

#include <bit>
#include <cstdlib>
#include <new>

namespace frostline {
namespace {

constexpr std::uint64_t kLeastChunkBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kMostChunkBytes = std::uint64_t{1} << 30;

Result<void> read_size(const char* text, std::uint64_t& size_bytes) noexcept {
    if (text == nullptr || *text == '\0') return ok();
    try {
        FROSTLINE_TRY(size_bytes, parse_byte_size(text));
        return ok();
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "reading the size '{}'", text);
    }
}

}  // namespace

Result<TorchSettings> with_torch_texts(TorchSettings settings, const char* budget,
                                       const char* chunk) noexcept {
    FROSTLINE_TRY_VOID(read_size(budget, settings.budget_bytes));
    FROSTLINE_TRY_VOID(read_size(chunk, settings.chunk_bytes));
    if (!std::has_single_bit(settings.chunk_bytes) || settings.chunk_bytes < kLeastChunkBytes ||
        settings.chunk_bytes > kMostChunkBytes) {
        return Error(Errc::invalid_argument, 0,
                     "a chunk of {} bytes: use a power of two from 64 KiB to 1 GiB, such as 2MiB",
                     settings.chunk_bytes);
    }
    if (settings.budget_bytes != 0 && settings.budget_bytes < settings.chunk_bytes) {
        return Error(Errc::invalid_argument, 0,
                     "a budget of {} bytes has not one chunk of {}: raise it, or leave it out",
                     settings.budget_bytes, settings.chunk_bytes);
    }
    return settings;
}

Result<TorchSettings> torch_settings_from_environment() noexcept {
    return with_torch_texts({}, std::getenv("FROSTLINE_TORCH_BUDGET"),
                            std::getenv("FROSTLINE_TORCH_CHUNK"));
}

}  // namespace frostline
