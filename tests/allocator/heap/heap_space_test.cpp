// Proves a space against a naive model of it, one entry for each unit of 512 bytes: where the best
// fit is, what coalesces, how little growth will do, which chunks are idle; and stitched plans
// against all that there are. Small spaces, so that every case of touching edges is met.
#include "allocator/heap/heap_space.h"
#include "allocator/heap/stitch_plan.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace frostline {
namespace {

constexpr std::uint64_t kUnit = HeapSpace::kUnitBytes;
constexpr std::uint64_t kChunkUnits = 4;
constexpr std::uint64_t kChunks = 6;
constexpr std::uint64_t kUnits = kChunkUnits * kChunks;
constexpr std::uint64_t kStart = 1 << 20;
constexpr StreamTag kTags = 3;

// One space, and what each of its units is.
class SpaceAndModel {
   public:
    enum class Is : std::uint8_t { unbacked, free, held };
    struct Unit {
        Is is = Is::unbacked;
        StreamTag tag = kNoStream;
        std::uint64_t epoch = 0;
    };
    using Run = std::pair<std::uint64_t, std::uint64_t>;  // units: from, to

    const bool keeps_runs;  // before the space, which is made with it

    explicit SpaceAndModel(bool whole_runs = false) : keeps_runs(whole_runs) {
        for (StreamTag tag = 1; tag < kTags; ++tag) EXPECT_TRUE(space->admit(tag));
    }

    /// Maximal runs of units for which `belongs` is true.
    template <class Belongs>
    std::vector<Run> runs(Belongs&& belongs) const {
        std::vector<Run> found;
        for (std::uint64_t i = 0; i < kUnits; ++i) {
            if (!belongs(units[i])) continue;
            if (found.empty() || found.back().second != i || seams_.contains(i)) {
                found.emplace_back(i, i);
            }
            found.back().second = i + 1;
        }
        return found;
    }
    std::vector<Run> free_runs(StreamTag tag) const {
        return runs([&](const Unit& unit) { return unit.is == Is::free && unit.tag == tag; });
    }

    /// Where the smallest, lowest run that fits would put it.
    std::optional<std::uint64_t> best_fit(std::uint64_t size, std::uint64_t align, StreamTag tag) {
        std::optional<std::pair<std::uint64_t, std::uint64_t>> best;  // run's size, place
        for (const StreamTag of : {tag, kNoStream}) {
            std::optional<std::pair<std::uint64_t, std::uint64_t>> mine;
            for (const auto& [from, to] : free_runs(of)) {
                const std::uint64_t at = (from + align - 1) / align * align;
                if (at + size > to) continue;
                if (!mine || to - from < mine->first) mine = {to - from, at};
            }
            if (mine && (!best || mine->first < best->first)) best = mine;
        }
        if (!best) return std::nullopt;
        return best->second;
    }

