// Reserving, choosing the size of transfers, and keeping them going.
#include "tiers/calibration_streams.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace frostline {
namespace {

constexpr std::uint64_t kMostBufferBytes = std::uint64_t{32} << 20;
constexpr std::uint64_t kProbeBytes = std::uint64_t{64} << 10;

// Some media store zeros, or anything that repeats, faster than other bytes.
void fill(std::span<std::byte> bytes) {
    std::uint64_t state = 0x9E3779B97F4A7C15;
    for (std::size_t i = 0; i + sizeof state <= bytes.size(); i += sizeof state) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        std::memcpy(bytes.data() + i, &state, sizeof state);
    }
}

}  // namespace

Result<std::unique_ptr<CalibrationStreams>> CalibrationStreams::create(const Options& options) {
    std::unique_ptr<CalibrationStreams> streams(new CalibrationStreams(options));
    FROSTLINE_TRY_VOID(streams->prepare());
    return streams;
}

CalibrationStreams::~CalibrationStreams() {
    queue_.reset();
    for (const Extent& piece : pieces_) options_.tier->release(piece);
}

Result<void> CalibrationStreams::prepare() {
    buffer_bytes_ = std::min(options_.piece_bytes * options_.pieces, kMostBufferBytes);
    buffer_.reset(static_cast<std::byte*>(
        ::operator new[](buffer_bytes_, std::align_val_t{kBufferAlignment})));
    // As the DRAM tier's large extents have: a disk is up to three times as fast from and to them.
    (void)::madvise(buffer_.get(), buffer_bytes_, MADV_HUGEPAGE);  // where there are any
    fill({buffer_.get(), buffer_bytes_});
    FROSTLINE_TRY(queue_, options_.tier->open_queue());
    pieces_.reserve(options_.pieces);
    while (pieces_.size() < options_.pieces) {
        const Result<Extent> piece = options_.tier->reserve(options_.piece_bytes);
        // The medium may have less room than the tier was allowed: some will do.
        if (!piece && piece.error().code() == Errc::no_space && !pieces_.empty()) break;
        if (!piece) return piece.error();
        pieces_.push_back(*piece);
    }
    return choose_unit();
}

// One small transfer tells how much can be asked of the medium at once.
Result<void> CalibrationStreams::choose_unit() {
    const std::uint64_t piece = options_.piece_bytes;
    unit_bytes_ = std::min(piece, kProbeBytes);
    const std::uint64_t start = now();
    FROSTLINE_TRY_VOID(call(Transfer::Direction::write, 0, unit_bytes_));
    const std::uint64_t unit_ns = std::max<std::uint64_t>(now() - start, 1);
    const std::uint64_t affordable = std::max<std::uint64_t>(options_.patience_ns / unit_ns, 1);
    for (std::uint64_t units = 2; units <= affordable && 2 * unit_bytes_ <= piece; units *= 2) {
        unit_bytes_ *= 2;
    }
    return ok();
}

std::uint64_t CalibrationStreams::units_in(std::uint64_t limit_bytes) const {
    return std::clamp<std::uint64_t>(limit_bytes / unit_bytes_, 1,
                                     units_per_piece() * pieces_.size());
}

std::span<std::byte> CalibrationStreams::memory_for(std::uint64_t unit) const {
    return {buffer_.get() + unit % (buffer_bytes_ / unit_bytes_) * unit_bytes_, unit_bytes_};
}

// The first `size_bytes` of a unit, and the fence.
Result<void> CalibrationStreams::call(Transfer::Direction direction, std::uint64_t unit,
                                      std::uint64_t size_bytes) {
    Tier& tier = *options_.tier;
    const Extent& piece = piece_of(unit);
    const std::span<std::byte> bytes = memory_for(unit).first(size_bytes);
    if (direction == Transfer::Direction::read) return tier.read(piece, offset_of(unit), bytes);
    FROSTLINE_TRY_VOID(tier.write(piece, offset_of(unit), bytes));
    return tier.fence(piece);
}

Result<std::uint64_t> CalibrationStreams::pass(Transfer::Direction direction,
                                               std::uint64_t limit_bytes, std::uint64_t until_ns) {
    return queue_ ? pass_by_queue(direction, limit_bytes, until_ns)
                  : pass_by_calls(direction, limit_bytes, until_ns);
}

