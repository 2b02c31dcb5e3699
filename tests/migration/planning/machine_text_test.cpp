// Proves that a machine's description is read to the letter: what is none is refused with its line
// and what is wrong there.
#include "migration/planning/machine.h"

#include "tests/tiers/scratch_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace frostline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A line for each thing, so that lines of errors mean something.
constexpr std::string_view kMachine = R"({
"name": "two tiers, \"one\" disk",
"comment": ["what is not known", {"is": ["passed", "over", -1, 1e-3, true, null]}],
"device": "gpu",
"tiers": [
{"name": "disk", "bytes": 2.5e12},
{"name": "gpu", "bytes": 40000000000, "kind": "hbm"},
{"name": "none", "bytes": 0}
],
"resources": {
"out": 15754000000,
"disk write": 3.2e9,
"in": 1
},
"links": [
{"from": "gpu", "to": "disk", "resources": ["out", "disk write"], "latency_ns": 21000},
{"from": "disk", "to": "gpu", "resources": ["in"]}
]
}
)";

TEST(MachineText, is_read_to_the_letter) {
    const Result<Machine> machine = parse_machine(kMachine, "m.json");
    ASSERT_TRUE(machine) << machine.error().message();
    EXPECT_EQ(machine->name, R"(two tiers, "one" disk)");
    EXPECT_EQ(machine->device, 1U);
    ASSERT_EQ(machine->tiers.size(), 3U);
    EXPECT_EQ(machine->tiers[0].name, "disk");
    EXPECT_EQ(machine->tiers[0].size_bytes, 2500000000000U);
    EXPECT_EQ(machine->tiers[1].size_bytes, 40000000000U);
    EXPECT_EQ(machine->tiers[2].size_bytes, 0U);
    ASSERT_EQ(machine->resources.size(), 3U);
    EXPECT_EQ(machine->resources[1].name, "disk write");
    EXPECT_EQ(machine->resources[1].bytes_per_second, 3.2e9);
    ASSERT_EQ(machine->links.size(), 2U);
    const MachineLink* const down = machine->link(1, 0);
    ASSERT_NE(down, nullptr);
    EXPECT_EQ(down->latency_ns, 21000U);
    EXPECT_THAT(down->resources, ElementsAre(0, 1));
    EXPECT_EQ(machine->bytes_per_second(*down), 3.2e9);
    const MachineLink* const up = machine->link(0, 1);
    ASSERT_NE(up, nullptr);
    EXPECT_EQ(up->latency_ns, 0U);
    EXPECT_EQ(machine->bytes_per_second(*up), 1);
    EXPECT_EQ(machine->link(1, 2), nullptr);
    EXPECT_EQ(machine->link(1, 1), nullptr);
}

struct Refused {
    const char* what;
    std::string_view instead_of;  ///< in kMachine
    std::string_view text;
    int line;
    const char* words;
};

