"""The rules of the source tree, checked: who may include whom, what lies where, how files read.

Usage: check_tree.py ROOT. Prints each violation as `file:line: rule: what is wrong` and exits 1 if
there was one. Needs the standard library only.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

# From left to right: a folder includes itself and what stands before it.
LAYERS = ["tiers", "allocator", "migration", "bindings"]
# These use every layer, and tests what they test in bench; the layers use neither.
OUTSIDE = ["tests", "bench"]

TOP_LEVEL = {"CMakeLists.txt", "CMakePresets.json", "README.md", "LICENSE", "run", "docs"}
TOP_LEVEL.update(LAYERS + OUTSIDE)

MAX_LINES = 400
MAX_COLUMNS = 100
MAX_README_LINES = 149
CPP_SUFFIXES = {".cpp", ".h", ".c", ".cu"}
VAGUE_WORDS = {"util", "utils", "helper", "helpers", "misc", "common", "base"}

# Written in two halves where this file would otherwise break its own rules.
LEFTOVER = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
HOME_PATH = re.compile(r"(?<![\w.])/(home/\w|ro" r"ot/|Users/\w)")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
GUARD = re.compile(r"#pragma once$|#ifndef \w+_H_?$")
TYPE_NAME = re.compile(
    r"^\s*(?:template\s*<.*>\s*)?(?:class|struct|union|enum(?:\s+(?:class|struct))?|concept"
    r"|namespace)\s+(?:[A-Z_]+\s+|\[\[[^\]]*\]\]\s*)?([A-Za-z_]\w*)"
)
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class Tree:
    """The files that belong to the project: what git tracks or would add, without ignored ones."""

    def __init__(self, root):
        self.root = Path(root).resolve()
        self.files = sorted(self._from_git() or self._from_disk())
        self._lines = {}

    def _git(self, *arguments):
        try:
            done = subprocess.run(
                ["git", "-C", str(self.root), *arguments], capture_output=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.decode()

    def _from_git(self):
        # Only where git calls this very folder its root; a tree unpacked inside of some other
        # repository is read from the disk.
        top = self._git("rev-parse", "--show-toplevel")
        if top is None or Path(top.strip()).resolve() != self.root:
            return None
        listed = self._git("ls-files", "-z", "-co", "--exclude-standard") or ""
        names = {Path(name) for name in listed.split("\0") if name}
        return [name for name in names if (self.root / name).is_file()]

    def _from_disk(self):
        names = []
        for folder, folders, files in os.walk(self.root):
            folders[:] = [f for f in folders if f not in {".git", "__pycache__"}]
            if Path(folder) == self.root:
                folders[:] = [f for f in folders if f not in {"build", "report"}]
            names += [(Path(folder) / f).relative_to(self.root) for f in files]
        return names

    def lines(self, name):
        """The file's lines; none if it is not text."""
        if name not in self._lines:
            data = (self.root / name).read_bytes()
            try:
                text = "" if b"\0" in data else data.decode()
            except UnicodeDecodeError:
                text = ""
            self._lines[name] = text.split("\n")[:-1] if text.endswith("\n") else text.split("\n")
        return self._lines[name]

    def cpp_files(self):
        return [name for name in self.files if name.suffix in CPP_SUFFIXES]

    def code_files(self):
        return [name for name in self.files if self._is_code(name)]

    def _is_code(self, name):
        if name.suffix in CPP_SUFFIXES | {".py", ".sh", ".cmake"} or name.name == "CMakeLists.txt":
            return True
        lines = self.lines(name)
        return name.suffix == "" and bool(lines) and lines[0].startswith("#!")


def layer_of_include(tree, name, included):
    """The top-level folder that an include reaches, however it is written; None if foreign."""
    for target in (included, os.path.normpath(name.parent / included)):
        first = Path(target).parts[0]
        if first in LAYERS + OUTSIDE and (tree.root / first).is_dir():
            if target == included or (tree.root / target).exists():
                return first
    return None


def may_include(user, used):
    if user in OUTSIDE:
        return user == "tests" or used in LAYERS or used == user
    return used in LAYERS and LAYERS.index(used) <= LAYERS.index(user)


