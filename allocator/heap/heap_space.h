// Which bytes of a heap's address range are free, held, or have no memory behind them. Best fit
// (smallest size, then lowest address), with immediate coalescing of neighbours of one tag. Decides
// and calls nothing: who owns it puts memory behind addresses and takes it away, and says so here.
#pragma once

#include "allocator/heap/heap_block.h"
#include "allocator/heap/record_arena.h"

#include <boost/intrusive/set.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace frostline {

/// Not thread-safe: the heap holds its lock. What needs a record and gets none leaves the space as
/// it was.
class HeapSpace {
   public:
    /// Sizes and addresses are multiples of this.
    static constexpr std::uint64_t kUnitBytes = 512;

    struct Options {
        std::uint64_t address = 0;  ///< a multiple of chunk_bytes, as is the size
        std::uint64_t size_bytes = 0;
        std::uint64_t chunk_bytes = 0;
        RecordArena* records = nullptr;  ///< outlives the space
        /// What back() was told of at once is a run: no block lies in two, and it leaves whole.
        bool keeps_runs = false;
    };

    /// All of it without memory. Errors: out_of_memory.
    static Result<std::unique_ptr<HeapSpace>> create(const Options& options) noexcept;
    HeapSpace(const HeapSpace&) = delete;
    HeapSpace& operator=(const HeapSpace&) = delete;
    ~HeapSpace();

    /// Makes room for the free blocks of `tag`, which is to be used from now on. False: no memory.
    bool admit(StreamTag tag) noexcept;

    /// A held block of `size_bytes` that stream `tag` may use at once; null when no free block
    /// fits. O(log n), and for alignments beyond kUnitBytes O(n) in the blocks that are too small
    /// only because of them.
    HeapBlock* take(std::uint64_t size_bytes, std::uint64_t alignment_bytes,
                    StreamTag tag) noexcept;
    /// Makes a held or lent block free for `tag`, and returns the free block that it is now part
    /// of. O(log n). Needs no memory.
    HeapBlock* give(HeapBlock& block, StreamTag tag, std::uint64_t epoch) noexcept;

    /// Free blocks of tag `from` whose epoch is at most `epoch` are of tag `to` now, freed in
    /// `new_epoch`. Says whether there were any. Looks at none of them when none can be as old.
    bool retag(StreamTag from, std::uint64_t epoch, StreamTag to, std::uint64_t new_epoch) noexcept;
    /// Bytes that are free for `tag` and no other.
    std::uint64_t free_bytes(StreamTag tag) const noexcept;
    std::uint64_t free_bytes() const noexcept;

    /// Where to put memory so that `size_bytes` fit for `tag`: as few chunks as will do.
    struct Growth {
        HeapBlock* unbacked = nullptr;
        std::uint64_t address = 0;
        std::uint64_t chunks = 0;
    };
    /// Nothing when the addresses are used up.
    std::optional<Growth> plan_growth(std::uint64_t size_bytes, std::uint64_t alignment_bytes,
                                      StreamTag tag) const noexcept;
    /// There is memory at `growth` now: it is free for `tag`. False: no memory for records.
    bool back(const Growth& growth, StreamTag tag) noexcept;

    /// A run of whole free chunks, of any tag.
    struct Idle {
        HeapBlock* block = nullptr;
        std::uint64_t address = 0;
        std::uint64_t chunks = 0;
    };
    /// The largest of at most `at_most` chunks among the free blocks of `tag` that are not next to
    /// `beside`, without the chunks at the addresses `kept`.
    std::optional<Idle> largest_idle(StreamTag tag, std::uint64_t at_most, const HeapBlock* beside,
                                     const std::set<std::uint64_t>& kept) const noexcept;
    /// Whole chunks that are free, of any tag.
    std::uint64_t idle_chunks() const noexcept;
    /// A held block in place of `idle`, whose memory is to be given back. Null: no memory for
    /// records.
    HeapBlock* withdraw(const Idle& idle) noexcept;
    /// The memory of a block that withdraw() gave is gone. Needs no memory.
    void unback(HeapBlock& withdrawn) noexcept;

