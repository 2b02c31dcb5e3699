"""frostline_train as a user runs it, on the emulated driver.

The environment names the program (FROSTLINE_TRAIN) and the driver (FROSTLINE_CUDA_DRIVER).
"""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SMALL = ["--layers", "2", "--width", "40", "--heads", "5", "--context", "30", "--batch", "3"]


def run(*arguments, **environment):
    return subprocess.run(
        [os.environ["FROSTLINE_TRAIN"], *arguments],
        capture_output=True, text=True, env={**os.environ, **environment}, timeout=60,
    )


class ProgramTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def trained(self, *arguments, **environment):
        done = run(*SMALL, *arguments, **environment)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout

    def refused(self, status, *arguments, **environment):
        """The one line that it says instead."""
        done = run(*arguments, **environment)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertRegex(done.stderr, r"\Afrostline_train: error: [^\n]+\n\Z")
        return done.stderr

    def test_two_runs_are_the_same_to_the_bit_whatever_the_timing(self):
        results = []
        for seed in "12":
            losses = self.folder / f"losses{seed}"
            printed = self.trained(
                "--steps", "4", "--losses", str(losses), "--weights-hash",
                FROSTLINE_EMULATOR_SEED=seed, FROSTLINE_EMULATOR_JITTER_US="50",
            )
            results.append((losses.read_text(), printed.splitlines()[-1]))
        self.assertEqual(results[0], results[1])
        self.assertRegex(results[0][1], r"\Aweights [0-9a-f]{16}\Z")

    def test_losses_fall_and_the_report_has_them(self):
        losses, report = self.folder / "losses", self.folder / "report"
        printed = self.trained("--steps", "30", "--lr", "0.01",
                               "--losses", str(losses), "--report", str(report))
        values = [float.fromhex(line) for line in losses.read_text().split()]
        found = json.loads(report.read_text())
        self.assertEqual(found["losses"], values)
        self.assertEqual(len(found["step_seconds"]), 30)
        self.assertEqual(len(found["step_start_ns"]), 30)
        self.assertEqual(found["label"], "emulated")
        self.assertEqual(found["peak_device_bytes"], found["plan"]["total_bytes"])
        self.assertLess(values[-1], 0.75 * values[0])
        self.assertIn("(emulated)", printed.splitlines()[-1])

    def test_the_report_says_what_ran_and_where_bytes_were(self):
        report = self.folder / "report"
        tiers = {"device": "8MiB", "dram": "4MiB", "swap": str(self.folder), "swap_bytes": "64MiB"}
        # A tensor of its batch has 256 KiB, the least that moves.
        shape = {"layers": 3, "width": 128, "heads": 4, "context": 64, "batch": 8, "steps": 2}
        done = run(*(f"--{name}={value}" for name, value in shape.items()),
                   "--offload=all", *(f"--tier={name}={value}" for name, value in tiers.items()),
                   f"--report={report}",
                   FROSTLINE_CALIBRATION="off", FROSTLINE_EMULATOR_GRANULARITY="64KiB")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        found = json.loads(report.read_text())
        self.assertEqual(found["misuses"], 0)
        self.assertLess(found["fixed_device_bytes"], found["peak_device_bytes"])
        begin = found["step_start_ns"][0]
        for kind in ("kernel", "to_device", "from_device"):
            columns = found["operations"][kind]
            self.assertEqual(len({len(column) for column in columns.values()}), 1, kind)
            self.assertGreater(columns["end_ns"][-1], begin, kind)
            self.assertTrue(all(map(int.__le__, columns["start_ns"], columns["end_ns"])), kind)
        self.assertGreater(sum(found["operations"]["from_device"]["bytes"]), 0)
        timeline = found["timeline"]
        self.assertEqual(set(timeline), {"time_ns", "device", "dram", "swap"})
        self.assertEqual(len({len(column) for column in timeline.values()}), 1)
        for name in ("device", "dram", "swap"):
            self.assertLessEqual(max(timeline[name]), found["tiers"][name]["peak_bytes"])

    def test_a_seed_gives_other_losses(self):
        tables = [self.trained("--steps", "1", "--seed", seed).split()[4] for seed in "12"]
        self.assertNotEqual(tables[0], tables[1])

    def test_plan_needs_no_driver(self):
        done = run(*SMALL, "--plan", FROSTLINE_CUDA_DRIVER="none")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        rows = {line.split()[0]: int(line.split()[1]) for line in done.stdout.splitlines()[1:]}
        total = rows.pop("total")
        self.assertEqual(total, sum(rows.values()))
        self.assertEqual(rows["optimizer"], 2 * rows["weights"])

    def test_wrong_calls_are_refused_by_name(self):
        self.assertIn("--nonsense", self.refused(2, "--nonsense"))
        self.assertIn("width", self.refused(2, "--width", "30", "--heads", "4"))
        self.assertIn("steps", self.refused(2, "--steps", "0"))
        self.assertIn("lr", self.refused(2, "--lr", "-1"))
        self.assertIn("some", self.refused(2, "--offload", "some"))

    def test_what_is_missing_is_named(self):
        self.assertIn("no/text", self.refused(1, "--text", "no/text"))
        self.assertIn("no/module", self.refused(1, "--module", "no/module"))
        self.assertIn("GPU 5", self.refused(1, "--device", "5"))
        self.assertIn("no driver here", self.refused(1, FROSTLINE_CUDA_DRIVER="no driver here"))

    def test_a_full_device_is_an_error(self):
        said = self.refused(1, "--layers", "8", "--width", "256",
                            FROSTLINE_EMULATOR_MEMORY="32MiB")
        self.assertIn("OUT_OF_MEMORY", said)

    def test_any_call_of_the_driver_may_fail(self):
        unknown = 999
        faults = [
            "cuInit:1", "cuDeviceGet:1", "cuDevicePrimaryCtxRetain:1", "cuStreamCreate:1",
            "cuModuleLoad:1", "cuModuleGetFunction:3", "cuDeviceGetName:1", "cuCtxPushCurrent:9",
            "cuMemAlloc:1", "cuMemAlloc:9", "cuMemAlloc:40", "cuMemsetD8Async:2",
            "cuMemcpyHtoDAsync:1", "cuMemcpyHtoDAsync:6", "cuLaunchKernel:1", "cuLaunchKernel:77",
            "cuStreamSynchronize:2", "cuMemcpyDtoHAsync:1",
        ]
        for fault in faults:
            with self.subTest(fault=fault):
                # What the failed call would have made cannot be given back.
                said = self.refused(1, *SMALL, "--steps", "1", FROSTLINE_EMULATOR_LEAKS="0",
                                    FROSTLINE_EMULATOR_FAULTS=f"{fault}:{unknown}")
                self.assertIn(str(unknown), said)

    def test_files_that_cannot_be_used_are_refused_before_anything_is_computed(self):
        missing, folder = self.folder / "no" / "file", self.folder
        for option in ("--losses", "--report"):
            for path in (missing, folder):
                with self.subTest(option=option, path=path):
                    said = self.refused(1, *SMALL, option, str(path))
                    self.assertIn(f"{option}: cannot write '{path}'", said)
        self.assertIn(f"{folder} is a folder", self.refused(1, "--text", str(folder)))
        self.assertEqual(list(folder.iterdir()), [])

    def test_the_gpu_of_the_tiers_is_the_one_that_it_trains_on(self):
        said = self.refused(1, "--offload", "all", "--tier", "device=64MiB", "--tier", "dram=64MiB",
                            "--tier", "gpu=1", FROSTLINE_EMULATOR_DEVICES="2")
        self.assertIn("gpu=1", said)
        self.assertIn("--device", said)


if __name__ == "__main__":
    unittest.main()