def check_includes(tree):
    for name in tree.cpp_files():
        user = name.parts[0]
        if user not in LAYERS + OUTSIDE:
            continue
        for number, line in enumerate(tree.lines(name), 1):
            match = INCLUDE.match(line)
            used = match and layer_of_include(tree, name, match.group(1))
            if used and not may_include(user, used):
                yield name, number, f"{user}/ must not include {used}/ ({match.group(1)})"


def check_headers(tree):
    """That a header compiles alone, its own source proves; and a guard, that it does so twice. The
    headers without a source are tried by the build (tests/CMakeLists.txt)."""
    for name in tree.cpp_files():
        own = name.with_suffix(".h")
        if name.parts[0] not in LAYERS or name.suffix != ".cpp" or own not in tree.files:
            continue
        if not any(GUARD.match(line) for line in tree.lines(own)):
            yield own, 1, "nothing keeps this header from being read twice: #pragma once"
        includes = ((n, INCLUDE.match(line)) for n, line in enumerate(tree.lines(name), 1))
        number, first = next(((n, m.group(1)) for n, m in includes if m), (1, None))
        if first != str(own):
            yield name, number, f"the first include is {own}, which so proves to need no other"


def check_top_level(tree):
    for top in sorted({name.parts[0] for name in tree.files}):
        if top not in TOP_LEVEL and not top.startswith("."):
            yield Path(top), 1, "this name has no place at the root of the tree"


def check_length(tree):
    for name in tree.code_files():
        count = len(tree.lines(name))
        if count > MAX_LINES:
            yield name, count, f"{count} lines; {MAX_LINES} at most: one idea per file"


def check_width(tree):
    for name in tree.code_files():
        for number, line in enumerate(tree.lines(name), 1):
            if len(line) > MAX_COLUMNS:
                yield name, number, f"{len(line)} columns; {MAX_COLUMNS} at most"


def vague_word(text):
    return next((word for word in WORD.findall(text) if word.lower() in VAGUE_WORDS), None)


def check_names(tree):
    for name in tree.files:
        word = next(filter(None, map(vague_word, name.parts)), None)
        if word:
            yield name, 1, f"'{word}' in a name says nothing of what is inside"
    for name in tree.cpp_files() + [f for f in tree.files if f.suffix == ".py"]:
        for number, line in enumerate(tree.lines(name), 1):
            match = TYPE_NAME.match(line)
            word = match and vague_word(match.group(1))
            if word:
                yield name, number, f"'{word}' in {match.group(1)} says nothing of what it is"


def check_opening(tree):
    for name in tree.cpp_files():
        first = next((line.strip() for line in tree.lines(name) if line.strip()), "")
        if not first.startswith(("//", "/*")):
            yield name, 1, "a file opens with a comment: its invariant or its purpose"


def check_readmes(tree):
    readme = Path("README.md")
    count = len(tree.lines(readme)) if readme in tree.files else 0
    if count == 0:
        yield readme, 1, "the project has no README.md"
    if count > MAX_README_LINES:
        yield readme, count, f"{count} lines; {MAX_README_LINES} at most"
    for layer in LAYERS:
        if Path(layer) / "README.md" not in tree.files:
            yield Path(layer), 1, "the folder has no README.md"


def check_home_paths(tree):
    for name in tree.files:
        for number, line in enumerate(tree.lines(name), 1):
            if HOME_PATH.search(line):
                yield name, number, "an absolute path into someone's home"


def check_leftovers(tree):
    for name in tree.files:
        for number, line in enumerate(tree.lines(name), 1):
            match = LEFTOVER.search(line)
            if match:
                yield name, number, f"{match.group(1)}: do it, or file it where work is tracked"


RULES = {
    "includes": check_includes,
    "headers": check_headers,
    "top-level": check_top_level,
    "length": check_length,
    "width": check_width,
    "names": check_names,
    "opening": check_opening,
    "readmes": check_readmes,
    "home-paths": check_home_paths,
    "leftovers": check_leftovers,
}


def violations(tree):
    for rule, check in RULES.items():
        for name, number, text in check(tree):
            yield f"{name}:{number}: {rule}: {text}"


def main(arguments):
    if len(arguments) != 1:
        sys.exit(__doc__)
    tree = Tree(arguments[0])
    found = list(violations(tree))
    for line in found:
        print(line)
    print(f"{len(tree.files)} files, {len(RULES)} rules, {len(found)} violations")
    return 1 if found or not tree.files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
