// Every rule of a replay, kept to the last nanosecond and byte, and broken by one.
#include "migration/planning/replay.h"
#include "tests/migration/planning/replay_scene.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

namespace frostline {
namespace {

using Scene = ReplayScene;
constexpr TierIndex kGpu = Scene::kGpu;
constexpr TierIndex kDram = Scene::kDram;
constexpr TierIndex kSwap = Scene::kSwap;
constexpr TensorRange kWhole{Scene::kWeight, 0, 400};
constexpr TensorRange kSavedWhole{Scene::kSaved, 0, 400};
constexpr TensorRange kSavedFront{Scene::kSaved, 0, 100};

ReplayVerdict verdict_of(const Scene& scene) {
    const auto verdict = replay(scene.trace, scene.machine, scene.schedule);
    EXPECT_TRUE(verdict.has_value());
    return verdict.value_or(ReplayVerdict{});
}

/// One change of the scene; `why` is a part of the objection, or empty where there is none.
struct Change {
    const char* name;
    void (*apply)(Scene&);
    const char* why = "";

    friend std::ostream& operator<<(std::ostream& out, const Change& change) {
        return out << change.name;
    }
};

class ReplayRules : public testing::TestWithParam<Change> {};

TEST_P(ReplayRules, JudgeTheChange) {
    Scene scene;
    GetParam().apply(scene);
    const ReplayVerdict verdict = verdict_of(scene);
    EXPECT_EQ(verdict.legal, std::string(GetParam().why).empty()) << verdict.why;
    EXPECT_THAT(verdict.why, testing::HasSubstr(GetParam().why));
}

std::string name_of(const testing::TestParamInfo<Change>& info) {
    return info.param.name;
}

#define FROSTLINE_CHANGES(group, ...)            \
    INSTANTIATE_TEST_SUITE_P(group, ReplayRules, \
                             testing::ValuesIn(std::vector<Change>{__VA_ARGS__}), name_of)

FROSTLINE_CHANGES(
    Kernels,  // one at a time, in order, for their full duration, for three steps or more
    {"AsTheyAre", [](Scene&) {}},
    {"ListedBackwards",
     [](Scene& s) { std::reverse(s.schedule.kernels.begin(), s.schedule.kernels.end()); }},
    {"OneNanosecondEarly", [](Scene& s) { s.backward().start_ns -= 21; },
     "2219 ns: kernel 2 of step 1 starts, and the one before ends at 2220 ns"},
    {"StepBeforeTheLastOneEnds", [](Scene& s) { s.forward().start_ns = 339; },
     "339 ns: kernel 0 of step 1 starts"},
    {"Missing", [](Scene& s) { s.schedule.kernels.erase(s.schedule.kernels.begin() + 4); },
     "kernel 1 of step 1 is missing"},
    {"LastMissing", [](Scene& s) { s.schedule.kernels.pop_back(); },
     "kernel 2 of step 2 is missing"},
    {"Twice", [](Scene& s) { s.schedule.kernels.push_back(s.middle()); },
     "2120 ns: kernel 1 of step 1 starts a second time"},
    {"Unknown", [](Scene& s) { s.middle().kernel = 3; }, "missing"},
    {"Additional",
     [](Scene& s) {
         s.schedule.kernels.push_back({1, 3, 2400});
     },
     "2400 ns: kernel 3 of step 1 starts, and the trace has 3 kernels"},
    {"StepLeftOut",
     [](Scene& s) {
         for (int i = 0; i < 3; ++i) s.schedule.kernels[6 + i].step = 3;
     },
     "kernel 0 of step 2 is missing"},
    {"TwoSteps", [](Scene& s) { s.schedule.kernels.resize(6); }, "has 2 steps"},
    {"None", [](Scene& s) { s.schedule.kernels.clear(); }, "has 0 steps"},
    {"AfterTheEndOfTime",
     [](Scene& s) { s.backward(2).start_ns = std::numeric_limits<std::uint64_t>::max() - 99; },
     "ends after the end of time"}, );

FROSTLINE_CHANGES(
    Residency,  // what a kernel uses is whole and valid on the device
    {"BackAtTheLastInstant", [](Scene& s) { s.backward().start_ns = 2240; }},
    {"BackTooLate",
     [](Scene& s) {
         s.saved_back().start_ns += 1;
         s.saved_back().end_ns += 1;
     },
     "2240 ns: kernel 2 (backward) needs tensor 20, of which 300 of 400 bytes are valid in gpu"},
    {"NotBack", [](Scene& s) { s.schedule.moves.erase(s.schedule.moves.begin() + 5); },
     "kernel 2 (backward) needs tensor 20"},
    {"OneByteGone", [](Scene& s) { s.weight_back().range.size_bytes = 399; },
     "4000 ns: kernel 0 (forward) needs tensor 10, of which 399 of 400 bytes"},
    {"WeightElsewhereAtFirst", [](Scene& s) { s.schedule.init[0].tier = kDram; },
     "0 ns: kernel 0 (forward) needs tensor 10, of which 0 of 400 bytes"},
    {"WeightNowhere", [](Scene& s) { s.schedule.init.clear(); }, "weight 10 is not whole"},
    {"WeightWithAHole",
     [](Scene& s) {
         s.schedule.init = {{{0, 0, 200}, kGpu}, {{0, 202, 198}, kGpu}, {{0, 150, 51}, kSwap}};
     },
     "weight 10 is not whole"},
    {"WeightInParts",
     [](Scene& s) {
         s.schedule.init = {{{0, 0, 200}, kGpu}, {{0, 200, 200}, kGpu}, {{0, 100, 200}, kGpu}};
     }},
    {"WeightInTwoTiersAtFirst",
     [](Scene& s) {
         s.schedule.init.push_back({kWhole, kSwap});
     }},
    {"ActivationBeforeTheFirstStep",
     [](Scene& s) {
         s.schedule.init.push_back({kSavedWhole, kDram});
     },
     "0 ns: tensor 20 is no weight"}, );

FROSTLINE_CHANGES(Capacity,  // no tier holds more than it can, at any instant
                  {"OneByteLess", [](Scene& s) { s.machine.tiers[kGpu].size_bytes = 999; },
                   "120 ns: gpu holds 700 of 999 bytes and has no room for 300 of tensor 30"},
                  {"DramJustEnough", [](Scene& s) { s.machine.tiers[kDram].size_bytes = 100; }},
                  {"DramOneByteLess", [](Scene& s) { s.machine.tiers[kDram].size_bytes = 99; },
                   "100 ns: dram holds 0 of 99 bytes and has no room for 100 of tensor 20"},
                  {"InitialPlacement", [](Scene& s) { s.machine.tiers[kGpu].size_bytes = 399; },
                   "0 ns: gpu holds 0 of 399 bytes and has no room for 400 of tensor 10"},
                  {"HeldFromTheStartOfAMove", [](Scene& s) { s.saved_back().start_ns -= 1; },
                   "2219 ns: gpu holds 1000 of 1000 bytes and has no room for 100 of tensor 20"},
                  {"DroppedAtTheSameInstant", [](Scene& s) { s.saved_drop().at_ns = 2120; }},
                  {"DroppedTooLate", [](Scene& s) { s.saved_drop().at_ns = 2121; },
                   "2120 ns: gpu holds 800 of 1000 bytes and has no room for 300 of tensor 30"},
                  {"NotDropped",
                   [](Scene& s) { s.schedule.drops.erase(s.schedule.drops.begin() + 2); },
                   "gpu holds 800 of 1000"},
                  {"DiedAtTheSameInstant", [](Scene& s) { s.saved_back().start_ns = 2220; }}, );

FROSTLINE_CHANGES(
    Writes,  // a write makes other copies void, and nothing moves what is written
    {"AfterACopy", [](Scene& s) { s.move(kWhole, kGpu, kDram, 170, 240); }},
    {"DuringACopy", [](Scene& s) { s.move(kWhole, kGpu, kDram, 170, 241); },
     "2240 ns: kernel 2 (backward) writes tensor 10 while it moves"},
    {"BegunAtTheSameInstantAsACopy", [](Scene& s) { s.move(kWhole, kGpu, kDram, 240, 340); },
     "2240 ns: kernel 2 (backward) writes tensor 10 while it moves"},
    {"CopyFromWhatIsWritten", [](Scene& s) { s.move(kWhole, kGpu, kDram, 241, 341); },
     "2241 ns: tensor 10 is copied from gpu while a kernel writes it"},
    {"CopyAsSoonAsWritten", [](Scene& s) { s.move(kWhole, kGpu, kDram, 340, 390); }},
    {"CopyOfWhatIsOnlyRead", [](Scene& s) { s.move(kWhole, kGpu, kDram, 10, 60); }},
    {"CopyBetweenOthersDuringAWrite",
     [](Scene& s) {
         s.move(kWhole, kGpu, kDram, 125, 175);
         s.drop(kWhole, kSwap, 151);
         s.move(kWhole, kDram, kSwap, 200, 610);
     },
     "2240 ns: kernel 2 (backward) writes tensor 10 while it moves"},
    {"VoidCopyIsCopied",
     [](Scene& s) {
         s.move(kWhole, kGpu, kDram, 170, 240);
         s.move(kWhole, kDram, kSwap, 340, 800);
     },
     "2340 ns: tensor 10 moves from dram, where its bytes 0 to 400 are not all valid"},
    {"VoidCopyIsDropped", [](Scene& s) { s.drop(kWhole, kSwap, 340); },
     "2340 ns: bytes 0 to 400 of tensor 10 are dropped from swap, where they are not all valid"}, );

FROSTLINE_CHANGES(
    Deaths,  // nothing moves what dies, nor what does not live
    {"AtTheEndOfACopy", [](Scene& s) { s.move(kSavedFront, kGpu, kDram, 300, 340); }},
    {"DuringACopy", [](Scene& s) { s.move(kSavedFront, kGpu, kDram, 300, 341); },
     "2340 ns: tensor 20 dies with kernel 2 (backward) while it moves"},
    {"BeforeACopy", [](Scene& s) { s.move(kSavedFront, kGpu, kDram, 340, 380); },
     "2340 ns: tensor 20 moves while it does not exist"},
    {"BeforeADrop", [](Scene& s) { s.drop(kSavedFront, kGpu, 340); },
     "2340 ns: bytes 0 to 100 of tensor 20 are dropped from gpu, where they are not all valid"},
    {"BirthAfterACopy",
     [](Scene& s) {
         s.move({Scene::kScratch, 0, 10}, kGpu, kDram, 119, 140);
     },
     "2119 ns: tensor 30 moves while it does not exist"},
    {"CopyInTheFirstInstant", [](Scene& s) { s.move(kSavedFront, kGpu, kDram, 0, 90); },
     "2000 ns: tensor 20 moves while it does not exist"}, );

FROSTLINE_CHANGES(
    Drops,  // of whole copies that nobody uses, and never of the last
    {"WhileRead", [](Scene& s) { s.weight_drop().at_ns = 2819; },
     "2819 ns: bytes 0 to 400 of tensor 10 are dropped from gpu, where a move reads them"},
    {"OfAPartThatIsRead",
     [](Scene& s) {
         s.move({0, 0, 100}, kGpu, kDram, 350, 390);
         s.drop({0, 0, 100}, kGpu, 500);
     },
     "2500 ns: bytes 0 to 100 of tensor 10 are dropped from gpu, where a move reads them"},
    {"WhenRead", [](Scene& s) { s.weight_drop().at_ns = 2820; }},
    {"OfTheLastCopyOfAll", [](Scene& s) { s.drop(kWhole, kSwap, 901); },
     "2901 ns: bytes 0 to 400 of tensor 10 are dropped from swap, where a move reads them"},
    {"OfTheLastCopyAtRest", [](Scene& s) { s.drop(kWhole, kGpu, 350); },
     "2350 ns: bytes 0 to 400 of tensor 10 are dropped from gpu, the last copy of some"},
    {"OfTheLastCopyOfOneByte",
     [](Scene& s) {
         s.move({0, 0, 399}, kGpu, kDram, 340, 395);
         s.drop(kWhole, kGpu, 395);
     },
     "2395 ns: bytes 0 to 400 of tensor 10 are dropped from gpu, the last copy of some"},
    {"OfWhatLiesInTwoTiersBelow",
     [](Scene& s) {
         s.move({0, 0, 300}, kGpu, kDram, 340, 390);
         s.weight_out().range = {0, 250, 150};
         s.weight_back().range = {0, 300, 100};
         s.move({0, 0, 300}, kDram, kGpu, 1400, 1450);
     }},
    {"TwiceAtOneInstant", [](Scene& s) { s.drop(kWhole, kGpu, 900); },
     "2900 ns: bytes 0 to 400 of tensor 10 are dropped from gpu, where they are not all valid"},
    {"OfBothCopiesAtOneInstant",
     [](Scene& s) {
         s.drop(kWhole, kSwap, 850);
         s.drop(kWhole, kGpu, 850);
     },
     "2850 ns: bytes 0 to 400 of tensor 10 are dropped from gpu, the last copy of some"},
    {"OfTheOtherCopy", [](Scene& s) { s.drop(kWhole, kSwap, 1320); }},
    {"WhileAKernelUsesIt",
     [](Scene& s) {
         s.drop({Scene::kSaved, 300, 100}, kGpu, 241);
     },
     "2241 ns: bytes 300 to 400 of tensor 20 are dropped from gpu, where a kernel uses the tensor"},
    {"OfTheCopyBelowWhileAKernelUsesTheTensor",
     [](Scene& s) {
         s.drop({Scene::kSaved, 300, 100}, kDram, 241);
     }},
    {"JustBeforeAKernelUsesIt",
     [](Scene& s) {
         s.drop({Scene::kSaved, 300, 100}, kGpu, 240);
     },
     "2240 ns: kernel 2 (backward) needs tensor 20"},
    {"OfWhatIsStillOnItsWay", [](Scene& s) { s.drop(kWhole, kSwap, 819); },
     "2819 ns: bytes 0 to 400 of tensor 10 are dropped from swap, where they are not all valid"},
    {"OfMoreThanThereIs",
     [](Scene& s) {
         s.saved_drop().range = {Scene::kSaved, 200, 200};
     },
     "2120 ns: bytes 200 to 400 of tensor 20 are dropped from gpu, the last copy of some"}, );

FROSTLINE_CHANGES(
    Links,  // exist, take their latency, and carry no more than their resources
    {"Unlisted", [](Scene& s) { s.move(kWhole, kSwap, kDram, 900, 1400); },
     "2900 ns: tensor 10 moves from swap to dram, and there is no such link"},
    {"ToWhereItComesFrom", [](Scene& s) { s.weight_out().to = kGpu; },
     "2400 ns: tensor 10 moves from gpu to gpu, and there is no such link"},
    {"EndAtTheStart", [](Scene& s) { s.saved_out().end_ns = 2100; },
     "2100 ns: tensor 20 moves from gpu to dram, and ends at 2100 ns, within the link's latency"},
    {"EndBeforeTheStart", [](Scene& s) { s.saved_out().end_ns = 0; }, "within the link's latency"},
    {"WithinTheLatency", [](Scene& s) { s.saved_out().end_ns = 2110; },
     "2100 ns: tensor 20 moves from gpu to dram, and ends at 2110 ns, within the link's latency "
     "of 10 ns"},
    {"TooFast", [](Scene& s) { s.weight_out().end_ns -= 1; },
     "2400 ns: tensor 10 moves from gpu to swap, swap_write would carry 1002506266 of 1000000000"},
    {"FasterByARounding", [](Scene& s) { s.machine.resources[2].bytes_per_second = 1e9 - 999; }},
    {"FasterByMoreThanARounding",
     [](Scene& s) { s.machine.resources[2].bytes_per_second = 1e9 - 1001; }, "swap_write would"},
    {"Slow", [](Scene& s) { s.weight_out().end_ns = 2899; }},
    {"SharedBus", [](Scene& s) { s.move(kSavedFront, kGpu, kDram, 100, 120); },
     "2100 ns: tensor 20 moves from gpu to dram, out would carry 20000000000 of 10000000000"},
    {"HalfOfABusEach",
     [](Scene& s) {
         s.saved_out().range.size_bytes = 50;
         s.move({Scene::kSaved, 350, 50}, kGpu, kDram, 100, 120);
     }},
    {"OneAfterTheOther",
     [](Scene& s) {
         s.move(kSavedFront, kGpu, kDram, 120, 140);
         s.move({Scene::kSaved, 100, 100}, kGpu, kDram, 140, 160);
     }},
    {"BothWays",
     [](Scene& s) {
         s.move(kWhole, kGpu, kDram, 215, 265);
         s.backward().start_ns += 25;
     }},
    {"SharedBusOfDifferentLinks",
     [](Scene& s) {
         s.move({0, 0, 100}, kGpu, kDram, 400, 420);
     },
     "2400 ns: tensor 10 moves from gpu to dram, out would carry 11000000000 of 10000000000"}, );

FROSTLINE_CHANGES(
    Moves,  // are of valid bytes, to where they are not yet
    {"OfWhatIsNotThere",
     [](Scene& s) {
         s.saved_back().range = {Scene::kSaved, 299, 101};
     },
     "2220 ns: tensor 20 moves from dram, where its bytes 299 to 400 are not all valid"},
    {"OfWhatIsStillOnItsWay", [](Scene& s) { s.move(kWhole, kSwap, kGpu, 819, 1300); },
     "2819 ns: tensor 10 moves from swap, where its bytes 0 to 400 are not all valid"},
    {"ToWhereItIs", [](Scene& s) { s.move(kWhole, kSwap, kGpu, 820, 1240); },
     "2820 ns: tensor 10 moves to gpu, where its bytes 0 to 400 are in part already"},
    {"ToWhereItIsInPart",
     [](Scene& s) {
         s.move({0, 399, 1}, kGpu, kDram, 340, 360);
         s.move(kWhole, kGpu, kDram, 360, 400);
     },
     "2360 ns: tensor 10 moves to dram, where its bytes 0 to 400 are in part already"},
    {"ToWhereItIsGoing",
     [](Scene& s) {
         s.move({0, 0, 100}, kGpu, kDram, 340, 390);
         s.move({0, 99, 10}, kGpu, kDram, 350, 390);
     },
     "2350 ns: tensor 10 moves to dram, where its bytes 99 to 109 are in part already"},
    {"ToWhereItIsGoingFromElsewhere",
     [](Scene& s) {
         s.move({0, 0, 400}, kGpu, kDram, 340, 390);
         s.move({0, 0, 10}, kDram, kSwap, 410, 1000);
     },
     "2410 ns: tensor 10 moves to swap, where its bytes 0 to 10 are in part already"},
    {"BesideWhatIsGoing",
     [](Scene& s) {
         s.move({0, 0, 100}, kGpu, kDram, 340, 390);
         s.move({0, 100, 100}, kGpu, kDram, 350, 390);
     }},
    {"OfOneRangeToTwoTiers",
     [](Scene& s) {
         s.move({0, 0, 100}, kGpu, kDram, 401, 1000);
         s.weight_out().end_ns += 1;
         s.weight_drop().at_ns += 1000;
         s.weight_back().start_ns += 1000;
         s.weight_back().end_ns += 1000;
         s.delay_last_step(1000);
     }},
    {"ChainedAtOneInstant", [](Scene& s) {
         s.move({0, 0, 100}, kGpu, kDram, 340, 390);
         s.drop({0, 0, 100}, kSwap, 1500);
         s.move({0, 0, 100}, kDram, kSwap, 1500, 1600);
     }}, );

FROSTLINE_CHANGES(Lines,  // name what exists
                  {"EmptyRange",
                   [](Scene& s) {
                       s.drop({0, 0, 0}, kGpu, 350);
                   },
                   "a drop names 0 bytes from 0 on of tensor 10, which has 400"},
                  {"RangeTooLong", [](Scene& s) { s.weight_out().range.size_bytes = 401; },
                   "a move names 401 bytes from 0 on of tensor 10, which has 400"},
                  {"RangeBehindTheEnd",
                   [](Scene& s) {
                       s.schedule.init.push_back({{0, 400, 1}, kDram});
                   },
                   "an initial placement names 1 bytes from 400 on of tensor 10"},
                  {"RangeThatWrapsAround",
                   [](Scene& s) {
                       s.drop({0, 1, std::numeric_limits<std::uint64_t>::max()}, kGpu, 350);
                   },
                   "a drop names 18446744073709551615 bytes from 1 on of tensor 10"},
                  {"UnknownTensor", [](Scene& s) { s.weight_out().range.tensor = 3; },
                   "a move names tensor number 3 of 3"},
                  {"UnknownSource", [](Scene& s) { s.weight_out().from = 3; },
                   "a move names tier number 3 of 3"},
                  {"UnknownTarget", [](Scene& s) { s.weight_out().to = 3; },
                   "a move names tier number 3 of 3"},
                  {"UnknownTierOfADrop", [](Scene& s) { s.weight_drop().tier = 7; },
                   "a drop names tier number 7 of 3"},
                  {"UnknownTierAtFirst", [](Scene& s) { s.schedule.init[0].tier = 3; },
                   "an initial placement names tier number 3 of 3"},
                  {"ListedBackwards", [](Scene& s) {
                       std::reverse(s.schedule.moves.begin(), s.schedule.moves.end());
                       std::reverse(s.schedule.drops.begin(), s.schedule.drops.end());
                   }}, );

}  // namespace
}  // namespace frostline
