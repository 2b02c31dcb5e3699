// nlohmann's parser reads the text through an iterator that tells how far it has come; that is
// where lines come from.
#include "migration/planning/lined_json.h"

#include "migration/planning/text_lines.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>

namespace frostline {
namespace {

// One text, and how many of its bytes were taken. The parser copies its iterators.
struct Progress {
    std::string_view text;
    std::size_t taken = 0;
    std::size_t lines_to = 0;  // bytes whose line ends are counted
    std::size_t line = 1;
};

class TrackedIterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = const char&;

    TrackedIterator() = default;
    TrackedIterator(Progress& progress, std::size_t at) : progress_(&progress), at_(at) {}

    reference operator*() const { return progress_->text[at_]; }
    TrackedIterator& operator++() {
        progress_->taken = ++at_;
        return *this;
    }
    TrackedIterator operator++(int) {
        const TrackedIterator before = *this;
        ++*this;
        return before;
    }
    friend bool operator==(const TrackedIterator& left, const TrackedIterator& right) {
        return left.at_ == right.at_;
    }

   private:
    Progress* progress_ = nullptr;
    std::size_t at_ = 0;
};

// Builds the tree from what the parser finds. A function that gives false ends the parse.
class TreeMaker {
   public:
    TreeMaker(Progress& progress, std::string_view name) : progress_(progress), name_(name) {}

    LinedJson take_tree() { return std::move(root_); }
    Error error() const { return error_; }

    bool null() { return add({}); }
    bool boolean(bool value) { return add({.value = value}); }
    bool number_integer(std::int64_t value) { return add({.value = static_cast<double>(value)}); }
    bool number_unsigned(std::uint64_t value) { return add({.value = value}); }
    bool number_float(double value, const std::string& /*text*/) { return add({.value = value}); }
    bool string(std::string& value) { return add({.value = std::move(value)}); }
    bool binary(std::vector<std::uint8_t>& /*value*/) { return fail("binary data"); }

    bool start_object(std::size_t /*members*/) {
        return add({.value = LinedJson::Object()}) && enter();
    }
    bool key(std::string& name) {
        if (!open_.back().names.insert(name).second) {
            return fail(fmt::format("there are two members {}", shown(name)));
        }
        std::get<LinedJson::Object>(open_.back().value->value).emplace_back(name, LinedJson());
        return true;
    }
    bool end_object() { return leave(); }
    bool start_array(std::size_t /*values*/) {
        return add({.value = LinedJson::List()}) && enter();
    }
    bool end_array() { return leave(); }

    bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                     const nlohmann::detail::exception& error) {
        // The library's own words begin with its number for them, in brackets, and the place; they
        // end with the text itself.
        std::string words = error.what();
        words.erase(0, std::min(words.find("] ") + 2, words.size()));
        if (words.starts_with("parse error at")) words.erase(0, words.find(": ") + 2);
        for (char& byte : words) {
            if (byte < ' ' || byte > '~') byte = '?';
        }
        return fail(fmt::format("not JSON: {}", words));
    }

   private:
    // An object or list that has not ended. It is the last value of the one before, so it does not
    // move while it is open.
    struct Open {
        LinedJson* value;
        std::set<std::string> names;
    };

    // The parser may have taken one byte more than the token has.
    std::size_t line() {
        for (; progress_.lines_to + 1 < progress_.taken; ++progress_.lines_to) {
            if (progress_.text[progress_.lines_to] == '\n') ++progress_.line;
        }
        return progress_.line;
    }

    bool add(LinedJson made) {
        made.line = line();
        if (open_.empty()) {
            root_ = std::move(made);
            added_ = &root_;
        } else if (auto* list = std::get_if<LinedJson::List>(&open_.back().value->value)) {
            added_ = &list->emplace_back(std::move(made));
        } else {
            added_ = &std::get<LinedJson::Object>(open_.back().value->value).back().second;
            *added_ = std::move(made);
        }
        return true;
    }
    bool enter() {
        if (open_.size() == LinedJson::kMostDepth) {
            return fail(fmt::format("nested more than {} deep", LinedJson::kMostDepth));
        }
        open_.push_back({added_, {}});
        return true;
    }
    bool leave() {
        open_.pop_back();
        return true;
    }
    bool fail(std::string_view what) {
        error_ = Error(Errc::invalid_argument, 0, "{}:{}: {}", shown_file(name_), line(), what);
        return false;
    }

    Progress& progress_;
    std::string_view name_;
    LinedJson root_;
    LinedJson* added_ = nullptr;
    std::vector<Open> open_;
    Error error_{Errc::invalid_argument, 0, "not JSON"};
};

}  // namespace

const LinedJson* LinedJson::member(std::string_view name) const noexcept {
    const auto* const object = std::get_if<Object>(&value);
    if (object == nullptr) return nullptr;
    for (const auto& [each, found] : *object) {
        if (each == name) return &found;
    }
    return nullptr;
}

Result<LinedJson> parse_lined_json(std::string_view text, std::string_view name) {
    Progress progress{.text = text};
    TreeMaker maker(progress, name);
    if (!nlohmann::json::sax_parse(TrackedIterator(progress, 0),
                                   TrackedIterator(progress, text.size()), &maker)) {
        return maker.error();
    }
    return maker.take_tree();
}

}  // namespace frostline
