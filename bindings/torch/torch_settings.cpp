// A chunk is a power of two, because the driver's granularity is one and chunks are whole multiples
// of it; the heap needs a span of slots in each.
#include "bindings/torch/torch_settings.h"

#include "bindings/byte_size.h"

#include <bit>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>

#include <unistd.h>

namespace frostline {
namespace {

constexpr std::uint64_t kLeastChunkBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kMostChunkBytes = std::uint64_t{1} << 30;

constexpr std::string_view kPrefix = "FROSTLINE_TORCH_";
constexpr const char* kBudgetVariable = "FROSTLINE_TORCH_BUDGET";
constexpr const char* kChunkVariable = "FROSTLINE_TORCH_CHUNK";

// A text, and what whoever gave it calls it.
struct Given {
    const char* name;
    const char* text;

    bool says_something() const noexcept { return text != nullptr && *text != '\0'; }
};

Result<void> read_size(Given given, std::uint64_t& size_bytes) {
    if (!given.says_something()) return ok();
    const Result<std::uint64_t> size = parse_byte_size(given.text);
    if (!size) {
        return Error(Errc::invalid_argument, 0, "{}: {}", given.name, size.error().message());
    }
    size_bytes = *size;
    return ok();
}

Result<TorchSettings> with_given(TorchSettings settings, Given budget, Given chunk) noexcept {
    try {
        FROSTLINE_TRY_VOID(read_size(budget, settings.budget_bytes));
        FROSTLINE_TRY_VOID(read_size(chunk, settings.chunk_bytes));
        if (!std::has_single_bit(settings.chunk_bytes) || settings.chunk_bytes < kLeastChunkBytes ||
            settings.chunk_bytes > kMostChunkBytes) {
            return Error(
                Errc::invalid_argument, 0,
                "{}: '{}' is no chunk: use a power of two from 64KiB to 1GiB, such as 2MiB",
                chunk.name, chunk.text);
        }
        if (settings.budget_bytes < settings.chunk_bytes &&
            (budget.says_something() || settings.budget_bytes != 0)) {
            const std::string bytes = format_byte_size(settings.budget_bytes);
            return Error(Errc::invalid_argument, 0,
                         "{}: '{}' has not one chunk of {}: raise it, or leave it out for all that "
                         "is free",
                         budget.name, budget.says_something() ? budget.text : bytes,
                         format_byte_size(settings.chunk_bytes));
        }
        return settings;
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "reading {} and {}", budget.name, chunk.name);
    }
}

}  // namespace

Result<TorchSettings> with_torch_texts(TorchSettings settings, const char* budget,
                                       const char* chunk) noexcept {
    return with_given(settings, {"budget", budget}, {"chunk", chunk});
}

Result<TorchSettings> torch_settings_from_environment() noexcept {
    for (const char* const* each = environ; *each != nullptr; ++each) {
        const std::string_view entry(*each);
        const std::string_view name = entry.substr(0, entry.find('='));
        if (!name.starts_with(kPrefix) || name == kBudgetVariable || name == kChunkVariable) {
            continue;
        }
        return Error(Errc::invalid_argument, 0, "{} is no setting: there are {} and {}", name,
                     kBudgetVariable, kChunkVariable);
    }
    return with_given({}, {kBudgetVariable, std::getenv(kBudgetVariable)},
                      {kChunkVariable, std::getenv(kChunkVariable)});
}

}  // namespace frostline
