// Forgetting, ending, and what happens after each event. Storing a tensor is in
// migration_engine_store.cpp, using one in migration_engine_use.cpp.
#include "migration/migration_engine.h"

#include "tiers/check.h"

#include <fmt/core.h>

#include <array>
#include <new>
#include <utility>

namespace frostline {

Error MigrationEngine::no_such_tensor(TensorId id) {
    return Error(Errc::not_found, 0, "no tensor {}: it was dropped or never stored", id.packed());
}

// Names no tier as the culprit: one is full because those below it are.
Error MigrationEngine::no_room(std::uint64_t size_bytes, std::string_view where) const noexcept {
    std::array<char, 256> text{};
    char* out = text.data();
    bool dram_seen = false;
    for (const Tier* const tier : options_.tiers) {
        const TierInfo& info = tier->info();
        const bool is_dram = info.kind == TierKind::dram;
        const std::string_view called = is_dram && dram_seen ? "far" : name(info.kind);
        dram_seen |= is_dram;
        const TierUsage usage = tier->usage();
        const auto room = static_cast<std::size_t>(text.data() + text.size() - out);
        out = fmt::format_to_n(out, room, "{}{} {} of {}{}", out == text.data() ? "" : ", ", called,
                               usage.used_bytes, info.capacity_bytes, usage.open ? "" : " (failed)")
                  .out;
    }
    return Error(
        Errc::no_space, 0,
        "no room for {} bytes {}; bytes used: {}; drop or unpin tensors, or raise a budget",
        size_bytes, where,
        std::string_view(text.data(), static_cast<std::size_t>(out - text.data())));
}

Error MigrationEngine::no_room_in_fastest(std::uint64_t size_bytes) const noexcept {
    return no_room(size_bytes, "in the fastest tier");
}

MigrationEngine::MigrationEngine(Options options)
    : options_(std::move(options)),
      mover_({.tiers = options_.tiers,
              .copies = options_.copies,
              .table = &table_,
              .mutex = &mutex_,
              .changed = &changed_,
              .verify = options_.verify,
              .report = [this](const MoveReport& report) { on_move(report); }}),
      window_(options_.tiers[0]->info().capacity_bytes) {}

MigrationEngine::~MigrationEngine() {
    Lock lock(mutex_);
    quiesce(lock);
    while (table_.size() > 0) {
        // The list is const to everybody but its owner; the record is ours to retire.
        auto& tensor = const_cast<TensorRecord&>(table_.by_birth().front());
        for (; tensor.held_pins > 0; --tensor.held_pins) (void)tensor.residency.unpin();
        FROSTLINE_CHECK(tensor.residency.release() != Residency::ReleaseResult::retired_later,
                        "the engine was destroyed while a tensor was pinned");
        mover_.retire(tensor, lock);
    }
}

Result<void> MigrationEngine::drop(TensorId id) {
    Lock lock(mutex_);
    TensorRecord* const tensor = table_.find(id);
    if (tensor == nullptr) return no_such_tensor(id);
    ++stats_.dropped;
    failures_.erase(id.packed());
    lost_.erase(id.packed());
    for (; tensor->held_pins > 0; --tensor->held_pins) {
        FROSTLINE_CHECK(!tensor->residency.unpin(), "a tensor was released under the lock");
    }
    if (tensor->residency.release() == Residency::ReleaseResult::retire) {
        mover_.retire(*tensor, lock);
    } else {
        mover_.cancel(*tensor);
    }
    sample();
    return ok();
}

void MigrationEngine::end_step() {
    const Lock lock(mutex_);
    recorder_.end_step(options_.now_ns());
}

void MigrationEngine::stop() {
    Lock lock(mutex_);
    quiesce(lock);
}

std::size_t MigrationEngine::pins() const {
    const Lock lock(mutex_);
    std::size_t pins = 0;
    for (const TensorRecord& tensor : table_.by_birth()) {
        pins += tensor.residency.load().pins - tensor.held_pins;
    }
    return pins - later_unpins_ - kept_pins_;
}

void MigrationEngine::quiesce(Lock& lock) {
    closed_ = true;
    for (const TensorRecord& tensor : table_.by_birth()) mover_.cancel(tensor);
    changed_.notify_all();
    changed_.wait(lock, [this] { return !busy(); });
}

void MigrationEngine::decide(const PolicyEvent& event, Lock& lock) {
    std::array<TierView, kMaxTiers> tiers;
    for (std::size_t i = 0; i < options_.tiers.size(); ++i) {
        const TierInfo& info = options_.tiers[i]->info();
        const TierUsage usage = options_.tiers[i]->usage();
        tiers[i] = {info.id,
                    info.kind,
                    info.capacity_bytes,
                    usage.used_bytes,
                    mover_.leaving_bytes(info.id),
                    usage.open,
                    info.speed,
                    info.granularity_bytes};
    }
    std::vector<Decision> decisions;
    try {
        options_.policy->decide({table_.by_birth(),
                                 table_.by_use(),
                                 {tiers.data(), options_.tiers.size()},
                                 window_.bytes()},
                                event, decisions);
    } catch (const std::bad_alloc&) {
        // What was decided so far is carried out; the rest is harmless to miss.
    }
    for (const Decision& decision : decisions) {
        if (closed_) return;  // maybe since the last one, which may have released the lock
        carry_out(decision, lock);
    }
    sample();
}

// Decisions are by id, because carrying one out releases the lock for moments.
void MigrationEngine::carry_out(const Decision& decision, Lock& lock) {
    TensorRecord* const tensor = table_.find(decision.tensor);
    if (tensor == nullptr) return;
    if (decision.action == Decision::Action::drop_copy) {
        (void)mover_.drop_copy(*tensor, decision.tier, lock);
        return;
    }
    const CopyPriority priority =
        decision.tier == kFastest ? CopyPriority::prefetch : CopyPriority::eviction;
    Result<void> started = mover_.start(*tensor, decision.tier, priority, lock);
    if (decision.tier == kFastest) return;  // a prefetch that finds no room is merely late
    // The tier that was chosen is full or closed after all: another one takes over.
    for (std::size_t other = 1; !started && other < options_.tiers.size(); ++other) {
        const Errc code = started.error().code();
        if (code != Errc::no_space && code != Errc::closed) return;
        if (other == index_of(decision.tier)) continue;
        TensorRecord* const again = table_.find(decision.tensor);
        if (again == nullptr) return;
        started = mover_.start(*again, static_cast<TierId>(other), priority, lock);
    }
}

void MigrationEngine::on_move(const MoveReport& report) {
    if (report.error != nullptr) {
        if (report.error->code() == Errc::cancelled) return;
        ++stats_.failed_moves;
        if (report.to != kFastest) {
            ++room_failures_;
            room_error_ = *report.error;
        }
        // Nobody will ask any more for one that was dropped meanwhile.
        if (report.to == kFastest && table_.find(report.tensor) != nullptr) {
            try {
                failures_.insert_or_assign(report.tensor.packed(), *report.error);
            } catch (const std::bad_alloc&) {
                // Whoever wants the tensor then tries again by itself, and meets the error again.
            }
        }
        return;
    }
    if (report.to != kFastest) ++evictions_ended_;
    if (!report.copied) {
        ++stats_.free_moves;
    } else {
        ++stats_.moves;
        stats_.moved_out_bytes[index_of(report.from)] += report.size_bytes;
        stats_.moved_in_bytes[index_of(report.to)] += report.size_bytes;
    }
    sample();
}

void MigrationEngine::sample() {
    const std::uint64_t now_ns = options_.now_ns();
    if (!timeline_.due(now_ns)) return;
    UsageTimeline::Sample sample{now_ns, {}};
    for (std::size_t i = 0; i < options_.tiers.size(); ++i) {
        sample.used_bytes[i] = options_.tiers[i]->usage().used_bytes;
    }
    timeline_.add(sample);
}

EngineStats MigrationEngine::stats() const {
    const Lock lock(mutex_);
    EngineStats stats = stats_;
    stats.prefetch_bytes = window_.bytes();
    return stats;
}

std::vector<UsageTimeline::Sample> MigrationEngine::timeline() const {
    const Lock lock(mutex_);
    return timeline_.samples();
}

std::string MigrationEngine::trace() const {
    const Lock lock(mutex_);
    return recorder_.text();
}

}  // namespace frostline
