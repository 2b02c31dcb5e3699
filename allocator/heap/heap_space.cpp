// Every change keeps the tiling: a block is cut in two or joined with a neighbour, and whatever
// needs a record takes it before anything changes.
#include "allocator/heap/heap_space.h"

#include "tiers/check.h"

#include <algorithm>
#include <new>

namespace frostline {
namespace {

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) noexcept {
    return (value + multiple - 1) / multiple * multiple;
}

constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t multiple) noexcept {
    return value / multiple * multiple;
}

// Where a size lies among blocks.
struct SizeOrder {
    bool operator()(const HeapBlock& block, std::uint64_t size_bytes) const noexcept {
        return block.size_bytes < size_bytes;
    }
    bool operator()(std::uint64_t size_bytes, const HeapBlock& block) const noexcept {
        return size_bytes < block.size_bytes;
    }
};

}  // namespace

HeapSpace::HeapSpace(const Options& options) noexcept
    : records_(*options.records),
      chunk_bytes_(options.chunk_bytes),
      keeps_runs_(options.keeps_runs) {}

Result<std::unique_ptr<HeapSpace>> HeapSpace::create(const Options& options) noexcept {
    std::unique_ptr<HeapSpace> space(new (std::nothrow) HeapSpace(options));
    const Error refused(Errc::out_of_memory, 0, "making the first record of a heap");
    if (space == nullptr || !space->admit(kNoStream)) return refused;
    space->first_ = space->make_block();
    if (space->first_ == nullptr) return refused;
    space->first_->address = options.address;
    space->first_->size_bytes = options.size_bytes;
    space->insert(*space->first_);
    return space;
}

HeapSpace::~HeapSpace() {
    for (const std::unique_ptr<Free>& free : free_) free->tree.clear();
    unbacked_.clear();
    for (HeapBlock* block = first_; block != nullptr;) {
        HeapBlock* const next = block->next;
        drop_block(*block);
        block = next;
    }
}