    void take(std::uint64_t size, std::uint64_t align, StreamTag tag) {
        const auto expected = best_fit(size, align, tag);
        HeapBlock* const block = space->take(size * kUnit, align * kUnit, tag);
        ASSERT_EQ(block != nullptr, expected.has_value());
        if (block == nullptr) return;
        ASSERT_EQ(block->address, kStart + *expected * kUnit);
        ASSERT_EQ(block->size_bytes, size * kUnit);
        paint(*expected, size, {Is::held, kNoStream, 0});
        held.push_back(block);
    }
    void give(std::size_t index, StreamTag tag, std::uint64_t epoch) {
        HeapBlock* const block = held[index];
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(index));
        const std::uint64_t at = (block->address - kStart) / kUnit;
        const std::uint64_t size = block->size_bytes / kUnit;
        const HeapBlock* const merged = space->give(*block, tag, epoch);
        paint(at, size, {Is::free, tag, epoch});
        const Run run = level(at);
        ASSERT_EQ(merged->address, kStart + run.first * kUnit);
        ASSERT_EQ(merged->size_bytes, (run.second - run.first) * kUnit);
        ASSERT_EQ(merged->epoch, units[at].epoch);
    }
    void retag(StreamTag from, std::uint64_t epoch, StreamTag to, std::uint64_t new_epoch) {
        bool any = false;
        const std::vector<Run> runs = free_runs(from);
        for (const auto& [first, last] : runs) {
            if (units[first].epoch > epoch) continue;
            any = true;
            paint(first, last - first, {Is::free, to, new_epoch});
        }
        for (const auto& [first, last] : runs) {
            if (units[first].tag == to) level(first);
        }
        ASSERT_EQ(space->retag(from, epoch, to, new_epoch), any);
    }
    /// Where nothing fits yet.
    void grow(std::uint64_t size, std::uint64_t align, StreamTag tag) {
        if (fits(size, align, tag)) return;
        const auto growth = space->plan_growth(size * kUnit, align * kUnit, tag);
        const std::uint64_t fewest = fewest_chunks(size, align, tag);
        ASSERT_EQ(growth.has_value(), fewest <= kChunks) << size << " " << align;
        if (!growth.has_value()) return;
        ASSERT_EQ(growth->chunks, fewest) << size << " " << align;
        ASSERT_TRUE(space->back(*growth, tag));
        const std::uint64_t at = (growth->address - kStart) / kUnit;
        paint(at, growth->chunks * kChunkUnits, {Is::free, tag, 0});
        if (keeps_runs) seams_.insert(at);
        level(at);
        ASSERT_TRUE(fits(size, align, tag));
    }
    void unback(StreamTag tag) {
        std::uint64_t longest = 0;
        for (const auto& [from, to] : free_runs(tag)) longest = std::max(longest, idle(from, to));
        const auto idle = space->largest_idle(tag, UINT64_MAX, nullptr, {});
        ASSERT_EQ(idle.has_value(), longest > 0);
        if (!idle.has_value()) return;
        ASSERT_EQ(idle->chunks, longest);
        HeapBlock* const withdrawn = space->withdraw(*idle);
        ASSERT_NE(withdrawn, nullptr);
        space->unback(*withdrawn);
        const std::uint64_t at = (idle->address - kStart) / kUnit;
        paint(at, longest * kChunkUnits, {});
        seams_.erase(at);
    }
    void compare() {
        space->check();
        std::uint64_t all = 0;
        std::uint64_t chunks = 0;
        for (StreamTag tag = 0; tag < kTags; ++tag) {
            std::set<Run> expected;
            std::uint64_t bytes = 0;
            for (const auto& [from, to] : free_runs(tag)) {
                expected.insert({from, to});
                bytes += (to - from) * kUnit;
                chunks += idle(from, to);
            }
            std::set<Run> seen;
            space->for_each_free(tag, [&](const HeapBlock& block) {
                const std::uint64_t from = (block.address - kStart) / kUnit;
                seen.insert({from, (block.end() - kStart) / kUnit});
                ASSERT_EQ(block.epoch, units[from].epoch);
            });
            ASSERT_EQ(seen, expected);
            ASSERT_EQ(space->free_bytes(tag), bytes);
            all += bytes;
        }
        ASSERT_EQ(space->free_bytes(), all);
        ASSERT_EQ(space->idle_chunks(), chunks);
        std::vector<Run> backed;
        seams_.swap(no_seams_);
        space->for_each_backed([&](std::uint64_t address, std::uint64_t size) {
            const std::uint64_t from = (address - kStart) / kUnit;
            backed.emplace_back(from, from + size / kUnit);
        });
        ASSERT_EQ(backed, runs([](const Unit& unit) { return unit.is != Is::unbacked; }));
        seams_.swap(no_seams_);
        std::size_t count = 0;
        space->for_each_held([&](std::uint64_t, const AllocationRecord&) { ++count; });
        ASSERT_EQ(count, held.size());
    }

    static std::uint64_t whole(std::uint64_t from, std::uint64_t to) {
        const std::uint64_t first = (from + kChunkUnits - 1) / kChunkUnits;
        const std::uint64_t last = to / kChunkUnits;
        return first < last ? last - first : 0;
    }

    /// Chunks that may go: of a run that stays together all, or none.
    std::uint64_t idle(std::uint64_t from, std::uint64_t to) const {
        const bool ends = to == kUnits || units[to].is == Is::unbacked || seams_.contains(to);
        return keeps_runs && !(seams_.contains(from) && ends) ? 0 : whole(from, to);
    }

    std::unique_ptr<RecordArena> records = *RecordArena::create();
    std::unique_ptr<HeapSpace> space =
        *HeapSpace::create({kStart, kUnits* kUnit, kChunkUnits* kUnit, records.get(), keeps_runs});
    std::vector<Unit> units = std::vector<Unit>(kUnits);
    std::vector<HeapBlock*> held;

