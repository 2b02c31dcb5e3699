// The names of the driver functions that the emulator exports, read from the library itself: a test
// that walks over all of them forgets none.
#pragma once

#include <elf.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace frostline::emulator_test {

inline std::vector<std::string> exported_functions() {
    std::ifstream file(FROSTLINE_EMULATOR, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const auto read = [&bytes](auto& into, std::size_t offset) {
        ASSERT_LE(offset + sizeof(into), bytes.size());
        std::memcpy(&into, bytes.data() + offset, sizeof(into));
    };
    Elf64_Ehdr header{};
    read(header, 0);
    std::vector<std::string> names;
    for (std::size_t i = 0; i < header.e_shnum; ++i) {
        Elf64_Shdr section{};
        read(section, header.e_shoff + i * sizeof(section));
        if (section.sh_type != SHT_DYNSYM) continue;
        Elf64_Shdr strings{};
        read(strings, header.e_shoff + section.sh_link * sizeof(strings));
        for (std::size_t at = 0; at < section.sh_size; at += sizeof(Elf64_Sym)) {
            Elf64_Sym symbol{};
            read(symbol, section.sh_offset + at);
            const std::string name = bytes.data() + strings.sh_offset + symbol.st_name;
            if (symbol.st_shndx != SHN_UNDEF && name.starts_with("cu")) names.push_back(name);
        }
    }
    return names;
}

}  // namespace frostline::emulator_test
