// Starting fio, and reading its report.
#include "bench/fio.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <stdexcept>
#include <vector>

namespace frostline::bench {
namespace {

void run_to_end(std::vector<std::string> words) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    // Our DRAM lies in huge pages, which make a transfer much cheaper; so shall fio's.
    std::string huge_pages = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1";
    std::vector<char*> environment{huge_pages.data()};
    for (char** each = environ; *each != nullptr; ++each) environment.push_back(*each);
    environment.push_back(nullptr);
    pid_t child = 0;
    const int error = ::posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(),
                                     environment.data());
    if (error != 0) {
        throw std::runtime_error(
            fmt::format("cannot start fio: {}; install it first", std::strerror(error)));
    }
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0) {
        throw std::runtime_error(fmt::format("fio ended with status {}", status));
    }
}

}  // namespace

FioResult run_fio(const FioJob& job) {
    const std::string report = job.folder + "/fio.json";
    run_to_end({"fio", "--name=ceiling", "--filename=" + job.folder + "/fio.data",
                "--ioengine=io_uring", "--direct=1", "--registerfiles", "--fixedbufs",
                "--overwrite=1", "--rw=" + job.pattern, fmt::format("--bs={}", job.block_bytes),
                fmt::format("--iodepth={}", job.depth), fmt::format("--size={}", job.total_bytes),
                "--output-format=json", "--output=" + report});
    std::ifstream file(report);
    const auto text = nlohmann::json::parse(file, nullptr, false);
    if (!text.is_object()) throw std::runtime_error("fio's report cannot be read");
    const auto& result = text.at("jobs").at(0);
    const auto& read = result.at("read");
    const auto& write = result.at("write");
    const double runtime_s = result.at("job_runtime").get<double>() / 1000;
    return {read.at("bw_bytes").get<double>() + write.at("bw_bytes").get<double>(),
            (result.at("usr_cpu").get<double>() + result.at("sys_cpu").get<double>()) / 100 *
                runtime_s};
}

}  // namespace frostline::bench