constexpr Refused kRefused[] = {
    {"no tiers", R"("tiers")", R"("tears")", 1, "the machine has no 'tiers'"},
    {"tiers that are no list", "[\n{\"name\": \"disk\", \"bytes\": 2.5e12},", R"(3, "x": [)", 5,
     "'tiers' of the machine is not a list"},
    {"a tier that is a word", R"({"name": "disk", "bytes": 2.5e12})", R"("disk")", 6,
     "a tier has no 'name'"},
    {"a tier without name", R"("name": "disk")", R"("nam": "disk")", 6, "a tier has no 'name'"},
    {"a tier's name that is a number", R"("name": "disk")", R"("name": 7)", 6, "is not a text"},
    {"an empty name", R"("name": "disk")", R"("name": "")", 6, "is not a text"},
    {"a name of two words", R"("name": "disk")", R"("name": "a disk")", 6, "is not one word"},
    {"a name that is no ASCII", R"("name": "disk")", R"("name": "d\u00fcsk")", 6, "one word"},
    {"two tiers of a name", R"("name": "disk")", R"("name": "gpu")", 7, "two tiers 'gpu'"},
    {"a tier without bytes", R"("bytes": 2.5e12)", R"("size": 2.5e12)", 6,
     "tier 'disk' has no 'bytes'"},
    {"negative bytes", "2.5e12", "-1", 6, "'bytes' of tier 'disk' is not a number from 0"},
    {"half a byte", "2.5e12", "0.5", 6, "is not a whole number"},
    {"bytes in quotes", "2.5e12", R"("1 TB")", 6, "'bytes' of tier 'disk' is not a number"},
    {"huge bytes", "2.5e12", "2e18", 6, "is not a number from 0 to"},
    {"bytes beyond integers", "2.5e12", "99999999999999999999999", 6, "is not a number from 0 to"},
    {"bytes beyond numbers", "2.5e12", "1e999", 6, "not JSON: number overflow"},

    {"no device", R"("device")", R"("devise")", 1, "the machine has no 'device'"},
    {"an unknown device", R"("device": "gpu")", R"("device": "tpu")", 4,
     "'device' of the machine is 'tpu', which is no tier"},
    {"a device that is a number", R"("device": "gpu")", R"("device": 1)", 4, "is not a text"},
    {"a device without room", "40000000000", "0", 4, "the device 'gpu' has no bytes"},
    {"a name that is a list", R"("two tiers, \"one\" disk")", "[1]", 2, "'name' of the machine"},

    {"no resources", R"("resources": {)", R"("sources": {)", 1, "the machine has no 'resources'"},
    {"resources in a list", R"("resources": {)", R"("resources": [1], "x": {)", 10,
     "'resources' is not an object"},
    {"no bandwidth", "15754000000", "0", 11, "resource 'out', in bytes per second, is not"},
    {"negative bandwidth", "15754000000", "-3e9", 11, "is not a number from 1 to 1e+18"},
    {"a bandwidth of next to nothing", "15754000000", "1e-300", 11, "is not a number from 1"},
    {"a bandwidth that is none", "15754000000", "null", 11, "is not a number from 1"},
    {"a bandwidth that is NaN", "15754000000", "NaN", 11, "not JSON"},
    {"a bandwidth that is infinite", "15754000000", "Infinity", 11, "not JSON"},
    {"a bandwidth in words", "15754000000", R"("fast")", 11, "is not a number from 1"},
    {"a resource twice", R"("disk write": 3.2e9)", R"("out": 3.2e9)", 12, "two members 'out'"},

    {"no links", R"("links")", R"("lynx")", 1, "the machine has no 'links'"},
    {"a link that is a list", R"({"from": "disk", "to": "gpu", "resources": ["in"]})", "[]", 17,
     "a link has no 'from'"},
    {"a link from nowhere", R"("from": "gpu")", R"("frum": "gpu")", 16, "a link has no 'from'"},
    {"a link to nowhere", R"("to": "disk")", R"("two": "disk")", 16, "a link has no 'to'"},
    {"a link from an unknown tier", R"("from": "gpu")", R"("from": "cpu")", 16,
     "'from' of a link is 'cpu', which is no tier"},
    {"a link to an unknown tier", R"("to": "disk")", R"("to": "dusk")", 16,
     "'to' of a link is 'dusk', which is no tier"},
    {"a link to itself", R"("to": "disk")", R"("to": "gpu")", 16, "'gpu' to 'gpu' leads nowhere"},
    {"a link twice", R"("from": "disk", "to": "gpu")", R"("from": "gpu", "to": "disk")", 17,
     "the link 'gpu' to 'disk' is there twice"},
    {"a link without resources", R"("resources": ["in"])", R"("loads": ["in"])", 17,
     "the link 'disk' to 'gpu' has no 'resources'"},
    {"a link that loads nothing", R"(["in"])", "[]", 17, "loads no resource"},
    {"a link that loads a word", R"(["in"])", R"("in")", 17, "is not a list"},
    {"a link that loads a number", R"(["in"])", "[3]", 17, "loads something, which is no resource"},
    {"a link that loads what is not there", R"(["in"])", R"(["inn"])", 17,
     "loads 'inn', which is no resource"},
    {"a link that loads twice", R"(["in"])", R"(["in", "in"])", 17, "loads 'in' twice"},
    {"negative latency", "21000", "-1", 16, "'latency_ns' of the link 'gpu' to 'disk' is not"},
    {"half a nanosecond", "21000", "0.5", 16, "is not a whole number"},
    {"latency for ever", "21000", "1e16", 16, "is not a number from 0 to"},
    {"latency in words", "21000", R"("5 us")", 16, "'latency_ns' of the link"},

    {"a member twice", R"("device": "gpu",)", "\"device\": \"gpu\",\n\"device\": \"gpu\",", 5,
     "two members 'device'"},
    {"a comma too many", "[\"in\"]}\n]", "[\"in\"]},\n]", 18, "not JSON"},
    {"a comma too few", "\"gpu\",\n\"tiers\"", "\"gpu\"\n\"tiers\"", 5, "not JSON"},
    {"a text that does not end", R"("disk write": 3.2e9)", R"("disk write: 3.2e9)", 12, "not JSON"},
    {"bytes that are no text", R"("disk write")", "\"disk \xff\"", 12, "not JSON"},
    {"more after the end", "]\n}\n", "]\n}\n{", 20, "not JSON"},
};