Result<std::uint64_t> CalibrationStreams::pass_by_calls(Transfer::Direction direction,
                                                        std::uint64_t limit_bytes,
                                                        std::uint64_t until_ns) {
    const std::uint64_t units = units_in(limit_bytes);
    std::uint64_t done = 0;
    do {
        FROSTLINE_TRY_VOID(call(direction, done, unit_bytes_));
        ++done;
    } while (done < units && now() < until_ns);
    return done * unit_bytes_;
}

// As many as are allowed in flight, and on a failure none is left behind. Two that are in flight
// may share memory: nobody looks at the bytes.
Result<std::uint64_t> CalibrationStreams::pass_by_queue(Transfer::Direction direction,
                                                        std::uint64_t limit_bytes,
                                                        std::uint64_t until_ns) {
    std::vector<std::size_t> idle;
    for (std::size_t slot = 0; slot < in_flight_; ++slot) idle.push_back(slot);
    std::optional<Error> failure;
    const std::uint64_t start = now();
    std::uint64_t pushed = 0;
    std::uint64_t transfers = 0;
    while (true) {
        const bool more = !failure && pushed < limit_bytes && (pushed == 0 || now() < until_ns);
        if (more && !idle.empty()) {
            const auto size_bytes = push(direction, pushed, idle.back());
            if (!size_bytes) {
                failure = size_bytes.error();
                continue;
            }
            pushed += *size_bytes;
            ++transfers;
            idle.pop_back();
        } else if (idle.size() < in_flight_) {
            const TransferEnd end = queue_->wait();
            if (!end.status) failure = end.status.error();
            idle.push_back(static_cast<std::size_t>(end.tag));
        } else {
            break;
        }
    }
    if (failure) return *failure;
    // One at first: what is in flight when time is up has to be waited for.
    const std::uint64_t took_ns = std::max<std::uint64_t>(now() - start, 1);
    in_flight_ =
        std::clamp<std::uint64_t>(options_.patience_ns * transfers / took_ns, 1, queue_->depth());
    if (direction == Transfer::Direction::write) FROSTLINE_TRY_VOID(options_.tier->fence(pieces_));
    return pushed;
}

// Starts the transfer at `place` of the room; how many bytes it moves.
Result<std::uint64_t> CalibrationStreams::push(Transfer::Direction direction, std::uint64_t place,
                                               std::size_t slot) {
    const Extent& piece = pieces_[place / options_.piece_bytes];
    const std::uint64_t offset = place % options_.piece_bytes;
    std::byte* const own = buffer_.get() + place % buffer_bytes_;
    const TransferPiece next = queue_->next_piece(piece, offset, own);
    std::span<std::byte> memory(own, next.size_bytes);
    if (!next.in_place) {
        FROSTLINE_TRY(const auto staging, queue_->staging(slot));
        memory = staging.first(next.size_bytes);
    }
    queue_->push({direction, piece, offset, memory, slot});
    return next.size_bytes;
}

Result<void> CalibrationStreams::one_page(Transfer::Direction direction, std::size_t turn,
                                          std::uint64_t limit_bytes) {
    // Far from the one before, so that no medium sees it coming.
    return call(direction, turn * 7 % units_in(limit_bytes), kPageBytes);
}

Result<std::uint64_t> CalibrationStreams::write_every_nth_piece(std::size_t first, std::size_t step,
                                                                std::uint64_t until_ns) {
    std::uint64_t done = 0;
    std::size_t piece = first;
    do {
        std::uint64_t unit = piece * units_per_piece();
        const std::uint64_t end = unit + units_per_piece();
        do {
            FROSTLINE_TRY_VOID(
                options_.tier->write(pieces_[piece], offset_of(unit), memory_for(unit)));
            done += unit_bytes_;
        } while (++unit < end && now() < until_ns);
        FROSTLINE_TRY_VOID(options_.tier->fence(pieces_[piece]));
        piece = piece + step < pieces_.size() ? piece + step : first;
    } while (now() < until_ns);
    return done;
}

}  // namespace frostline
