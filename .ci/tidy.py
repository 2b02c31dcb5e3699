"""Runs clang-tidy over the compile database and skips what it has found clean before.

A source's result depends on its text, on every header of ours that it reaches, on .clang-tidy, on
the compile command and on clang-tidy itself. A hash of all these names an empty file in the cache;
the file is there only if that very input was clean.
"""

import argparse
import concurrent.futures
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

# What CMake adds where headers are precompiled: clang cannot read GCC's, and a source shall name
# what it uses.
PRECOMPILED = re.compile(r"-Winvalid-pch -include .+?/cmake_pch\.hxx\"? ")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def reachable(root, source):
    """The source and every header of the tree that it includes, directly or not."""
    found, waiting = set(), [source]
    while waiting:
        path = waiting.pop()
        if path in found or not path.is_file():
            continue
        found.add(path)
        for name in INCLUDE.findall(path.read_text()):
            waiting += [root / name, root / "bindings" / "include" / name, path.parent / name]
    return sorted({path.resolve() for path in found})


def input_hash(root, entry, tool_version):
    digest = hashlib.sha256(tool_version + (root / ".clang-tidy").read_bytes())
    digest.update(entry["command"].encode())
    for path in reachable(root, Path(entry["file"])):
        digest.update(f"\n{path}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def own_entries(root, build):
    """The sources of the tree, each once and without precompiled headers; what the build generates
    does not count."""
    entries = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = Path(entry["file"])
        if path.suffix == ".cpp" and root in path.parents and build not in path.parents:
            entry["command"] = PRECOMPILED.sub("", entry["command"])
            entries.setdefault(path, entry)
    return [entries[path] for path in sorted(entries)]


def check(options, database, source):
    # GCC's warning options are not all clang's.
    command = [options.clang_tidy, "-p", str(database), "--quiet",
               "--extra-arg=-Wno-unknown-warning-option", source]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # On stderr are only counts of suppressed warnings, unless it failed.
    return done.returncode, done.stdout + (done.stderr if done.returncode else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--clang-tidy", required=True)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    version = subprocess.run([options.clang_tidy, "--version"], capture_output=True).stdout

    entries = own_entries(options.root, options.build)
    database = options.build / "lint"
    database.mkdir(exist_ok=True)
    (database / "compile_commands.json").write_text(json.dumps(entries))
    marks = {e["file"]: options.cache / input_hash(options.root, e, version) for e in entries}
    waiting = [source for source, mark in marks.items() if not mark.exists()]
    print(f"clang-tidy: {len(entries)} sources, {len(waiting)} to check", flush=True)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(check, options, database, source): source for source in waiting}
        for future in concurrent.futures.as_completed(running):
            source, (status, said) = running[future], future.result()
            if status == 0:
                marks[source].touch()
            else:
                failed += 1
                print(said, flush=True)
    if failed:
        print(f"clang-tidy: {failed} sources with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
