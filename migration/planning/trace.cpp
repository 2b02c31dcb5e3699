// Reads and writes traces as text. What a trace may be is the builder's to say; this file knows
// how it is written.
#include "migration/planning/trace.h"

#include "migration/planning/text_file.h"
#include "migration/planning/text_lines.h"
#include "migration/planning/trace_builder.h"

#include <fmt/format.h>

#include <iterator>
#include <limits>
#include <new>
#include <utility>

namespace frostline {
namespace {

constexpr std::uint64_t kAnyNumber = std::numeric_limits<std::uint64_t>::max();

class TraceReader {
   public:
    TraceReader(std::string_view text, std::string_view name) : lines_(text, name) {}

    Result<Trace> read() {
        FROSTLINE_TRY_VOID(lines_.expect_format(kTraceFormat));
        while (true) {
            FROSTLINE_TRY(const bool more, lines_.next());
            if (!more) break;
            FROSTLINE_TRY_VOID(read_line());
        }
        auto trace = builder_.finish();
        if (!trace) return lines_.error_of(trace.error());
        return trace;
    }

   private:
    Result<void> read_line() {
        FROSTLINE_TRY(const std::string_view kind, lines_.word("kind"));
        if (kind == "kernel") return read_kernel();
        if (kind == "tensor") return read_tensor();
        if (kind == "recompute") return read_recomputation();
        return lines_.error("a line of the kind {}; known are tensor, kernel and recompute",
                            shown(kind));
    }

    Result<void> read_tensor() {
        FROSTLINE_TRY(const std::uint64_t id, lines_.number("id", 0, kAnyNumber));
        FROSTLINE_TRY(const std::uint64_t size, lines_.number("size", 1, TraceBuilder::kMostBytes));
        FROSTLINE_TRY(const std::string_view class_name, lines_.word("class"));
        const auto added = builder_.add_tensor(id, size, class_name);
        if (!added) return lines_.error_of(added.error());
        return ok();
    }

    Result<void> read_kernel() {
        FROSTLINE_TRY(const std::uint64_t index, lines_.number("index", 0, kAnyNumber));
        if (index != kernels_) {
            return lines_.error("kernel {} stands where kernel {} is expected", index, kernels_);
        }
        FROSTLINE_TRY(const std::uint64_t duration,
                      lines_.number("duration", 1, TraceBuilder::kMostNs));
        FROSTLINE_TRY(const std::string_view name, lines_.word("name"));
        FROSTLINE_TRY_VOID(read_ids("reads", reads_));
        FROSTLINE_TRY_VOID(read_ids("writes", writes_));
        const auto added = builder_.add_kernel(duration, name, reads_, writes_);
        if (!added) return lines_.error_of(added.error());
        ++kernels_;
        return ok();
    }

    Result<void> read_recomputation() {
        FROSTLINE_TRY(const std::uint64_t id, lines_.number("id", 0, kAnyNumber));
        FROSTLINE_TRY(const TensorIndex tensor, find(id));
        FROSTLINE_TRY(const std::uint64_t duration,
                      lines_.number("duration", 1, TraceBuilder::kMostNs));
        FROSTLINE_TRY_VOID(read_ids("reads", reads_));
        const auto added = builder_.add_recomputation(tensor, duration, reads_);
        if (!added) return lines_.error_of(added.error());
        return ok();
    }

    // Ids with commas between them, or `-` for none.
    Result<void> read_ids(const char* what, std::vector<TensorIndex>& tensors) {
        tensors.clear();
        FROSTLINE_TRY(std::string_view rest, lines_.word(what));
        if (rest == "-") return ok();
        while (true) {
            const std::size_t comma = rest.find(',');
            FROSTLINE_TRY(const std::uint64_t id,
                          lines_.number_in(rest.substr(0, comma), "id", 0, kAnyNumber));
            FROSTLINE_TRY(const TensorIndex tensor, find(id));
            tensors.push_back(tensor);
            if (comma == std::string_view::npos) return ok();
            rest.remove_prefix(comma + 1);
        }
    }

    Result<TensorIndex> find(std::uint64_t id) {
        auto found = builder_.find(id);
        if (found) return found;
        return lines_.error("tensor {} is unknown; its line has to come before its uses", id);
    }

    TextLines lines_;
    TraceBuilder builder_;
    std::uint64_t kernels_ = 0;
    std::vector<TensorIndex> reads_;
    std::vector<TensorIndex> writes_;
};

Error no_memory(std::string_view name) {
    return Error(Errc::out_of_memory, 0, "no memory to read the trace '{}'", name);
}

class TraceWriter {
   public:
    explicit TraceWriter(const Trace& trace) : trace_(trace) {}

    std::string write() {
        put("{}\n", kTraceFormat);
        for (const TraceTensor& each : trace_.tensors()) {
            put("tensor {} {} {}\n", each.id, each.size_bytes, trace_.names()[each.class_name]);
        }
        for (KernelIndex i = 0; i < trace_.kernels().size(); ++i) {
            put("kernel {} {} {} ", i, trace_.kernels()[i].duration_ns, trace_.name(i));
            put_ids(trace_.reads(i), ' ');
            put_ids(trace_.writes(i), '\n');
        }
        for (const Recomputation& each : trace_.recomputations()) {
            put("recompute {} {} ", trace_.tensors()[each.tensor].id, each.duration_ns);
            put_ids(each.reads, '\n');
        }
        return std::move(out_);
    }

   private:
    template <class... Args>
    void put(fmt::format_string<Args...> format, Args&&... args) {
        fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    }
    void put_ids(std::span<const TensorIndex> tensors, char end) {
        if (tensors.empty()) out_ += '-';
        const char* separator = "";
        for (const TensorIndex each : tensors) {
            put("{}{}", std::exchange(separator, ","), trace_.tensors()[each].id);
        }
        out_ += end;
    }

    const Trace& trace_;
    std::string out_;
};

}  // namespace

Result<Trace> parse_trace(std::string_view text, std::string_view name) noexcept {
    try {
        return TraceReader(text, name).read();
    } catch (const std::bad_alloc&) {
        return no_memory(name);
    }
}

Result<Trace> read_trace(const std::filesystem::path& path) noexcept {
    try {
        FROSTLINE_TRY(const std::string text, read_text_file(path));
        return parse_trace(text, path.native());
    } catch (const std::bad_alloc&) {
        return no_memory(path.native());
    }
}

std::string to_text(const Trace& trace) {
    return TraceWriter(trace).write();
}

}  // namespace frostline
