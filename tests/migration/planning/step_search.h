// The shortest time that any schedule of a tiny trace takes, found by trying all of them.
//
// Rule: it shares nothing with the bound that it judges. Time goes in ticks, every tensor has one
// unit, and a unit crosses the one link each way in one tick; so a schedule found here is a legal
// one, and the least time over all schedules is not above it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace frostline {

struct TinyKernel {
    int ticks = 1;
    std::vector<int> reads;
    std::vector<int> writes;
};

struct TinyTrace {
    std::vector<bool> is_weight;  ///< by tensor
    std::vector<TinyKernel> kernels;
};

/// Steps 2 to 5 of a trace with `room` units on the device and enough below.
class StepSearch {
   public:
    StepSearch(const TinyTrace& trace, int room) : trace_(trace), room_(room) {
        for (std::size_t i = 0; i < trace.kernels.size(); ++i) {
            for (const int each : used(trace.kernels[i])) {
                last_[each] = i;
            }
        }
    }

    /// The least ticks from the end of step 1 to that of step 5; nothing if no schedule takes at
    /// most `limit`.
    std::optional<int> ticks(int limit) {
        std::set<State> now;
        add_starts(now, 0, State{0, 0, std::string(trace_.is_weight.size(), kNone)});
        seen_ = now;
        for (int tick = 0; tick <= limit; ++tick) {
            std::set<State> next;
            for (const State& each : now) {
                if (each.kernel == 4 * trace_.kernels.size() && each.left == 0) return tick;
                advance(each, next);
            }
            now = std::move(next);
        }
        return std::nullopt;
    }

   private:
    static constexpr char kNone = '-';  ///< not alive
    static constexpr char kHere = 'd';  ///< on the device only
    static constexpr char kBoth = 'b';
    static constexpr char kAway = 'a';

    struct State {
        std::size_t kernel = 0;  ///< how many have started
        int left = 0;            ///< ticks of the last one
        std::string tensors;
        auto operator<=>(const State&) const = default;
    };

    static std::set<int> used(const TinyKernel& kernel) {
        std::set<int> result(kernel.reads.begin(), kernel.reads.end());
        result.insert(kernel.writes.begin(), kernel.writes.end());
        return result;
    }
    const TinyKernel& at(std::size_t kernel) const {
        return trace_.kernels[kernel % trace_.kernels.size()];
    }
    static int on_device(const std::string& tensors) {
        int count = 0;
        for (const char each : tensors) count += each == kHere || each == kBoth ? 1 : 0;
        return count;
    }

    void add_starts(std::set<State>& starts, std::size_t tensor, State state) const {
        if (tensor == state.tensors.size()) {
            if (on_device(state.tensors) <= room_) starts.insert(state);
            return;
        }
        if (!trace_.is_weight[tensor]) return add_starts(starts, tensor + 1, state);
        for (const char where : {kHere, kBoth, kAway}) {
            state.tensors[tensor] = where;
            add_starts(starts, tensor + 1, state);
        }
    }

    /// All that can be dropped, in every combination.
    void advance(const State& state, std::set<State>& next) {
        const bool runs = state.left > 0;
        const std::set<int> busy = runs ? used(at(state.kernel - 1)) : std::set<int>{};
        std::vector<std::size_t> free;
        for (std::size_t i = 0; i < state.tensors.size(); ++i) {
            if (state.tensors[i] == kBoth && !busy.contains(static_cast<int>(i))) free.push_back(i);
        }
        for (std::uint32_t chosen = 0; chosen < (1U << free.size()); ++chosen) {
            State after = state;
            for (std::size_t i = 0; i < free.size(); ++i) {
                if ((chosen >> i & 1) != 0) after.tensors[free[i]] = kAway;
            }
            move(after, next);
        }
    }

    void move(const State& state, std::set<State>& next) {
        const int tensors = static_cast<int>(state.tensors.size());
        for (int out = -1; out < tensors; ++out) {
            if (out >= 0 && state.tensors[static_cast<std::size_t>(out)] != kHere) continue;
            for (int in = -1; in < tensors; ++in) {
                if (in >= 0 && state.tensors[static_cast<std::size_t>(in)] != kAway) continue;
                if (on_device(state.tensors) + (in >= 0 ? 1 : 0) > room_) continue;
                tick(state, out, in, next);
                start(state, out, in, next);
            }
        }
    }

    void start(State state, int out, int in, std::set<State>& next) {
        if (state.left > 0 || state.kernel == 4 * trace_.kernels.size()) return;
        const TinyKernel& kernel = at(state.kernel);
        for (const int each : used(kernel)) {
            char& where = state.tensors[static_cast<std::size_t>(each)];
            if (where == kAway) return;
            if (where == kNone) where = kHere;
        }
        for (const int each : kernel.writes) {
            if (each == out || each == in) return;
            state.tensors[static_cast<std::size_t>(each)] = kHere;
        }
        if (on_device(state.tensors) + (in >= 0 ? 1 : 0) > room_) return;
        state.left = kernel.ticks;
        ++state.kernel;
        tick(state, out, in, next);
    }

    void tick(State state, int out, int in, std::set<State>& next) {
        if (state.left > 0) {
            const TinyKernel& kernel = at(state.kernel - 1);
            for (const int each : kernel.writes) {
                if (each == out) return;
            }
        }
        if (out >= 0) state.tensors[static_cast<std::size_t>(out)] = kBoth;
        if (in >= 0) state.tensors[static_cast<std::size_t>(in)] = kBoth;
        if (state.left > 0 && --state.left == 0) {
            const std::size_t kernel = (state.kernel - 1) % trace_.kernels.size();
            for (const int each : used(trace_.kernels[kernel])) {
                const auto tensor = static_cast<std::size_t>(each);
                if (last_[each] == kernel && !trace_.is_weight[tensor])
                    state.tensors[tensor] = kNone;
            }
        }
        if (seen_.insert(state).second) next.insert(std::move(state));
    }

    const TinyTrace& trace_;
    int room_;
    std::map<int, std::size_t> last_;
    std::set<State> seen_;
};

}  // namespace frostline
