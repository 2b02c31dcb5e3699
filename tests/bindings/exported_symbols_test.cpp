// Proves what libfrostline.so shows to the world: its C functions and the C++ face, none of the
// classes behind them, and that it asks the loader for no CUDA library. Needs binutils.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

namespace frostline {
namespace {

// FROSTLINE_LIBRARY, or lib/ of the build to which this test belongs.
std::string library() {
    if (const char* const given = std::getenv("FROSTLINE_LIBRARY")) return given;
    const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    for (const char* const candidate : {"../lib", "../../lib", "../bindings", "."}) {
        const auto path = here / candidate / "libfrostline.so";
        if (std::filesystem::exists(path)) return std::filesystem::canonical(path).string();
    }
    return {};
}

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
        ASSERT_FALSE(library().empty())
            << "libfrostline.so is not in ../lib; build it, or name it in FROSTLINE_LIBRARY";
    }
};

bool is_face(const std::string& name) {
    // Of the manager, its own functions only: what it consists of stays inside.
    if (name.starts_with("frostline::Manager::")) {
        return !name.starts_with("frostline::Manager::Parts::");
    }
    static const std::array<const char*, 9> faces{
        "frostline::PinnedTensor::",    "frostline::parse_byte_size(",
        "frostline::format_byte_size",  "frostline::set_option(",
        "frostline::write_trace_file(", "frostline::version(",
        "frostline::gpu_info(",         "frostline::cuda_header_version(",
        "frostline::machine_info("};
    return std::any_of(faces.begin(), faces.end(),
                       [&](const char* face) { return name.starts_with(face); });
}

TEST_F(ExportedSymbols, are_the_faces_and_nothing_behind_them) {
    std::vector<std::string> c_functions;
    std::size_t faces = 0;
    for (const std::string& line : lines_of("nm -DC --defined-only '" + library() + "'")) {
        ASSERT_GT(line.size(), 19U) << line;
        const char kind = line[17];
        const std::string name = line.substr(19);
        if (name.starts_with("frostline_")) {
            EXPECT_EQ(kind, 'T') << line;
            c_functions.push_back(name);
        } else if (name.find("frostline") != std::string::npos) {
            EXPECT_TRUE(is_face(name)) << "internal, but exported: " << line;
            ++faces;
        } else {
            // Templates of the standard library, which the compiler leaves in every library.
            EXPECT_TRUE(kind == 'W' || kind == 'V' || kind == 'u') << line;
        }
    }
    EXPECT_GT(faces, 20U) << "the C++ face is missing";
    std::sort(c_functions.begin(), c_functions.end());
    const std::vector<std::string> expected{"frostline_adopt",
                                            "frostline_allocate",
                                            "frostline_close",
                                            "frostline_drop",
                                            "frostline_get",
                                            "frostline_get_device",
                                            "frostline_get_stats",
                                            "frostline_get_tier_stats",
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
                                            "frostline_torch_alloc",
                                            "frostline_torch_base_alloc",
                                            "frostline_torch_begin_allocate_to_pool",
                                            "frostline_torch_configure",
                                            "frostline_torch_end_allocate_to_pool",
                                            "frostline_torch_free",
                                            "frostline_torch_get_statistics",
                                            "frostline_torch_init",
                                            "frostline_torch_last_error",
                                            "frostline_torch_live",
                                            "frostline_torch_memory_fraction",
                                            "frostline_torch_on_out_of_memory",
                                            "frostline_torch_record_stream",
                                            "frostline_torch_release_pool",
                                            "frostline_torch_reset",
                                            "frostline_torch_reset_accumulated",
                                            "frostline_torch_reset_peaks",
                                            "frostline_torch_throw_out_of_memory",
                                            "frostline_unpin",
                                            "frostline_unpin_after",
                                            "frostline_version",
                                            "frostline_write_trace"};
    EXPECT_EQ(c_functions, expected) << "a change of the C interface: say so here, too";
}

TEST_F(ExportedSymbols, the_library_needs_no_cuda) {
    bool needs_something = false;
    bool has_name = false;
    for (const std::string& line : lines_of("readelf -d '" + library() + "'")) {
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
