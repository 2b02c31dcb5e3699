// No image gets a name in the file system: one that comes from memory is loaded through a memfd.
#include "tiers/emulator/module_image.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace frostline::emulator {
namespace {

// Magic numbers of what nvcc puts into a program: the wrapper and the fat binary itself.
constexpr std::uint32_t kFatBinaryWrapper = 0x466243b1;
constexpr std::uint32_t kFatBinary = 0xba55ed50;
constexpr std::uint16_t kMachineCuda = 190;

CUresult load(const std::string& path, std::shared_ptr<const ModuleImage>& image) {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        std::fprintf(stderr, "frostline emulator: module: %s\n", dlerror());
        return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
    }
    image = std::make_shared<const ModuleImage>(library);
    return CUDA_SUCCESS;
}

// Whether this is a library of this machine. `bytes` is how much may be read; at least 4.
CUresult recognise(const void* data, std::size_t bytes) {
    std::uint32_t magic = 0;
    std::memcpy(&magic, data, sizeof(magic));
    if (magic == kFatBinaryWrapper || magic == kFatBinary) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (std::memcmp(data, ELFMAG, SELFMAG) != 0) {
        // PTX is text; it opens with a comment or with its version.
        const bool is_ptx = std::memcmp(data, ".ver", 4) == 0 || std::memcmp(data, "//", 2) == 0;
        return is_ptx ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_IMAGE;
    }
    if (bytes < sizeof(Elf64_Ehdr)) return CUDA_ERROR_INVALID_IMAGE;
    Elf64_Ehdr header;
    std::memcpy(&header, data, sizeof(header));
    if (header.e_machine == kMachineCuda) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    const bool loadable = header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_type == ET_DYN &&
                          header.e_phentsize == sizeof(Elf64_Phdr);
    return loadable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

// The image ends where its last segment or its table of sections does, whichever is later.
std::size_t image_bytes(const std::byte* data) {
    Elf64_Ehdr header;
    std::memcpy(&header, data, sizeof(header));
    std::uint64_t end =
        header.e_shoff + std::uint64_t{header.e_shentsize} * std::uint64_t{header.e_shnum};
    for (std::size_t i = 0; i < header.e_phnum; ++i) {
        Elf64_Phdr segment;
        std::memcpy(&segment, data + header.e_phoff + i * sizeof(segment), sizeof(segment));
        end = std::max(end, segment.p_offset + segment.p_filesz);
    }
    return end;
}

bool write_all(int file, const std::byte* data, std::size_t bytes) {
    while (bytes > 0) {
        const ssize_t written = write(file, data, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        data += written;
        bytes -= static_cast<std::size_t>(written);
    }
    return true;
}

// Reads the first bytes of a file, which is enough to recognise it; -1 on failure.
ssize_t read_header(const std::string& path, void* header, std::size_t bytes) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    const ssize_t got = pread(file, header, bytes, 0);
    close(file);
    return got;
}

}  // namespace

CUresult ModuleImage::from_file(const std::string& path,
                                std::shared_ptr<const ModuleImage>& image) {
    Elf64_Ehdr header{};
    const ssize_t got = read_header(path, &header, sizeof(header));
    if (got < 0) return CUDA_ERROR_FILE_NOT_FOUND;
    if (got < SELFMAG) return CUDA_ERROR_INVALID_IMAGE;
    const CUresult known = recognise(&header, static_cast<std::size_t>(got));
    if (known != CUDA_SUCCESS) return known;
    // A name without a slash would be searched for among the system's libraries.
    return load(path.find('/') == std::string::npos ? "./" + path : path, image);
}

CUresult ModuleImage::from_memory(const void* data, std::shared_ptr<const ModuleImage>& image) {
    const CUresult known = recognise(data, sizeof(Elf64_Ehdr));
    if (known != CUDA_SUCCESS) return known;
    const int file = memfd_create("frostline-module", MFD_CLOEXEC);
    if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    const auto* const bytes = static_cast<const std::byte*>(data);
    const bool written = write_all(file, bytes, image_bytes(bytes));
    const CUresult result =
        written ? load("/proc/self/fd/" + std::to_string(file), image) : CUDA_ERROR_OUT_OF_MEMORY;
    close(file);
    return result;
}

ModuleImage::~ModuleImage() {
    if (dlclose(library_) != 0) std::fprintf(stderr, "frostline emulator: %s\n", dlerror());
}

const FrostlineEmulatedKernel* ModuleImage::kernel(const std::string& name) const {
    const std::string symbol = "frostline_kernel_" + name;
    return static_cast<const FrostlineEmulatedKernel*>(dlsym(library_, symbol.c_str()));
}

}  // namespace frostline::emulator
