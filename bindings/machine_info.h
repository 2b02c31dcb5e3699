// What can be said of the machine: its places, and which tiers could be used here, how, how fast,
// and why others cannot. Every statement is asked for or measured; nothing is guessed.
#pragma once

#include "bindings/api.h"
#include "tiers/result.h"
#include "tiers/tier.h"

#include <cstdint>
#include <string>
#include <vector>

namespace frostline {

struct MachineQuery {
    std::string pmem_path;       ///< file or device for the pmem tier; empty: none is examined
    std::string swap_directory;  ///< empty: TMPDIR, or /tmp
    bool measure = false;        ///< measure again what the cache of measurements knows
};

struct MachineInfo {
    struct Node {
        int id = -1;
        std::uint64_t memory_bytes = 0;
        std::vector<int> cpus;  ///< none: memory only, such as CXL
    };
    struct Device {
        const char* kind = "";  ///< gpu, pmem or block; static
        std::string name;
        std::string pci_address;  ///< empty: on no PCI bus
        int node = -1;            ///< -1: not known
    };
    struct TierReport {
        const char* name = "";  ///< device, dram, pmem, swap; static
        bool usable = false;
        bool asked_for = false;  ///< the query named it
        std::string because;     ///< why it is not usable; empty if it is
        std::string location;    ///< path; empty for memory
        const char* label = "";  ///< real, or emulated (a file stands in for pmem); static
        std::string access;      ///< how it is reached; may be empty
        std::string fallback;    ///< why it is not reached in a better way; empty if it is
        int node = -1;           ///< -1: several, or not known
        TierSpeed speed;
        std::int64_t measured_at_s = 0;    ///< since 1970; 0: not measured
        bool cached = false;               ///< the measurement is an earlier process's
        std::string not_measured_because;  ///< empty if it was
    };

    std::vector<Node> nodes;
    std::vector<Device> devices;
    std::string topology_unknown_because;  ///< then nodes and devices are empty
    std::vector<TierReport> tiers;         ///< device, dram, pmem, swap
    std::string cache_path;                ///< of the measurements; empty: there is none
    std::string cache_problem;             ///< why the cache was of no use; empty if it was
    std::uint64_t measuring_ns = 0;
};

/// Looks around; measures for up to two seconds where figures are missing. An existing file of
/// `pmem_path` is measured, which writes to it, only if `measure` says so.
/// Errors: invalid_argument (FROSTLINE_CALIBRATION), out_of_memory. A tier that cannot be used is
/// no error.
FROSTLINE_API Result<MachineInfo> machine_info(const MachineQuery& query);

}  // namespace frostline