bool HeapSpace::admit(StreamTag tag) noexcept {
    try {
        while (free_.size() <= tag) free_.push_back(std::make_unique<Free>());
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

HeapBlock* HeapSpace::take(std::uint64_t size_bytes, std::uint64_t alignment_bytes,
                           StreamTag tag) noexcept {
    Fit best = best_fit(size_bytes, alignment_bytes, tag);
    if (tag != kNoStream) {
        const Fit of_all = best_fit(size_bytes, alignment_bytes, kNoStream);
        if (best.block == nullptr ||
            (of_all.block != nullptr && of_all.block->size_bytes < best.block->size_bytes)) {
            best = of_all;
        }
    }
    if (best.block == nullptr) return nullptr;
    HeapBlock* const taken = carve(*best.block, best.address, size_bytes);
    if (taken != nullptr) taken->kind = HeapBlock::Kind::held;
    return taken;
}

HeapSpace::Fit HeapSpace::best_fit(std::uint64_t size_bytes, std::uint64_t alignment_bytes,
                                   StreamTag tag) noexcept {
    Tree& tree = free_[tag]->tree;
    for (auto block = tree.lower_bound(size_bytes, SizeOrder()); block != tree.end(); ++block) {
        const std::uint64_t address = round_up(block->address, alignment_bytes);
        if (address + size_bytes <= block->end()) return {&*block, address};
    }
    return {};
}

HeapBlock* HeapSpace::give(HeapBlock& block, StreamTag tag, std::uint64_t epoch) noexcept {
    block.kind = HeapBlock::Kind::free;
    block.tag = tag;
    block.epoch = epoch;
    HeapBlock* const merged = coalesce(block);
    insert(*merged);
    return merged;
}

bool HeapSpace::retag(StreamTag from, std::uint64_t epoch, StreamTag to,
                      std::uint64_t new_epoch) noexcept {
    // What coalesces with a block is of the new tag, so that what is still to be visited stays in
    // the tree of the old one.
    Free& free = *free_[from];
    if (free.bytes == 0 || free.oldest_epoch > epoch) return false;
    bool changed = false;
    std::uint64_t oldest = UINT64_MAX;
    for (auto next = free.tree.begin(); next != free.tree.end();) {
        HeapBlock& block = *next++;
        if (block.epoch > epoch) {
            oldest = std::min(oldest, block.epoch);
            continue;
        }
        remove(block);
        give(block, to, new_epoch);
        changed = true;
    }
    free.oldest_epoch = oldest;
    return changed;
}

std::uint64_t HeapSpace::free_bytes(StreamTag tag) const noexcept {
    return free_[tag]->bytes;
}

std::uint64_t HeapSpace::free_bytes() const noexcept {
    std::uint64_t bytes = 0;
    for (const auto& free : free_) bytes += free->bytes;
    return bytes;
}

std::optional<HeapSpace::Growth> HeapSpace::plan_growth(std::uint64_t size_bytes,
                                                        std::uint64_t alignment_bytes,
                                                        StreamTag tag) const noexcept {
    std::optional<Growth> best;
    for (HeapBlock& block : unbacked_) {
        const auto joins = [&](const HeapBlock* neighbour) {
            return !keeps_runs_ && neighbour != nullptr &&
                   neighbour->kind == HeapBlock::Kind::free && neighbour->tag == tag;
        };
        const std::uint64_t first = joins(block.previous) ? block.previous->address : block.address;
        const std::uint64_t last = joins(block.next) ? block.next->end() : block.end();
        if (last - first < size_bytes) continue;
        const auto consider = [&](std::uint64_t start) {
            const std::uint64_t end = start + size_bytes;
            if (start < first || end > last) return;
            // A start behind this block's own can only come from an alignment beyond a chunk.
            const std::uint64_t from = std::max(block.address, round_down(start, chunk_bytes_));
            const std::uint64_t to = std::min(block.end(), round_up(end, chunk_bytes_));
            if (from >= to) return;
            const std::uint64_t chunks = (to - from) / chunk_bytes_;
            if (!best.has_value() || chunks < best->chunks) best = Growth{&block, from, chunks};
        };
        // Against what is free to the left, or to the right.
        consider(round_up(first, alignment_bytes));
        if (joins(block.next)) consider(round_down(last - size_bytes, alignment_bytes));
    }
    return best;
}

bool HeapSpace::back(const Growth& growth, StreamTag tag) noexcept {
    const std::uint64_t size_bytes = growth.chunks * chunk_bytes_;
    HeapBlock* const backed = carve(*growth.unbacked, growth.address, size_bytes);
    if (backed == nullptr) return false;
    backed_bytes_ += size_bytes;
    backed->begins_run = keeps_runs_;
    give(*backed, tag, 0);
    return true;
}

std::optional<HeapSpace::Idle> HeapSpace::largest_idle(
    StreamTag tag, std::uint64_t at_most, const HeapBlock* beside,
    const std::set<std::uint64_t>& kept) const noexcept {
    std::optional<Idle> best;
    // From the largest block down, until a block is too small to have a longer run.
    Tree& tree = free_[tag]->tree;
    for (auto next = tree.end(); next != tree.begin();) {
        HeapBlock& block = *--next;
        const std::uint64_t most = best.has_value() ? best->chunks : 0;
        if (block.size_bytes <= most * chunk_bytes_) break;
        if (beside != nullptr && (block.next == beside || block.previous == beside)) continue;
        const Idle idle = longest_idle(block, kept);
        if (keeps_runs_ && idle.chunks > at_most) continue;
        if (idle.chunks > most) best = idle;
    }
    if (best.has_value() && best->chunks > at_most) {
        // From its end, so that what is left stays at low addresses.
        best->address += (best->chunks - at_most) * chunk_bytes_;
        best->chunks = at_most;
    }
    return best;
}

HeapSpace::Idle HeapSpace::longest_idle(HeapBlock& block,
                                        const std::set<std::uint64_t>& kept) const noexcept {
    Idle longest{&block, 0, 0};
    const std::uint64_t chunks = whole_chunks(block);
    std::uint64_t from = round_up(block.address, chunk_bytes_);
    const std::uint64_t end = from + chunks * chunk_bytes_;
    while (from < end) {
        const auto obstacle = kept.lower_bound(from);
        const std::uint64_t to = obstacle == kept.end() ? end : std::min(end, *obstacle);
        const std::uint64_t length = (to - from) / chunk_bytes_;
        if (length > longest.chunks) longest = {&block, from, length};
        from = to + chunk_bytes_;
    }
    if (keeps_runs_ && longest.chunks < chunks) longest.chunks = 0;
    return longest;
}

std::uint64_t HeapSpace::idle_chunks() const noexcept {
    std::uint64_t chunks = 0;
    for (const auto& free : free_) chunks += free->idle_chunks;
    return chunks;
}

HeapBlock* HeapSpace::withdraw(const Idle& idle) noexcept {
    HeapBlock* const withdrawn = carve(*idle.block, idle.address, idle.chunks * chunk_bytes_);
    if (withdrawn != nullptr) withdrawn->kind = HeapBlock::Kind::held;
    return withdrawn;
}

void HeapSpace::unback(HeapBlock& withdrawn) noexcept {
    backed_bytes_ -= withdrawn.size_bytes;
    withdrawn.kind = HeapBlock::Kind::unbacked;
    withdrawn.begins_run = false;
    withdrawn.tag = kNoStream;
    insert(*coalesce(withdrawn));
}

HeapBlock* HeapSpace::lend(const Piece& piece) noexcept {
    HeapBlock* const lent = carve(*piece.from, piece.address, piece.size_bytes);
    if (lent != nullptr) lent->kind = HeapBlock::Kind::lent;
    return lent;
}

// Of a block that is free or unbacked; what is left to the left and to the right of the part stays
// that.
HeapBlock* HeapSpace::carve(HeapBlock& block, std::uint64_t address,
                            std::uint64_t size_bytes) noexcept {
    remove(block);
    HeapBlock* part = &block;
    if (address > block.address) part = cut(block, address);
    HeapBlock* rest = nullptr;
    if (part != nullptr && part->size_bytes > size_bytes) {
        rest = cut(*part, address + size_bytes);
        if (rest == nullptr) {
            if (part != &block) absorb_next(block), drop_block(*part);
            part = nullptr;
        }
    }
    if (part != &block) insert(block);
    if (rest != nullptr) insert(*rest);
    return part;
}

HeapBlock* HeapSpace::cut(HeapBlock& block, std::uint64_t address) noexcept {
    HeapBlock* const right = make_block();
    if (right == nullptr) return nullptr;
    right->address = address;
    right->size_bytes = block.end() - address;
    right->kind = block.kind;
    right->tag = block.tag;
    right->epoch = block.epoch;
    right->previous = &block;
    right->next = block.next;
    if (block.next != nullptr) block.next->previous = right;
    block.next = right;
    block.size_bytes = address - block.address;
    return right;
}

// `block` itself is in no tree; what it absorbs is taken out of its own.
HeapBlock* HeapSpace::coalesce(HeapBlock& block) noexcept {
    if (HeapBlock* const next = block.next; next != nullptr && touch(block, *next)) {
        remove(*next);
        absorb_next(block);
        drop_block(*next);
    }
    HeapBlock* const previous = block.previous;
    if (previous == nullptr || !touch(*previous, block)) return &block;
    remove(*previous);
    absorb_next(*previous);
    drop_block(block);
    return previous;
}

// Neighbours that are one block where both are free, or both have no memory.
bool HeapSpace::touch(const HeapBlock& left, const HeapBlock& right) noexcept {
    return left.kind == right.kind && left.tag == right.tag && !right.begins_run;
}

void HeapSpace::absorb_next(HeapBlock& block) noexcept {
    HeapBlock& next = *block.next;
    block.size_bytes += next.size_bytes;
    block.epoch = std::max(block.epoch, next.epoch);
    block.next = next.next;
    if (block.next != nullptr) block.next->previous = &block;
}

void HeapSpace::insert(HeapBlock& block) noexcept {
    if (block.kind == HeapBlock::Kind::unbacked) {
        unbacked_.insert(block);
        return;
    }
    Free& free = *free_[block.tag];
    free.oldest_epoch = free.bytes == 0 ? block.epoch : std::min(free.oldest_epoch, block.epoch);
    free.tree.insert(block);
    free.bytes += block.size_bytes;
    free.idle_chunks += whole_chunks(block);
}

void HeapSpace::remove(HeapBlock& block) noexcept {
    if (block.kind == HeapBlock::Kind::unbacked) {
        unbacked_.erase(unbacked_.iterator_to(block));
        return;
    }
    Free& free = *free_[block.tag];
    free.tree.erase(free.tree.iterator_to(block));
    free.bytes -= block.size_bytes;
    free.idle_chunks -= whole_chunks(block);
}

// Where runs stay together, only a block that is all of one has any. Its ends are ends of a run as
// long as it lives, so that it counts the same when it goes as when it came.
std::uint64_t HeapSpace::whole_chunks(const HeapBlock& block) const noexcept {
    const HeapBlock* const next = block.next;
    const bool ends_run =
        next == nullptr || next->begins_run || next->kind == HeapBlock::Kind::unbacked;
    if (keeps_runs_ && !(block.begins_run && ends_run)) return 0;
    const std::uint64_t from = round_up(block.address, chunk_bytes_);
    const std::uint64_t to = round_down(block.end(), chunk_bytes_);
    return from < to ? (to - from) / chunk_bytes_ : 0;
}

HeapBlock* HeapSpace::make_block() noexcept {
    void* const memory = records_.take(sizeof(HeapBlock));
    if (memory == nullptr) return nullptr;
    // The generation outlives the block, so that an id of an earlier one is told from a new one's.
    const std::uint32_t generation = static_cast<const HeapBlock*>(memory)->record.generation;
    auto* const block = new (memory) HeapBlock;
    block->record.generation = generation;
    return block;
}

void HeapSpace::drop_block(HeapBlock& block) noexcept {
    records_.give(&block, sizeof(HeapBlock));
}

HeapBlock* HeapSpace::make_window() noexcept {
    HeapBlock* const window = make_block();
    if (window != nullptr) window->kind = HeapBlock::Kind::window;
    return window;
}

void HeapSpace::drop_window(HeapBlock& window) noexcept {
    drop_block(window);
}

void HeapSpace::check() const {
    std::vector<Free> seen(free_.size());
    std::uint64_t backed = 0;
    std::size_t unbacked = 0;
    for (const HeapBlock* block = first_; block != nullptr; block = block->next) {
        FROSTLINE_CHECK(block->size_bytes > 0, "an empty block");
        if (block->kind == HeapBlock::Kind::unbacked) {
            ++unbacked;
        } else {
            backed += block->size_bytes;
        }
        if (block->kind == HeapBlock::Kind::free) {
            seen[block->tag].bytes += block->size_bytes;
            seen[block->tag].idle_chunks += whole_chunks(*block);
        }
        if (block->next == nullptr) continue;
        FROSTLINE_CHECK(block->next->previous == block, "blocks that are not linked both ways");
        FROSTLINE_CHECK(block->end() == block->next->address, "a gap between blocks");
        FROSTLINE_CHECK(!touch(*block, *block->next) || block->kind == HeapBlock::Kind::held ||
                            block->kind == HeapBlock::Kind::lent,
                        "neighbours that should be one block");
    }
    FROSTLINE_CHECK(backed == backed_bytes_, "backed bytes");
    FROSTLINE_CHECK(unbacked == unbacked_.size(), "ranges without memory");
    for (std::size_t tag = 0; tag < free_.size(); ++tag) {
        FROSTLINE_CHECK(seen[tag].bytes == free_[tag]->bytes, "free bytes of a tag");
        FROSTLINE_CHECK(seen[tag].idle_chunks == free_[tag]->idle_chunks, "whole free chunks");
    }
}

}  // namespace frostline
