"""Proves that programs can be built against an installed Frostline and run, and that the examples
in docs/linking.md are such programs.

Settings, from the environment: FROSTLINE_BUILD_DIR, the build that is installed; CC and CXX, its
compilers; FROSTLINE_EMULATOR, a driver for the examples that use a GPU.
"""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = os.environ["FROSTLINE_BUILD_DIR"]
CC, CXX = os.environ.get("CC", "cc"), os.environ.get("CXX", "c++")
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


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
        return self.run_ok(program, FROSTLINE_CUDA_DRIVER=os.environ["FROSTLINE_EMULATOR"])

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
        text = (ROOT / "docs" / "linking.md").read_text()
        examples = {}
        for language, code in FENCE.findall(text):
            examples.setdefault(language, []).append(code)
        self.assertEqual({name: len(codes) for name, codes in examples.items()},
                         {"cpp": 2, "cmake": 1, "c": 1})
        for code in examples["cpp"]:
            source = self.folder()
            (source / "example.cpp").write_text(code)
            (source / "CMakeLists.txt").write_text(examples["cmake"][0])
            self.run_with_driver(self.build_with_cmake(source) / "example")
        source = self.folder() / "example.c"
        source.write_text(examples["c"][0])
        program = source.with_suffix("")
        self.run_ok(CC, "-std=c11", *WARNINGS, source, *self.pkg_config("--cflags", "--libs"),
                    f"-Wl,-rpath,{self.lib_dir}", "-o", program)
        self.run_ok(program)


if __name__ == "__main__":
    unittest.main()
