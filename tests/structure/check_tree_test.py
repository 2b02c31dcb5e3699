"""Proves that each rule of check_tree.py can fail: every test plants violations in a sound tree."""

import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import check_tree  # noqa: E402


class RulesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.plant("README.md", "# Sound\n")
        for layer in check_tree.LAYERS:
            self.plant(f"{layer}/README.md", f"# {layer}\n")
            self.plant(f"{layer}/thing.h", "// Keeps a thing.\n#include <vector>\n")
        self.plant("tests/tiers/thing_test.cpp", '// Tests.\n#include "tiers/thing.h"\n')
        self.plant("run", "#!/usr/bin/env bash\n")

    def plant(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def found(self):
        return list(check_tree.violations(check_tree.Tree(self.root)))

    def expect(self, *starts):
        found = self.found()
        self.assertEqual(len(found), len(starts), found)
        for line, start in zip(sorted(found), sorted(starts)):
            self.assertTrue(line.startswith(start), f"{line!r} should start with {start!r}")

    def test_a_sound_tree_passes(self):
        self.expect()

    def test_what_stands_before_may_be_included(self):
        self.plant("bindings/all.h", "".join(
            ["// All.\n"] + [f'#include "{layer}/thing.h"\n' for layer in check_tree.LAYERS]))
        self.plant("bench/one.cpp", '// One.\n#include "bindings/thing.h"\n#include "bench/x.h"\n')
        self.expect()

    def test_every_back_edge_is_found(self):
        for index, user in enumerate(check_tree.LAYERS):
            for used in check_tree.LAYERS[index + 1:] + check_tree.OUTSIDE:
                with self.subTest(user=user, used=used):
                    self.plant(f"{used}/thing.h", "// Keeps a thing.\n")
                    self.plant(f"{user}/back.h", f'// Back.\n\n#  include "{used}/thing.h"\n')
                    self.expect(f"{user}/back.h:3: includes: {user}/ must not include {used}/")
                    (self.root / user / "back.h").unlink()

    def test_a_back_edge_is_found_however_it_is_written(self):
        self.plant("tiers/angle.cpp", "// Angle.\n#include <allocator/thing.h>\n")
        self.plant("tiers/dots.cpp", '// Dots.\n#include "../migration/thing.h"\n')
        self.plant("tiers/deep/dots.cpp", '// Deep.\n#include "../../bindings/thing.h"\n')
        self.expect("tiers/angle.cpp:2: includes", "tiers/dots.cpp:2: includes",
                    "tiers/deep/dots.cpp:2: includes")

    def test_tests_may_use_bench_and_not_the_other_way_round(self):
        self.plant("bench/one.cpp", '// One.\n#include "tests/tiers/fake.h"\n')
        self.plant("tests/two.cpp", '// Two.\n#include "bench/one.h"\n')
        self.expect("bench/one.cpp:2: includes")

    def test_a_header_that_is_read_twice(self):
        self.plant("tiers/twice.h", "// Twice.\nint twice();\n// #pragma once\n")
        self.plant("tiers/twice.cpp", '// Twice.\n#include "tiers/twice.h"\n')
        self.plant("tiers/once.h", "// Once.\n#ifndef FROSTLINE_ONCE_H\n#endif\n")
        self.plant("tiers/once.cpp", '// Once.\n#include "tiers/once.h"\n')
        self.expect("tiers/twice.h:1: headers")

    def test_a_source_includes_its_own_header_first(self):
        self.plant("tiers/own.h", "// Keeps its own.\n#pragma once\n")
        for text, line in (('#include "tiers/own.h"\n#include <vector>\n', None),
                           ('#include <vector>\n#include "tiers/own.h"\n', 2),
                           ("int none;\n", 1)):
            with self.subTest(text=text):
                self.plant("tiers/own.cpp", "// Keeps its own.\n" + text)
                self.expect(*([] if line is None else [f"tiers/own.cpp:{line}: headers"]))

    def test_unknown_top_level_names(self):
        self.plant("notes.txt", "notes\n")
        self.plant("src/thing.h", "// A thing.\n")
        self.plant(".editorconfig", "\n")
        self.expect("notes.txt:1: top-level", "src:1: top-level")

    def test_long_files(self):
        self.plant("tiers/exact.cpp", "// Long.\n" * check_tree.MAX_LINES)
        self.expect()
        self.plant("tiers/long.cpp", "// Long.\n" * (check_tree.MAX_LINES + 1))
        self.plant("bench/long.py", "# Long.\n" * (check_tree.MAX_LINES + 1))
        self.plant("run", "#!/usr/bin/env bash\n" * (check_tree.MAX_LINES + 1))
        self.expect("tiers/long.cpp:401: length", "bench/long.py:401: length", "run:401: length")

    def test_wide_lines(self):
        self.plant("tiers/exact.h", "//" + "x" * (check_tree.MAX_COLUMNS - 2) + "\n")
        self.expect()
        for name in ("tiers/wide.h", "tests/wide.py", ".ci/wide.sh", ".ci/run"):
            self.plant(name, "#!//\n// " + "x" * check_tree.MAX_COLUMNS + "\n")
        self.expect("tiers/wide.h:2: width", "tests/wide.py:2: width", ".ci/wide.sh:2: width",
                    ".ci/run:2: width", "tiers/wide.h:1: opening")

    def test_vague_names(self):
        for word in sorted(check_tree.VAGUE_WORDS):
            for name in (f"tiers/{word}.h", f"tiers/copy_{word}.cpp", f"tests/{word}/x.cpp"):
                with self.subTest(name=name):
                    self.plant(name, "// A file.\n")
                    self.expect(f"{name}:1: names")
                (self.root / name).unlink()

    def test_vague_type_names(self):
        for word in sorted(check_tree.VAGUE_WORDS):
            for line in (f"class {word.title()} {{", f"struct Copy{word.title()};",
                         f"enum class {word.title()}Kind {{", f"namespace {word} {{",
                         f"class FROSTLINE_API Copy{word.title()} {{"):
                with self.subTest(line=line):
                    self.plant("tiers/thing.h", f"// A thing.\n{line}\n")
                    self.expect("tiers/thing.h:2: names")

    def test_words_inside_of_others_are_not_vague(self):
        self.plant("tiers/database.h", "// Rows.\nclass Database {\nstruct Utility;\n")
        self.expect()

    def test_missing_opening(self):
        self.plant("tiers/bare.h", "#pragma once\n// Too late.\n")
        self.plant("tiers/bare.c", "\nint x;\n")
        self.plant("tiers/block.h", "\n/* Fine. */\n")
        self.expect("tiers/bare.h:1: opening", "tiers/bare.c:1: opening")

    def test_readmes(self):
        self.plant("README.md", "x\n" * 150)
        (self.root / "migration/README.md").unlink()
        self.expect("README.md:150: readmes", "migration:1: readmes")
        (self.root / "README.md").unlink()
        self.expect("README.md:1: readmes", "migration:1: readmes")

    def test_home_paths(self):
        for place in ("/home/" + "ann/x", "/ro" + "ot/.cache", "/Users/" + "ann"):
            with self.subTest(place=place):
                self.plant("docs/paths.md", f"fine: $HOME/x, $x/ro{'ot'}/y\nsee {place}\n")
                self.expect("docs/paths.md:2: home-paths")

    def test_leftovers(self):
        self.plant("tiers/left.cpp", "// Left.\n// TO" + "DO later\n// FIX" + "ME\n")
        self.expect("tiers/left.cpp:2: leftovers", "tiers/left.cpp:3: leftovers")

    def test_every_rule_has_a_test_here(self):
        text = Path(__file__).read_text()
        for rule in check_tree.RULES:
            self.assertRegex(text, rf":\d+: {re.escape(rule)}[\":]", rule)

    def test_binary_files_are_not_read_as_text(self):
        (self.root / "docs").mkdir()
        (self.root / "docs/picture.png").write_bytes(b"\0\xff /ro" + b"ot/x")
        self.expect()

    @unittest.skipUnless(shutil.which("git"), "git is not installed")
    def test_ignored_files_do_not_count(self):
        subprocess.run(["git", "init", "-q", str(self.root)], check=True)
        self.plant(".gitignore", "/build/\n")
        self.plant("build/wide.h", "x" * 200 + "\n")
        self.plant("junk.txt", "not ignored\n")
        self.expect("junk.txt:1: top-level")

    def test_exit_status(self):
        script = Path(check_tree.__file__)
        self.plant("junk.txt", "junk\n")
        done = subprocess.run(
            [sys.executable, str(script), str(self.root)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("junk.txt:1: top-level", done.stdout)
        (self.root / "junk.txt").unlink()
        done = subprocess.run([sys.executable, str(script), str(self.root)], capture_output=True)
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
