"""Proves that programs can be built against an installed Frostline and run, and that the examples
in docs/linking.md are such programs.

Settings, from the environment: FROSTLINE_BUILD_DIR, the build that is installed; CC and CXX, its
compilers. What uses a GPU runs on the emulated driver that is installed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = os.environ["FROSTLINE_BUILD_DIR"]
CC, CXX = os.environ.get("CC", "cc"), os.environ.get("CXX", "c++")
# The room is 1,664 bytes where this was written, and less with PyTorch loaded.
MOST_TLS_BYTES = 599  # docs/linking.md has the figure
HOG_TLS_BYTES = 128
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^    (\S.*)$", re.MULTILINE)


class ConsumerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Installs as a packager does, below DESTDIR, and then moves the tree to where no path in
        it can have been meant to lead."""
        cls._folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls._folder.cleanup)
        cls.scratch = Path(cls._folder.name)
        staged = cls.scratch / "staged"
        done = subprocess.run(["cmake", "--install", BUILD, "--prefix", "/opt/frostline"],
                              env={**os.environ, "DESTDIR": str(staged)},
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)
        cls.prefix = cls.scratch / "moved" / "here"
        cls.prefix.parent.mkdir()
        (staged / "opt" / "frostline").rename(cls.prefix)
        cls.left_over = [path for path in staged.rglob("*") if not path.is_dir()]
        cls.library = next(cls.prefix.rglob("libfrostline.so"))
        cls.lib_dir = cls.library.parent
        cls.emulator = cls.lib_dir / "frostline" / "libfrostline_emulator.so"

    def folder(self):
        return Path(tempfile.mkdtemp(dir=self.scratch))

    def run_ok(self, *command, **environment):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout

    def pkg_config(self, *arguments):
        return self.run_ok("pkg-config", *arguments, "frostline",
                           PKG_CONFIG_PATH=str(self.lib_dir / "pkgconfig")).split()

    def configure(self, source, build, *arguments):
        return subprocess.run(
            ["cmake", "-S", str(source), "-B", str(build), f"-DCMAKE_PREFIX_PATH={self.prefix}",
             f"-DCMAKE_C_COMPILER={CC}", f"-DCMAKE_CXX_COMPILER={CXX}", *arguments],
            capture_output=True, text=True)

    def build_with_cmake(self, source):
        build = self.folder()
        done = self.configure(source, build)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.run_ok("cmake", "--build", build)
        return build

    def run_with_driver(self, program):
        return self.run_ok(program, FROSTLINE_CUDA_DRIVER=str(self.emulator))

    def test_a_cmake_project_is_built_and_runs(self):
        build = self.build_with_cmake(HERE)
        version = self.pkg_config("--modversion")
        for program in ("cpp_program", "c_program"):
            self.assertEqual(self.run_with_driver(build / program).split(), version)
        self.run_ok(build / "cpp_program", FROSTLINE_CUDA_DRIVER="/no/such/driver.so")

    def test_a_project_in_c_needs_no_cpp(self):
        source = self.folder()
        shutil.copy(HERE / "program.c", source)
        (source / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(plain LANGUAGES C)\n"
            "find_package(frostline REQUIRED)\nadd_executable(program program.c)\n"
            "target_link_libraries(program PRIVATE frostline::frostline)\n")
        self.run_ok(self.build_with_cmake(source) / "program")

    def test_another_version_or_a_component_is_refused(self):
        for wanted, said in (("0.2", "0.2"), ("1.0", "1.0"), ("0.1 COMPONENTS tape", "tape")):
            source = self.folder()
            (source / "CMakeLists.txt").write_text(
                "cmake_minimum_required(VERSION 3.25)\nproject(wrong LANGUAGES CXX)\n"
                f"find_package(frostline {wanted} REQUIRED)\n")
            done = self.configure(source, source / "build")
            self.assertNotEqual(done.returncode, 0, wanted)
            self.assertIn(said, done.stderr)

    def test_a_c_program_is_built_with_pkg_config(self):
        program = self.folder() / "program"
        self.run_ok(CC, "-std=c11", *WARNINGS, HERE / "program.c",
                    *self.pkg_config("--cflags", "--libs"), "-o", program)
        self.run_ok(program, LD_LIBRARY_PATH=str(self.lib_dir))

    def test_what_is_installed_is_complete_and_names_no_other_place(self):
        self.assertEqual(self.left_over, [])
        links = [self.lib_dir / name for name in ("libfrostline.so", "libfrostline.so.0")]
        for link in links:
            self.assertTrue(link.is_symlink())
            self.assertEqual(Path(os.readlink(link)).parent, Path("."), "a link out of its folder")
        for path in self.prefix.rglob("*"):
            if path.suffix in {".cmake", ".pc", ".h"}:
                text = path.read_text()
                for place in ("/opt/frostline", str(ROOT), BUILD):
                    self.assertNotIn(place, text, path)
        installed = {path.name for path in (self.prefix / "include" / "frostline").iterdir()}
        public = {path.name for path in (ROOT / "bindings/include/frostline").iterdir()}
        self.assertEqual(installed, public)
        self.run_ok(self.prefix / "bin" / "frostline", "--version")

    def test_the_examples_of_the_documentation_work(self):
        """As a reader uses them: each in a folder of its own, with the commands beside it."""
        text = (ROOT / "docs" / "linking.md").read_text()
        examples = {}
        for language, code in FENCE.findall(text):
            examples.setdefault(language, []).append(code)
        self.assertEqual({name: len(codes) for name, codes in examples.items()},
                         {"cpp": 2, "cmake": 1, "c": 1})
        commands = [command.replace("/opt/frostline", str(self.prefix))
                    for command in COMMAND.findall(FENCE.sub("", text))]
        self.assertEqual([command.split()[0].split("=")[0] for command in commands],
                         ["cmake"] * 4 + ["FROSTLINE_CUDA_DRIVER", "export", "cc"])
        *_install, build, run_emulated, path, compile_c = commands
        for code in examples["cpp"]:
            folder = self.folder()
            (folder / "example.cpp").write_text(code)
            (folder / "CMakeLists.txt").write_text(examples["cmake"][0])
            self.run_ok("bash", "-ec", f"cd {folder}\n{build}\n{run_emulated}")
        torch = (ROOT / "docs" / "pytorch.md").read_text()
        of_torch = [code for language, code in FENCE.findall(torch) if language == "c"]
        self.assertEqual(len(of_torch), 1)
        for code in examples["c"] + of_torch:
            folder = self.folder()
            (folder / "example.c").write_text(code)
            self.run_ok("bash", "-ec", f"cd {folder}\n{path}\n{compile_c} {' '.join(WARNINGS)}\n"
                        f"{run_emulated.replace('build/', './')}")

    def test_what_a_program_recorded_is_replayed(self):
        bench = Path(BUILD) / "bin" / "frostline_bench"
        if not bench.exists():
            self.skipTest("built without the benchmarks")
        text = (ROOT / "docs" / "heaps.md").read_text()
        [(language, code)] = FENCE.findall(text)
        self.assertEqual(language, "cpp")
        [command] = COMMAND.findall(FENCE.sub("", text))
        folder = self.folder()
        source, program = folder / "example.cpp", folder / "example"
        source.write_text(code)
        self.run_ok(CXX, "-std=c++20", *WARNINGS, source, *self.pkg_config("--cflags", "--libs"),
                    f"-Wl,-rpath,{self.lib_dir}", "-o", program)
        command = command.replace("./run bench", str(bench))
        said = self.run_ok("bash", "-ec", f"cd {folder}\n{program}\n{command}")
        self.assertIn("steps: mapped", said)
        recording = folder / "steps.allocs"
        for content, complaint in (("", "does not begin"),
                                   ("frostline-allocs 1\n", "no allocations"),
                                   ("frostline-allocs 1\na 1 512\nf 2\n", ":3: "),
                                   ("frostline-allocs 1\na 1 many\n", ":2: "),
                                   ("frostline-allocs 1\nb 1\n", ":2: "),
                                   ("frostline-allocs 1\na 1 0\n", ":2: ")):
            recording.write_text(content)
            done = subprocess.run([bench, "heaps", "--allocs", recording],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, content)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(complaint, done.stderr)
        for arguments in (["heaps", "--allocs"], ["heaps", "--allocs", "a", "--allocs", "b"],
                          ["tiers", "--allocs", recording], ["heaps", "--allocs", folder / "none"]):
            done = subprocess.run([bench, *arguments], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def load(self, *libraries, **environment):
        """Loads them one after the other into a Python that runs already, and nothing else."""
        script = "import ctypes, sys\nfor path in sys.argv[1:]: ctypes.CDLL(path)"
        return subprocess.run([sys.executable, "-c", script, *map(str, libraries)],
                              capture_output=True, text=True, env={**os.environ, **environment})

    def test_a_program_that_runs_can_load_the_library(self):
        """The loader keeps some room for thread-local data of libraries that come late. This one
        takes little of it, and where others left nothing the documented remedies help.
        """
        self.assertEqual(self.load(self.library).stderr, "")
        size_bytes = sum(int(line.split()[5], 16)
                         for line in self.run_ok("readelf", "-lW", self.library).splitlines()
                         if line.split()[:1] == ["TLS"])
        self.assertTrue(0 < size_bytes <= MOST_TLS_BYTES, size_bytes)
        hogs = self.libraries_that_fill_the_room()
        self.assertGreater(len(hogs) * HOG_TLS_BYTES, 2 * MOST_TLS_BYTES)
        message = "cannot allocate memory in static TLS block"
        self.assertIn(message, self.load(*hogs, self.library).stderr)
        remedies = {"LD_PRELOAD": str(self.library),
                    "GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=4096"}
        for name, value in remedies.items():
            self.assertEqual(self.load(*hogs, self.library, **{name: value}).stderr, "", name)
        text = (ROOT / "docs" / "linking.md").read_text()
        for words in (message, "LD_PRELOAD", remedies["GLIBC_TUNABLES"]):
            self.assertIn(words, text)

    def libraries_that_fill_the_room(self):
        """As many with thread-local data as one Python can load."""
        source = self.folder() / "hog.c"
        source.write_text(f"__thread char hog[{HOG_TLS_BYTES}] "
                          '__attribute__((tls_model("initial-exec"))) = {1};\n'
                          "char* use(void) { return hog; }\n")
        first = source.with_suffix(".so")
        self.run_ok(CC, "-shared", "-fPIC", source, "-o", first)
        hogs = [first]
        while self.load(*hogs).returncode == 0:
            hogs.append(first.with_name(f"hog{len(hogs)}.so"))
            shutil.copy(first, hogs[-1])
            self.assertLess(len(hogs), 100, "the loader's room is never used up")
        return hogs[:-1]


if __name__ == "__main__":
    unittest.main()
