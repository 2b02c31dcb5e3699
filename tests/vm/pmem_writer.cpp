// The program that a killed machine is tested with. It writes numbered records through PmemTier,
// fences them in batches, and only then tells the console the number of the last one. Afterwards,
// every record that was told must be there, whole.
//
//     pmem_writer write FILE FIRST    writes from record FIRST on until it is killed
//     pmem_writer verify FILE LAST    exits 0 if every record up to LAST is there
//
// Record n lies in slot n modulo the number of slots. The console lags behind by a few batches, so
// verification leaves out the slots that these may have overwritten.
#include "tiers/checksum.h"
#include "tiers/pmem_tier.h"

#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string_view>

namespace frostline {
namespace {

constexpr std::uint64_t kFileBytes = std::uint64_t{32} << 20;
constexpr std::uint64_t kMaxBatch = 16;
constexpr std::uint64_t kMaxUntoldBatches = 16;

struct Record {
    std::uint64_t number;
    std::uint64_t checksum;  // of the payload
    std::array<std::uint64_t, 2046> payload;
};
constexpr std::uint64_t kSlots = kFileBytes / sizeof(Record);
/// How far the writer may be ahead of what was told: one batch more is under way, and one line may
/// have been cut off.
constexpr std::uint64_t kMaxUntold = (kMaxUntoldBatches + 2) * kMaxBatch;

std::uint64_t checksum_of(const Record& record) {
    return checksum(std::as_bytes(std::span(record.payload)));
}

void fill(Record& record, std::uint64_t number) {
    std::mt19937_64 random(number);
    std::generate(record.payload.begin(), record.payload.end(), random);
    record.number = number;
    record.checksum = checksum_of(record);
}

std::uint64_t offset_of(std::uint64_t number) {
    return number % kSlots * sizeof(Record);
}

void require(const Result<void>& done) {
    if (done) return;
    std::printf("pmem_writer: %s\n", done.error().message());
    std::exit(2);
}

void write_from(PmemTier& tier, const Extent& file, std::uint64_t number) {
    std::mt19937_64 random(number);
    const auto record = std::make_unique<Record>();
    for (std::uint64_t batch = 1;; ++batch) {
        for (std::uint64_t left = 1 + random() % kMaxBatch; left > 0; --left, ++number) {
            fill(*record, number);
            const auto bytes = std::as_bytes(std::span(record.get(), 1));
            require(tier.write(file, offset_of(number), bytes));
        }
        require(tier.fence(file));
        std::printf("fenced %" PRIu64 "\n", number - 1);
        std::fflush(stdout);
        // Not after each: the machine would be killed while it waits, and hardly ever in a copy.
        if (batch % kMaxUntoldBatches == 0) (void)::tcdrain(STDOUT_FILENO);
    }
}

int verify_up_to(PmemTier& tier, const Extent& file, std::uint64_t last) {
    const auto record = std::make_unique<Record>();
    const std::uint64_t next = last + kMaxUntold + 1;
    const std::uint64_t oldest = next > kSlots ? next - kSlots : 1;
    std::uint64_t bad = 0;
    for (std::uint64_t number = oldest; number <= last; ++number) {
        const auto bytes = std::as_writable_bytes(std::span(record.get(), 1));
        require(tier.read(file, offset_of(number), bytes));
        if (record->number == number && record->checksum == checksum_of(*record)) continue;
        if (++bad == 1) {
            std::printf("pmem_writer: record %" PRIu64 " is damaged or missing\n", number);
        }
    }
    std::printf("pmem_writer: %" PRIu64 " of %" PRIu64 " records are not there\n", bad,
                last + 1 - oldest);
    return bad == 0 ? 0 : 1;
}

int run(std::string_view command, const char* path, std::uint64_t number) {
    auto tier = PmemTier::create({.path = path, .size_bytes = kFileBytes, .keep_content = true});
    if (!tier) {
        std::printf("pmem_writer: %s\n", tier.error().message());
        return 2;
    }
    if ((*tier)->info().label != Label::real) {
        std::printf("pmem_writer: '%s' is no persistent memory\n", path);
        return 2;
    }
    const auto file = (*tier)->reserve(kFileBytes);
    if (!file) return 2;
    if (command == "verify") return verify_up_to(**tier, *file, number);
    write_from(**tier, *file, number);
    return 0;
}

}  // namespace
}  // namespace frostline

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    return frostline::run(argv[1], argv[2], std::strtoull(argv[3], nullptr, 10));
}