   private:
    std::set<std::uint64_t> seams_;  // where runs begin, in units
    std::set<std::uint64_t> no_seams_;
    void paint(std::uint64_t at, std::uint64_t size, Unit unit) {
        std::fill_n(units.begin() + static_cast<std::ptrdiff_t>(at), size, unit);
    }
    /// A free run has one epoch, its newest.
    Run level(std::uint64_t inside) {
        for (const Run& run : free_runs(units[inside].tag)) {
            if (inside < run.first || inside >= run.second) continue;
            std::uint64_t newest = 0;
            for (auto i = run.first; i < run.second; ++i) newest = std::max(newest, units[i].epoch);
            for (auto i = run.first; i < run.second; ++i) units[i].epoch = newest;
            return run;
        }
        ADD_FAILURE() << "no free run there";
        return {};
    }
    bool fits(std::uint64_t size, std::uint64_t align, StreamTag tag) {
        for (const auto& [from, to] : free_runs(tag)) {
            if ((from + align - 1) / align * align + size <= to) return true;
        }
        return false;
    }
    /// Tries every run of chunks without memory in one piece; kChunks + 1 where none will do.
    std::uint64_t fewest_chunks(std::uint64_t size, std::uint64_t align, StreamTag tag) {
        std::uint64_t fewest = kChunks + 1;
        if (keeps_runs) {
            for (const auto& [from, to] :
                 runs([](const Unit& unit) { return unit.is == Is::unbacked; })) {
                if ((from + align - 1) / align * align + size > to) continue;
                return (size + kChunkUnits - 1) / kChunkUnits;
            }
            return fewest;
        }
        const std::vector<Unit> before = units;
        for (std::uint64_t first = 0; first < kChunks; ++first) {
            for (std::uint64_t n = 1; first + n <= kChunks && n < fewest; ++n) {
                if (units[(first + n - 1) * kChunkUnits].is != Is::unbacked) break;
                std::vector<Unit> fill = units;
                for (auto i = first * kChunkUnits; i < (first + n) * kChunkUnits; ++i) {
                    fill[i] = {Is::free, tag, 0};
                }
                std::swap(units, fill);
                for (const auto& [from, to] : free_runs(tag)) {
                    const bool has_all =
                        from <= first * kChunkUnits && to >= (first + n) * kChunkUnits;
                    if (!has_all) continue;
                    for (auto at = (from + align - 1) / align * align; at + size <= to;
                         at += align) {
                        const bool uses =
                            at < (first + n) * kChunkUnits && at + size > first * kChunkUnits;
                        if (uses) fewest = std::min(fewest, n);
                    }
                }
                std::swap(units, fill);
            }
        }
        return fewest;
    }
};

TEST(HeapSpace, IsWhatANaiveModelOfItIs) {
    auto random = random_stream(501);
    for (int round = 0; round < 300 && !testing::Test::HasFailure(); ++round) {
        SpaceAndModel both(round % 2 == 1);
        for (int step = 0; step < 300 && !testing::Test::HasFailure(); ++step) {
            const auto tag = static_cast<StreamTag>(between(random, 0, kTags - 1));
            const std::uint64_t size = between(random, 1, between(random, 1, 12));
            const std::uint64_t align = std::uint64_t{1}
                                        << (between(random, 0, 3) == 0 ? between(random, 0, 3) : 0);
            switch (between(random, 0, 9)) {
                case 0:
                    both.grow(size, align, tag);
                    break;
                case 1:
                    both.unback(tag);
                    break;
                case 2: {
                    const auto to = static_cast<StreamTag>((tag + between(random, 1, 2)) % kTags);
                    both.retag(tag, between(random, 0, 6), to, between(random, 0, 6));
                    break;
                }
                case 3:
                case 4:
                case 5:
                case 6:
                    both.take(size, align, tag);
                    break;
                default:
                    if (both.held.empty()) break;
                    both.give(between(random, 0, both.held.size() - 1), tag, between(random, 0, 6));
            }
            both.compare();
        }
    }
}

