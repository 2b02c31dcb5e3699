// Every suffix is tried with the smallest prefix that completes it.
#include "allocator/heap/stitch_plan.h"

#include <algorithm>
#include <new>
#include <tuple>

namespace frostline {
namespace {

using Piece = HeapSpace::Piece;

// What the free blocks offer: ends of chunks, starts of chunks, and whole ones.
struct Offer {
    std::vector<Piece> suffixes;
    std::vector<Piece> prefixes;  // the smallest first
    std::vector<Piece> whole;     // one chunk each
};

void add(Offer& offer, HeapBlock& block, std::uint64_t chunk_bytes) {
    std::uint64_t at = block.address;
    if (const std::uint64_t into = at % chunk_bytes; into != 0) {
        const std::uint64_t chunk_end = at - into + chunk_bytes;
        if (block.end() < chunk_end) return;  // neither end of its chunk is free
        offer.suffixes.push_back({&block, at, chunk_end - at});
        at = chunk_end;
    }
    for (; at + chunk_bytes <= block.end(); at += chunk_bytes) {
        offer.whole.push_back({&block, at, chunk_bytes});
    }
    if (at < block.end()) offer.prefixes.push_back({&block, at, block.end() - at});
}

Offer offer_of(const HeapSpace& space, StreamTag tag) {
    Offer offer;
    const auto visit = [&](HeapBlock& block) { add(offer, block, space.chunk_bytes()); };
    space.for_each_free(kNoStream, visit);
    if (tag != kNoStream) space.for_each_free(tag, visit);
    std::stable_sort(offer.prefixes.begin(), offer.prefixes.end(),
                     [](const Piece& a, const Piece& b) { return a.size_bytes < b.size_bytes; });
    return offer;
}

// One way to begin the window, and what follows from it.
struct Choice {
    const Piece* suffix = nullptr;  // null: it begins with a whole chunk
    const Piece* prefix = nullptr;  // null: it ends with a whole chunk, or a part of one
    std::uint64_t whole = 0;
    std::uint64_t left_over = 0;  // of the last chunk

    auto cost() const { return std::make_tuple(whole, left_over); }
};

std::optional<Choice> choose(const Offer& offer, std::uint64_t size_bytes,
                             std::uint64_t chunk_bytes, std::uint64_t whole_chunks) {
    std::optional<Choice> best;
    const auto consider = [&](const Piece* suffix) {
        const std::uint64_t first = suffix == nullptr ? 0 : suffix->size_bytes;
        if (first >= size_bytes) return;  // would fit where it is
        Choice choice{suffix, nullptr, (size_bytes - first) / chunk_bytes, 0};
        if (const std::uint64_t last = (size_bytes - first) % chunk_bytes; last != 0) {
            const auto prefix = std::lower_bound(
                offer.prefixes.begin(), offer.prefixes.end(), last,
                [](const Piece& piece, std::uint64_t size) { return piece.size_bytes < size; });
            if (prefix != offer.prefixes.end()) {
                choice.prefix = &*prefix;
                choice.left_over = prefix->size_bytes - last;
            } else {
                ++choice.whole;
                choice.left_over = chunk_bytes - last;
            }
        }
        if (choice.whole > whole_chunks) return;
        if (!best.has_value() || choice.cost() < best->cost()) best = choice;
    };
    consider(nullptr);
    for (const Piece& suffix : offer.suffixes) consider(&suffix);
    return best;
}

}  // namespace

std::optional<StitchPlan> plan_stitch(const HeapSpace& space, std::uint64_t size_bytes,
                                      StreamTag tag, std::uint64_t more_chunks) noexcept {
    try {
        const std::uint64_t chunk_bytes = space.chunk_bytes();
        const Offer offer = offer_of(space, tag);
        const auto choice =
            choose(offer, size_bytes, chunk_bytes, offer.whole.size() + more_chunks);
        if (!choice.has_value()) return std::nullopt;
        StitchPlan plan;
        std::uint64_t left = size_bytes;
        const auto use = [&](const Piece& piece) {
            const std::uint64_t part = std::min(left, piece.size_bytes);
            plan.pieces.push_back({piece.from, piece.address, part});
            left -= part;
        };
        if (choice->suffix != nullptr) {
            plan.offset_bytes = chunk_bytes - choice->suffix->size_bytes;
            use(*choice->suffix);
        }
        const std::uint64_t present = std::min<std::uint64_t>(choice->whole, offer.whole.size());
        for (std::uint64_t i = 0; i < present; ++i) use(offer.whole[i]);
        if (choice->prefix != nullptr) use(*choice->prefix);
        return plan;
    } catch (const std::bad_alloc&) {
        return std::nullopt;  // then the heap grows instead
    }
}

}  // namespace frostline
