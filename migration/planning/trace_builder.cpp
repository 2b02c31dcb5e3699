// Everything that can fail comes first in each function, and then what cannot.
#include "migration/planning/trace_builder.h"

#include "migration/planning/text_lines.h"

#include <algorithm>
#include <new>
#include <utility>

namespace frostline {
namespace {

constexpr std::size_t kMostPlaces = ~std::uint32_t{0};  // indices have 32 bits, one means none

Error no_memory() {
    return Error(Errc::out_of_memory, 0, "no memory for the trace");
}

// What may run out of memory, in functions that must not throw.
template <class Action>
auto with_memory(Action&& action) noexcept -> decltype(action()) {
    try {
        return action();
    } catch (const std::bad_alloc&) {
        return no_memory();
    }
}

// Room for more, without giving up that vectors grow by a factor.
template <class Value>
void make_room(std::vector<Value>& values, std::size_t more) {
    const std::size_t wanted = values.size() + more;
    if (wanted > values.capacity()) values.reserve(std::max(wanted, 2 * values.capacity()));
}

Result<void> check_word(const char* what, std::string_view word) {
    if (is_plain_word(word)) return ok();
    return Error(Errc::invalid_argument, 0, "the {} is {}, not one word of printable ASCII", what,
                 shown(word));
}

Result<void> check_amount(const char* what, std::uint64_t amount, std::uint64_t room,
                          std::uint64_t most) {
    if (amount == 0) return Error(Errc::invalid_argument, 0, "the {} is 0", what);
    if (amount <= room) return ok();
    return Error(Errc::invalid_argument, 0, "with a {} of {} all of them add up to more than {}",
                 what, amount, most);
}

}  // namespace

std::uint32_t TraceBuilder::index_of_id(std::uint64_t id) const noexcept {
    if (id < trace_.tensors_.size() && trace_.tensors_[id].id == id) {
        return static_cast<std::uint32_t>(id);
    }
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? kNone : found->second;
}

Result<TensorIndex> TraceBuilder::find(std::uint64_t id) const noexcept {
    const std::uint32_t index = index_of_id(id);
    if (index != kNone) return index;
    return Error(Errc::not_found, 0, "no tensor has the id {}", id);
}

std::uint32_t TraceBuilder::name_index(std::string_view name) {
    if (const auto found = by_name_.find(name); found != by_name_.end()) return found->second;
    const auto index = static_cast<std::uint32_t>(trace_.names_.size());
    make_room(trace_.names_, 1);
    std::string copy(name);
    by_name_.emplace(name, index);
    trace_.names_.push_back(std::move(copy));
    return index;
}

Result<TensorIndex> TraceBuilder::add_tensor(std::uint64_t id, std::uint64_t size_bytes,
                                             std::string_view class_name) noexcept {
    return with_memory([&]() -> Result<TensorIndex> {
        FROSTLINE_TRY_VOID(check_word("class", class_name));
        FROSTLINE_TRY_VOID(check_amount("size", size_bytes, kMostBytes - total_bytes_, kMostBytes));
        const std::size_t index = trace_.tensors_.size();
        if (index_of_id(id) != kNone) {
            return Error(Errc::invalid_argument, 0, "tensor {} was there before", id);
        }
        if (index >= kMostPlaces) {
            return Error(Errc::invalid_argument, 0, "there are more than {} tensors", kMostPlaces);
        }
        make_room(trace_.tensors_, 1);
        make_room(notes_, 1);
        TraceTensor tensor{.id = id, .size_bytes = size_bytes};
        tensor.class_name = name_index(class_name);
        tensor.is_weight = class_name == "weight";
        if (id != index) by_id_.emplace(id, static_cast<TensorIndex>(index));
        trace_.tensors_.push_back(tensor);
        notes_.emplace_back();
        total_bytes_ += size_bytes;
        return static_cast<TensorIndex>(index);
    });
}

Result<void> TraceBuilder::check_tensors(std::span<const TensorIndex> tensors) const noexcept {
    for (const TensorIndex tensor : tensors) {
        if (tensor >= trace_.tensors_.size()) {
            return Error(Errc::invalid_argument, 0, "there is no tensor at place {}", tensor);
        }
    }
    return ok();
}

Result<void> TraceBuilder::add_kernel(std::uint64_t duration_ns, std::string_view name,
                                      std::span<const TensorIndex> reads,
                                      std::span<const TensorIndex> writes) noexcept {
    return with_memory([&]() -> Result<void> {
        FROSTLINE_TRY_VOID(check_word("name", name));
        FROSTLINE_TRY_VOID(
            check_amount("duration", duration_ns, kMostNs - trace_.ideal_ns_, kMostNs));
        FROSTLINE_TRY_VOID(check_tensors(reads));
        FROSTLINE_TRY_VOID(check_tensors(writes));
        const std::size_t first_use = trace_.uses_.size();
        if (trace_.kernels_.size() >= kMostPlaces ||
            first_use + reads.size() + writes.size() > kMostPlaces) {
            return Error(Errc::invalid_argument, 0, "there are more than {} kernels or uses",
                         kMostPlaces);
        }
        make_room(trace_.kernels_, 1);
        make_room(trace_.uses_, reads.size() + writes.size());
        TraceKernel kernel{.duration_ns = duration_ns, .name = name_index(name)};
        kernel.first_use = static_cast<std::uint32_t>(first_use);
        kernel.reads = add_uses(reads);
        kernel.writes = add_uses(writes);
        trace_.kernels_.push_back(kernel);
        trace_.ideal_ns_ += duration_ns;
        return ok();
    });
}

// Those of the kernel that comes next, for which there is room; gives how many they are without
// those that are named again.
std::uint32_t TraceBuilder::add_uses(std::span<const TensorIndex> tensors) noexcept {
    const auto kernel = static_cast<KernelIndex>(trace_.kernels_.size());
    const std::size_t before = trace_.uses_.size();
    ++mark_;
    for (const TensorIndex index : tensors) {
        if (std::exchange(notes_[index].mark, mark_) == mark_) continue;
        trace_.uses_.push_back(index);
        TraceTensor& tensor = trace_.tensors_[index];
        if (!tensor.is_used) tensor.first_use = kernel;
        tensor.is_used = true;
        tensor.last_use = kernel;
    }
    return static_cast<std::uint32_t>(trace_.uses_.size() - before);
}

Result<void> TraceBuilder::add_recomputation(TensorIndex tensor, std::uint64_t duration_ns,
                                             std::span<const TensorIndex> reads) noexcept {
    return with_memory([&]() -> Result<void> {
        FROSTLINE_TRY_VOID(check_amount("duration", duration_ns, kMostNs, kMostNs));
        FROSTLINE_TRY_VOID(check_tensors({&tensor, 1}));
        FROSTLINE_TRY_VOID(check_tensors(reads));
        const std::uint64_t id = trace_.tensors_[tensor].id;
        if (notes_[tensor].recomputation != kNone) {
            return Error(Errc::invalid_argument, 0, "tensor {} has a recomputation already", id);
        }
        if (needs(reads, tensor)) {
            return Error(Errc::invalid_argument, 0,
                         "tensor {} would be recomputed, in the end, from itself", id);
        }
        make_room(trace_.recomputations_, 1);
        Recomputation added{.tensor = tensor, .duration_ns = duration_ns};
        added.reads.reserve(reads.size());
        ++mark_;
        for (const TensorIndex read : reads) {
            if (std::exchange(notes_[read].mark, mark_) == mark_) continue;
            added.reads.push_back(read);
            notes_[read].is_recomputed_from = true;
        }
        notes_[tensor].recomputation = static_cast<std::uint32_t>(trace_.recomputations_.size());
        trace_.recomputations_.push_back(std::move(added));
        return ok();
    });
}

// Whether one of `reads` is `tensor`, or is recomputed from it, over any number of recomputations.
bool TraceBuilder::needs(std::span<const TensorIndex> reads, TensorIndex tensor) {
    if (std::find(reads.begin(), reads.end(), tensor) != reads.end()) return true;
    if (!notes_[tensor].is_recomputed_from) return false;
    std::vector<TensorIndex> to_visit(reads.begin(), reads.end());
    ++mark_;
    while (!to_visit.empty()) {
        const TensorIndex next = to_visit.back();
        to_visit.pop_back();
        if (next == tensor) return true;
        if (std::exchange(notes_[next].mark, mark_) == mark_) continue;
        if (notes_[next].recomputation == kNone) continue;
        const auto& more = trace_.recomputations_[notes_[next].recomputation].reads;
        to_visit.insert(to_visit.end(), more.begin(), more.end());
    }
    return false;
}

Result<Trace> TraceBuilder::finish() noexcept {
    if (trace_.kernels_.empty()) {
        return Error(Errc::invalid_argument, 0, "there are no kernels");
    }
    Trace trace = std::move(trace_);
    *this = TraceBuilder();
    return trace;
}

}  // namespace frostline