// The fewest whole chunks, then the least left over, of all ways to begin and to end a window.
std::optional<std::pair<std::uint64_t, std::uint64_t>> best_stitch(const SpaceAndModel& both,
                                                                   std::uint64_t size,
                                                                   StreamTag tag) {
    std::vector<std::uint64_t> suffixes{0};
    std::vector<std::uint64_t> prefixes;
    std::uint64_t whole = 0;
    for (const StreamTag of : std::set<StreamTag>{kNoStream, tag}) {
        for (const auto& [from, to] : both.free_runs(of)) {
            whole += SpaceAndModel::whole(from, to);
            const std::uint64_t first = (from + kChunkUnits - 1) / kChunkUnits * kChunkUnits;
            if (first != from && first <= to) suffixes.push_back(first - from);
            if (first <= to && to % kChunkUnits != 0) prefixes.push_back(to % kChunkUnits);
        }
    }
    std::optional<std::pair<std::uint64_t, std::uint64_t>> best;
    const auto offer = [&](std::uint64_t chunks, std::uint64_t left_over) {
        if (chunks > whole) return;
        const std::pair cost(chunks, left_over);
        if (!best || cost < *best) best = cost;
    };
    for (const std::uint64_t suffix : suffixes) {
        if (suffix >= size) continue;
        const std::uint64_t rest = size - suffix;
        const std::uint64_t up = (rest + kChunkUnits - 1) / kChunkUnits;
        offer(up, up * kChunkUnits - rest);
        for (const std::uint64_t prefix : prefixes) {
            if (prefix >= rest % kChunkUnits && rest % kChunkUnits != 0) {
                offer(rest / kChunkUnits, prefix - rest % kChunkUnits);
            }
        }
    }
    return best;
}

TEST(StitchPlan, UsesUpTheFewestWholeChunksAndThenLeavesTheLeast) {
    auto random = random_stream(502);
    std::size_t found = 0;
    for (int round = 0; round < 1500 && !testing::Test::HasFailure(); ++round) {
        SpaceAndModel both;
        both.grow(between(random, 8, kUnits), 1, kNoStream);
        for (int i = 0; i < 16; ++i) both.take(between(random, 1, 3), 1, 1);
        for (int i = 0; i < 14 && !both.held.empty(); ++i) {
            const auto tag = static_cast<StreamTag>(between(random, 0, 2));
            both.give(between(random, 0, both.held.size() - 1), tag, 1);
        }
        for (std::uint64_t size = 2; size <= kUnits; ++size) {
            const auto expected = best_stitch(both, size, 1);
            const auto plan = plan_stitch(*both.space, size * kUnit, 1);
            ASSERT_EQ(plan.has_value(), expected.has_value()) << size;
            if (!plan) continue;
            ++found;
            std::uint64_t whole = 0;
            std::uint64_t total = 0;
            const HeapSpace::Piece* last = nullptr;
            std::set<std::uint64_t> units;
            for (const HeapSpace::Piece& piece : plan->pieces) {
                ASSERT_GE(piece.address, piece.from->address);
                ASSERT_LE(piece.address + piece.size_bytes, piece.from->end());
                ASSERT_TRUE(piece.from->tag == 1 || piece.from->tag == kNoStream);
                const std::uint64_t chunk = kChunkUnits * kUnit;
                const bool first = total == 0;
                ASSERT_TRUE(first || piece.address % chunk == 0);
                const bool reaches_end = (piece.address + piece.size_bytes) % chunk == 0;
                ASSERT_TRUE(total + piece.size_bytes == size * kUnit || reaches_end);
                ASSERT_LE(piece.address % chunk + piece.size_bytes, chunk);
                ASSERT_TRUE(!first || piece.address % chunk == plan->offset_bytes);
                const std::uint64_t start = piece.address / chunk * chunk;
                if (piece.from->address <= start && piece.from->end() >= start + chunk) ++whole;
                for (auto at = piece.address; at < piece.address + piece.size_bytes; at += kUnit) {
                    ASSERT_TRUE(units.insert(at).second);
                }
                total += piece.size_bytes;
                last = &piece;
            }
            ASSERT_EQ(total, size * kUnit);
            ASSERT_NE(last, nullptr);
            ASSERT_EQ(whole, expected->first) << size;
        }
    }
    EXPECT_GT(found, 1000U);
}

TEST(StitchPlan, SaysHowManyMoreChunksWouldDo) {
    SpaceAndModel both;
    both.grow(8, 1, kNoStream);
    both.take(3, 1, 1);  // leaves one unit of its chunk, and a whole chunk
    for (std::uint64_t more = 0; more < 4; ++more) {
        for (std::uint64_t size = 2; size < 20; ++size) {
            EXPECT_EQ(plan_stitch(*both.space, size * kUnit, 1, more).has_value(),
                      size <= 1 + kChunkUnits * (1 + more))
                << size << " " << more;
        }
    }
}

}  // namespace
}  // namespace frostline
