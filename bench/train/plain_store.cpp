// A tensor's handle is its address: it has but one.
#include "bench/train/plain_store.h"

namespace frostline::train {

PlainStore::~PlainStore() {
    for (const auto& [address, size_bytes] : sizes_) device_.release(address);
}

Result<ActivationStore::Allocated> PlainStore::allocate(std::uint64_t size_bytes) {
    auto& free = free_by_size_[size_bytes];
    if (!free.empty()) {
        const DeviceAddress address = free.back();
        free.pop_back();
        return Allocated{address, address};
    }
    FROSTLINE_TRY(const DeviceAddress address, device_.allocate(size_bytes));
    sizes_.emplace(address, size_bytes);
    held_bytes_ += size_bytes;
    // Room for all of this size, so that drop never allocates.
    free.reserve(sizes_.size());
    return Allocated{address, address};
}

std::uint64_t PlainStore::bytes_below(std::uint64_t size_bytes) const noexcept {
    std::uint64_t below = 0;
    for (const auto& [address, size] : sizes_) {
        if (size < size_bytes) below += size;
    }
    return below;
}

void PlainStore::drop(Handle handle) noexcept {
    free_by_size_[sizes_[handle]].push_back(handle);
}

}  // namespace frostline::train
