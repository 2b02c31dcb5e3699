// Proves what libfrostline.so shows to the world: its C functions under the version that programs
// link, the manager's C++ face under a version that promises nothing, and not one symbol more; and
// that it asks the loader for no CUDA library. Needs binutils.
#include "tests/bindings/shared_library.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace frostline {
namespace {

std::vector<std::string> lines_of(const std::string& command) {
    std::vector<std::string> lines;
    FILE* const pipe = ::popen(command.c_str(), "r");
    if (pipe == nullptr) return lines;
    std::string text;
    std::array<char, 4096> buffer{};
    for (std::size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
        text.append(buffer.data(), got);
    }
    EXPECT_EQ(::pclose(pipe), 0) << command;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

class ExportedSymbols : public testing::Test {
   protected:
    void SetUp() override {
        ASSERT_FALSE(shared_library().empty())
            << "libfrostline.so is not in ../lib; build it, or name it in FROSTLINE_LIBRARY";
    }
};

constexpr std::array<std::string_view, 39> kFunctions{"frostline_adopt",
                                                      "frostline_allocate",
                                                      "frostline_close",
                                                      "frostline_drop",
                                                      "frostline_get",
                                                      "frostline_get_device",
                                                      "frostline_get_stats",
                                                      "frostline_get_tier_stats",
                                                      "frostline_heap_alloc",
                                                      "frostline_heap_begin_step",
                                                      "frostline_heap_close",
                                                      "frostline_heap_forget_stream",
                                                      "frostline_heap_free",
                                                      "frostline_heap_free_sized",
                                                      "frostline_heap_get_stats",
                                                      "frostline_heap_on_pressure",
                                                      "frostline_heap_open",
                                                      "frostline_heap_owns",
                                                      "frostline_heap_record_stream",
                                                      "frostline_heap_release",
                                                      "frostline_heap_size",
                                                      "frostline_heap_trim",
                                                      "frostline_heap_write_trace",
                                                      "frostline_last_error",
                                                      "frostline_open",
                                                      "frostline_pin",
                                                      "frostline_pinned_data",
                                                      "frostline_prefetch",
                                                      "frostline_put",
                                                      "frostline_put_device",
                                                      "frostline_release_source",
                                                      "frostline_settle",
                                                      "frostline_size",
                                                      "frostline_source_read",
                                                      "frostline_step",
                                                      "frostline_unpin",
                                                      "frostline_unpin_after",
                                                      "frostline_version",
                                                      "frostline_write_trace"};

// What PyTorch calls, or Frostline's Python in its place.
constexpr std::array<std::string_view, 17> kTorchFunctions{"frostline_torch_alloc",
                                                           "frostline_torch_base_alloc",
                                                           "frostline_torch_begin_allocate_to_pool",
                                                           "frostline_torch_configure",
                                                           "frostline_torch_end_allocate_to_pool",
                                                           "frostline_torch_free",
                                                           "frostline_torch_get_statistics",
                                                           "frostline_torch_init",
                                                           "frostline_torch_live",
                                                           "frostline_torch_memory_fraction",
                                                           "frostline_torch_on_out_of_memory",
                                                           "frostline_torch_record_stream",
                                                           "frostline_torch_release_pool",
                                                           "frostline_torch_reset",
                                                           "frostline_torch_reset_accumulated",
                                                           "frostline_torch_reset_peaks",
                                                           "frostline_torch_throw_out_of_memory"};

bool is_face(std::string_view name) {
    // Of the manager, its own functions only: what it consists of stays inside.
    if (name.starts_with("frostline::Manager::")) {
        return !name.starts_with("frostline::Manager::Parts::");
    }
    static constexpr std::array<std::string_view, 15> kFaces{
        "frostline::PinnedTensor::",    "frostline::parse_byte_size(",
        "frostline::format_byte_size",  "frostline::set_option(",
        "frostline::write_whole_file(", "frostline::version(",
        "frostline::gpu_info(",         "frostline::cuda_header_version(",
        "frostline::machine_info(",     "frostline::read_planning_problem(",
        "frostline::planning_names(",   "frostline::bound_of(",
        "frostline::plan_with(",        "frostline::schedule_text",
        "frostline::occupancy_of("};
    return std::any_of(kFaces.begin(), kFaces.end(),
                       [&](std::string_view face) { return name.starts_with(face); });
}

// A symbol, as "nm -DC" has it: address, kind, name and, behind two at signs, its default version.
struct Symbol {
    explicit Symbol(const std::string& line) : kind(line.at(17)), name(line.substr(19)) {
        const std::size_t at = name.rfind("@@");
        if (at == std::string::npos) return;
        version = name.substr(at + 2);
        name.resize(at);
    }
    char kind;
    std::string name;
    std::string version;
};

TEST_F(ExportedSymbols, are_the_faces_with_their_versions_and_nothing_else) {
    std::vector<std::string> functions;
    std::vector<std::string> torch_functions;
    std::vector<std::string> versions;
    std::size_t faces = 0;
    for (const std::string& line : lines_of("nm -DC --defined-only '" + shared_library() + "'")) {
        ASSERT_GT(line.size(), 19U) << line;
        const Symbol symbol(line);
        if (symbol.kind == 'A') {  // a version's own
            versions.push_back(symbol.name);
        } else if (symbol.name.starts_with("frostline_")) {
            EXPECT_EQ(symbol.kind, 'T') << line;
            EXPECT_EQ(symbol.version, "FROSTLINE_0.1") << line;
            (symbol.name.starts_with("frostline_torch_") ? torch_functions : functions)
                .push_back(symbol.name);
        } else {
            EXPECT_TRUE(is_face(symbol.name)) << "internal, but exported: " << line;
            EXPECT_EQ(symbol.version, "FROSTLINE_PRIVATE") << line;
            ++faces;
        }
    }
    EXPECT_GT(faces, 20U) << "the C++ face is missing";
    std::sort(functions.begin(), functions.end());
    EXPECT_TRUE(
        std::equal(functions.begin(), functions.end(), kFunctions.begin(), kFunctions.end()))
        << "a change of the C interface: say so here, and give what is new a version of its own, "
           "if 0.1 was released. Exported are:\n"
        << testing::PrintToString(functions);
    std::sort(torch_functions.begin(), torch_functions.end());
    EXPECT_TRUE(std::equal(torch_functions.begin(), torch_functions.end(), kTorchFunctions.begin(),
                           kTorchFunctions.end()))
        << testing::PrintToString(torch_functions);
    std::sort(versions.begin(), versions.end());
    EXPECT_EQ(versions, (std::vector<std::string>{"FROSTLINE_0.1", "FROSTLINE_PRIVATE"}));
}

TEST_F(ExportedSymbols, the_library_needs_no_cuda) {
    bool needs_something = false;
    bool has_name = false;
    for (const std::string& line : lines_of("readelf -d '" + shared_library() + "'")) {
        has_name = has_name || (line.find("SONAME") != std::string::npos &&
                                line.find("[libfrostline.so.0]") != std::string::npos);
        if (line.find("(NEEDED)") == std::string::npos) continue;
        needs_something = true;
        for (const char* const cuda : {"libcuda", "libcudart", "libnv", "libcublas"}) {
            EXPECT_EQ(line.find(cuda), std::string::npos) << line;
        }
    }
    EXPECT_TRUE(needs_something) << "readelf said nothing";
    EXPECT_TRUE(has_name);
}

}  // namespace
}  // namespace frostline
