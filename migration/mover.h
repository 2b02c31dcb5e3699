// Carries moves out, in the order reserve, begin, copy, fence, publish, retire. Whatever fails, the
// old copy stays authoritative, what was reserved is given back, and the failure is reported.
//
// Rule of concurrency. The mover shares the lock of the engine that owns it: functions marked so
// are called with it held. Bytes are copied, and extents backed and released, without it: a driver
// takes long, and a release may call back into the program whose buffer it was. Room that is being
// released is counted in busy(), so that nobody who waits for room gives up too early.
#pragma once

#include "allocator/tensor_table.h"
#include "tiers/copy_engine.h"
#include "tiers/tier.h"

#include <array>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>

namespace frostline {

/// The end of one move.
struct MoveReport {
    TensorId tensor;
    TierId from{};
    TierId to{};
    std::uint64_t size_bytes = 0;
    bool copied = false;           ///< false: a good copy lay there already
    const Error* error = nullptr;  ///< nullptr if the bytes are in place; valid during the call
};

class Mover {
   public:
    struct Options {
        std::span<Tier* const> tiers;  ///< by TierId; outlives the mover
        CopyEngine* copies = nullptr;
        TensorTable* table = nullptr;
        std::mutex* mutex = nullptr;
        std::condition_variable* changed = nullptr;  ///< notified whenever a move or release ends
        bool verify = false;  ///< compute checksums on the way out, compare on the way back
        std::function<void(const MoveReport&)> report;  ///< called with the lock held
    };

    explicit Mover(Options options);
    /// No move may be in flight.
    ~Mover();

    /// Starts moving a tensor to another tier; the end is reported. Where a good copy lies there
    /// already, the move is over when this returns. Errors: busy (pinned, moving), not_found
    /// (released), and the tier's own when it has no room; busy, too, when too many moves that way
    /// wait already. Caller holds the lock through `lock`.
    Result<void> start(TensorRecord& tensor, TierId to, CopyPriority priority,
                       std::unique_lock<std::mutex>& lock);

    /// Makes the tensor's move, if there is one, the most urgent. Caller holds the lock.
    void demand(const TensorRecord& tensor);

    /// Makes the tensor's move, if there is one, end early. Caller holds the lock.
    void cancel(const TensorRecord& tensor);

    /// Gives up a copy that is not home; false if it is, or is being read. Releases the lock while
    /// the extent is given back.
    bool drop_copy(TensorRecord& tensor, TierId tier, std::unique_lock<std::mutex>& lock);

    /// Frees a released tensor that nobody uses, with all its copies. Releases the lock meanwhile.
    void retire(TensorRecord& tensor, std::unique_lock<std::mutex>& lock);

    /// Moves in flight and extents being released. Caller holds the lock.
    std::size_t busy() const noexcept { return moves_.size() + releasing_; }
    /// Bytes of a tier that moves in flight will free. Caller holds the lock.
    std::uint64_t leaving_bytes(TierId tier) const noexcept { return leaving_[index_of(tier)]; }

   private:
    struct Move {
        CopyTicket ticket;
        TierId from{};
        TierId to{};
        Extent target;
    };
    // Extents to give back once the lock is released.
    class Discards {
       public:
        void add(const Extent& extent) noexcept { extents_[count_++] = extent; }
        std::span<const Extent> all() const noexcept { return {extents_.data(), count_}; }

       private:
        std::array<Extent, kMaxTiers + 1> extents_;
        std::size_t count_ = 0;
    };

    /// `room`: where to copy to, if there is a place already.
    Result<void> start_copy(TensorRecord& tensor, TierId from, TierId to, CopyPriority priority,
                            std::optional<Extent> room);
    /// `back_target`: see CopyRequest.
    Result<void> submit(TensorRecord& tensor, TierId from, const Extent& target, bool back_target,
                        CopyPriority priority);
    void take_existing_copy(TensorRecord& tensor, TierId from, TierId to, Discards& discards);
    std::uint64_t charged_in(TierId tier, std::uint64_t size_bytes) const noexcept;
    void finish(TensorRecord& tensor, const CopyOutcome& outcome);
    void settle(TensorRecord& tensor, const Move& move, const CopyOutcome& outcome,
                Discards& discards);
    void settle_home(TensorRecord& tensor, TierId from, TierId to, Discards& discards);
    void discard_copy(TensorRecord& tensor, TierId tier, Discards& discards);
    void discard_all(TensorRecord& tensor, Discards& discards);
    void release(const Discards& discards, std::unique_lock<std::mutex>& lock);

    Options options_;
    std::unordered_map<const TensorRecord*, Move> moves_;
    std::size_t releasing_ = 0;
    std::array<std::uint64_t, kMaxTiers> leaving_{};
};

}  // namespace frostline