TEST(MachineText, what_is_no_machine_is_refused_with_its_line) {
    for (const Refused& each : kRefused) {
        SCOPED_TRACE(each.what);
        std::string text(kMachine);
        const std::size_t at = text.find(each.instead_of);
        ASSERT_NE(at, std::string::npos);
        text.replace(at, each.instead_of.size(), each.text);
        const Result<Machine> machine = parse_machine(text, "m.json");
        ASSERT_FALSE(machine);
        EXPECT_EQ(machine.error().code(), Errc::invalid_argument);
        EXPECT_THAT(machine.error().message(), StartsWith(fmt::format("m.json:{}: ", each.line)));
        EXPECT_THAT(machine.error().message(), HasSubstr(each.words));
        EXPECT_THAT(machine.error().message(), Not(HasSubstr("\n")));
    }
}

TEST(MachineText, only_a_whole_object_is_a_machine) {
    for (const char* text :
         {"", " ", "\n", "7", "[]", R"("machine")", "null", "{", "{}", "frostline"}) {
        const Result<Machine> machine = parse_machine(text, "m.json");
        ASSERT_FALSE(machine) << text;
        EXPECT_THAT(machine.error().message(), StartsWith("m.json:")) << text;
    }
    const std::size_t end = kMachine.rfind('}');
    for (std::size_t length = 0; length <= end; ++length) {
        const Result<Machine> machine = parse_machine(kMachine.substr(0, length), "cut");
        ASSERT_FALSE(machine) << length;
        EXPECT_THAT(machine.error().message(), StartsWith("cut:"));
    }
    EXPECT_TRUE(parse_machine(kMachine.substr(0, end + 1), "whole"));
}

TEST(MachineText, neither_depth_nor_number_of_members_does_harm) {
    const Result<Machine> deep = parse_machine(fmt::format(R"({{"x": {:[<100000})", '['), "deep");
    ASSERT_FALSE(deep);
    EXPECT_THAT(deep.error().message(), HasSubstr("nested more than 32 deep"));
    std::string many = R"({"device": "t0", "tiers": [)";
    for (int i = 0; i < 9; ++i)
        many += fmt::format(R"({}{{"name": "t{}", "bytes": 1}})", i == 0 ? "" : ",\n", i);
    const Result<Machine> tiers = parse_machine(many + "]}", "many");
    ASSERT_FALSE(tiers);
    EXPECT_THAT(tiers.error().message(), StartsWith("many:9: there are more than 8 tiers"));
    std::string wide = "{";
    for (int i = 0; i < 100000; ++i) wide += fmt::format("\"m{}\": {},\n", i, i);
    wide += std::string(kMachine.substr(1));
    EXPECT_TRUE(parse_machine(wide, "wide"));
}

TEST(MachineFile, is_read_from_disk) {
    const ScratchFolder folder;
    std::ofstream(folder.file("m.json")) << kMachine;
    const Result<Machine> machine = read_machine(folder.file("m.json"));
    ASSERT_TRUE(machine) << machine.error().message();
    EXPECT_EQ(machine->links.size(), 2U);
    EXPECT_EQ(read_machine(folder.file("none.json")).error().code(), Errc::not_found);
    std::ofstream(folder.file("bad.json")) << "{\n\n]";
    EXPECT_THAT(read_machine(folder.file("bad.json")).error().message(), HasSubstr("bad.json:3: "));
}

}  // namespace
}  // namespace frostline
