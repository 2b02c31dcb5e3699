// The C functions over one TorchAllocator. PyTorch names no allocator when it calls, so there is
// one for the process; it is never destroyed, because tensors outlive every static object.
#include "frostline/torch.h"

#include "bindings/c/call_status.h"
#include "bindings/torch/torch_allocator.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <new>
#include <utility>

#include <sys/types.h>

using frostline::Errc;
using frostline::Error;
using frostline::fail;
using frostline::Result;
using frostline::TorchAllocator;
using frostline::TorchDevice;

namespace {

using OutOfMemoryHandler = void (*)(const char*);

TorchAllocator& allocator() {
    static auto* const only = new TorchAllocator;
    return *only;
}

std::atomic<OutOfMemoryHandler> out_of_memory_handler{nullptr};

class OutOfDeviceMemory : public std::bad_alloc {
   public:
    explicit OutOfDeviceMemory(const char* message) noexcept {
        fmt::format_to_n(message_.data(), message_.size() - 1, "{}", message);
    }
    const char* what() const noexcept override { return message_.data(); }

   private:
    std::array<char, 1024> message_{};
};

// Where PyTorch takes no error. A forked child cannot use the GPU, and frees what it inherited:
// nothing is wrong with that.
void report(const Result<void>& result) noexcept {
    if (result) return;
    (void)fail(result.error());
    if (result.error().code() == Errc::busy) return;
    std::fprintf(stderr, "frostline: %s\n", result.error().message());
}

// PyTorch's programs look for these first words.
void tell_out_of_memory(std::int64_t size_bytes, int device, const Error& error) {
    const OutOfMemoryHandler handler = out_of_memory_handler.load();
    if (handler == nullptr) return;
    std::array<char, 1024> message{};
    constexpr double kMiB = 1 << 20;
    fmt::format_to_n(message.data(), message.size() - 1,
                     "{}Tried to allocate {:.2f} MiB on GPU {}: {}",
                     error.code() == Errc::no_space ? "CUDA out of memory. " : "",
                     static_cast<double>(size_bytes) / kMiB, device, error.message());
    handler(message.data());
}

template <class Use>
frostline_status with_device(int device, Use&& use) noexcept {
    const auto found = allocator().used(device);
    if (!found) return fail(found.error());
    if (*found != nullptr) use(**found);
    return FROSTLINE_OK;
}

}  // namespace

frostline_status frostline_torch_configure(const char* budget, const char* chunk) {
    const auto configured = allocator().configure(budget, chunk);
    return configured ? FROSTLINE_OK : fail(configured.error());
}

void frostline_torch_on_out_of_memory(void (*handler)(const char* message)) {
    out_of_memory_handler.store(handler);
}

void frostline_torch_throw_out_of_memory(const char* message) {
    throw OutOfDeviceMemory(message);
}

void* frostline_torch_alloc(ssize_t size, int device, CUstream stream) {
    const auto block = allocator().allocate(size, device, stream);
    if (block) return *block;
    (void)fail(block.error());
    tell_out_of_memory(size, device, block.error());
    return nullptr;
}

void frostline_torch_free(void* block, size_t size, int device, CUstream /*stream*/) {
    report(allocator().free(block, size, device));
}

void frostline_torch_init(int device_count) {
    // PyTorch says 0 before it knows how many there are.
    if (device_count > 0) report(allocator().start());
}

void frostline_torch_reset(void) {
    allocator().trim();
}

void frostline_torch_memory_fraction(double fraction, int device) {
    const auto found = allocator().device(device);
    report(found ? (*found)->set_memory_fraction(fraction) : found.error());
}

void* frostline_torch_base_alloc(void* address, size_t* size) {
    if (size != nullptr) *size = 0;
    const TorchDevice* const owner = allocator().owner(address);
    if (owner == nullptr) return address;
    const auto block = owner->block_at(address);
    if (!block) {
        report(block.error());
        return address;
    }
    if (size != nullptr) *size = block->size_bytes;
    return reinterpret_cast<void*>(block->address);
}

void frostline_torch_record_stream(void* block, CUstream stream) {
    TorchDevice* const owner = block == nullptr ? nullptr : allocator().owner(block);
    if (owner != nullptr) report(owner->record_stream(block, stream));
}

void frostline_torch_begin_allocate_to_pool(int device,
                                            std::pair<unsigned long long, unsigned long long> pool,
                                            std::function<bool(CUstream)> filter) {
    const auto found = allocator().device(device);
    report(found ? (*found)->begin_pool(pool, std::move(filter)) : found.error());
}

void frostline_torch_end_allocate_to_pool(int device,
                                          std::pair<unsigned long long, unsigned long long> pool) {
    const auto found = allocator().device(device);
    report(found ? (*found)->end_pool(pool) : found.error());
}

void frostline_torch_release_pool(int device,
                                  std::pair<unsigned long long, unsigned long long> pool) {
    const auto found = allocator().device(device);
    report(found ? (*found)->release_pool(pool) : found.error());
}

frostline_status frostline_torch_get_statistics(int device,
                                                frostline_torch_statistics* statistics) {
    if (statistics == nullptr) return fail(Error(Errc::invalid_argument, 0, "statistics is NULL"));
    *statistics = {};
    const frostline_status status =
        with_device(device, [&](TorchDevice& found) { *statistics = found.statistics(); });
    statistics->foreign_frees = allocator().foreign_frees();
    return status;
}

frostline_status frostline_torch_reset_peaks(int device) {
    return with_device(device, [](TorchDevice& found) { found.reset_peaks(); });
}

frostline_status frostline_torch_reset_accumulated(int device) {
    return with_device(device, [](TorchDevice& found) { found.reset_accumulated(); });
}

size_t frostline_torch_live(int device, frostline_torch_block* blocks, size_t capacity) {
    const auto found = allocator().used(device);
    if (!found || *found == nullptr) return 0;
    try {
        const auto living = (*found)->live();
        for (std::size_t i = 0; i < living.size() && i < capacity; ++i) blocks[i] = living[i];
        return living.size();
    } catch (const std::bad_alloc&) {
        (void)fail(Error(Errc::out_of_memory, 0, "listing the blocks of GPU {}", device));
        return 0;
    }
}