    /// A part of the free block `from`.
    struct Piece {
        HeapBlock* from = nullptr;
        std::uint64_t address = 0;
        std::uint64_t size_bytes = 0;
    };
    /// Visits what is free of exactly this tag, from the smallest block up.
    template <class Visit>
    void for_each_free(StreamTag tag, Visit&& visit) const {
        for (HeapBlock& block : free_[tag]->tree) visit(block);
    }
    /// Lends [address, address + size) of a free block; `from` stays the block to the left of it if
    /// anything is left there. Null: no memory for records.
    HeapBlock* lend(const Piece& piece) noexcept;

    /// A record for a window, or null.
    HeapBlock* make_window() noexcept;
    void drop_window(HeapBlock& window) noexcept;

    /// Visits the held blocks in the order of their addresses.
    template <class Visit>
    void for_each_held(Visit&& visit) const {
        for (const HeapBlock* block = first_; block != nullptr; block = block->next) {
            if (block->kind == HeapBlock::Kind::held) visit(block->address, block->record);
        }
    }
    /// Visits the runs of chunks that have memory, as long as they are.
    template <class Visit>
    void for_each_backed(Visit&& visit) const {
        for (const HeapBlock* block = first_; block != nullptr; block = block->next) {
            if (block->kind == HeapBlock::Kind::unbacked) continue;
            const std::uint64_t start = block->address;
            while (block->next != nullptr && block->next->kind != HeapBlock::Kind::unbacked) {
                block = block->next;
            }
            visit(start, block->end() - start);
        }
    }

    std::uint64_t chunk_bytes() const noexcept { return chunk_bytes_; }
    std::uint64_t backed_bytes() const noexcept { return backed_bytes_; }
    std::uint64_t whole_chunks(const HeapBlock& block) const noexcept;

    /// Ends the program where a rule of the space is broken. O(n), for tests.
    void check() const;

   private:
    struct BySize {
        bool operator()(const HeapBlock& a, const HeapBlock& b) const noexcept {
            return a.size_bytes != b.size_bytes ? a.size_bytes < b.size_bytes
                                                : a.address < b.address;
        }
    };
    using Tree = boost::intrusive::set<HeapBlock, boost::intrusive::compare<BySize>,
                                       boost::intrusive::constant_time_size<false>>;
    struct ByAddress {
        bool operator()(const HeapBlock& a, const HeapBlock& b) const noexcept {
            return a.address < b.address;
        }
    };
    using Unbacked = boost::intrusive::set<HeapBlock, boost::intrusive::compare<ByAddress>,
                                           boost::intrusive::constant_time_size<false>>;
    struct Free {
        Tree tree;
        std::uint64_t bytes = 0;
        std::uint64_t idle_chunks = 0;
        std::uint64_t oldest_epoch = 0;  // no block is of an older one
    };
    struct Fit {
        HeapBlock* block = nullptr;
        std::uint64_t address = 0;
    };

    explicit HeapSpace(const Options& options) noexcept;
    HeapBlock* make_block() noexcept;
    void drop_block(HeapBlock& block) noexcept;
    void insert(HeapBlock& block) noexcept;
    void remove(HeapBlock& block) noexcept;
    Fit best_fit(std::uint64_t size_bytes, std::uint64_t alignment_bytes, StreamTag tag) noexcept;
    HeapBlock* carve(HeapBlock& block, std::uint64_t address, std::uint64_t size_bytes) noexcept;
    HeapBlock* coalesce(HeapBlock& block) noexcept;
    HeapBlock* cut(HeapBlock& block, std::uint64_t address) noexcept;
    static void absorb_next(HeapBlock& block) noexcept;
    static bool touch(const HeapBlock& left, const HeapBlock& right) noexcept;
    Idle longest_idle(HeapBlock& block, const std::set<std::uint64_t>& kept) const noexcept;

    RecordArena& records_;
    const std::uint64_t chunk_bytes_;
    const bool keeps_runs_;
    HeapBlock* first_ = nullptr;
    std::uint64_t backed_bytes_ = 0;
    std::vector<std::unique_ptr<Free>> free_;  // by tag
    mutable Unbacked unbacked_;                // growth names one of them to be changed
};

}  // namespace frostline
