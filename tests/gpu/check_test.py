"""Proves that check.sh says so where there is no GPU, and what its Python parts do without one."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import table  # noqa: E402


def check(*arguments, timeout_s=500, **environment):
    return subprocess.run([HERE / "check.sh", *arguments], capture_output=True, text=True,
                          timeout=timeout_s, env={**os.environ, **environment})


class CheckTest(unittest.TestCase):
    def test_without_a_gpu_it_says_so_and_with_one_it_passes(self):
        with tempfile.TemporaryDirectory() as build:
            done = check("--build", build)
            if done.returncode == 77:
                self.assertIn("no NVIDIA GPU", done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertEqual(list(Path(build).iterdir()), [])
            else:
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_wrong_calls_are_refused(self):
        for arguments, said in ((("--nonsense",), "nonsense"), (("--prefix",), "--prefix"),
                                (("--prefix", "/no/such/folder"), "/no/such/folder")):
            done = check(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stderr)
        self.assertEqual(check("--help").returncode, 0)

    def test_the_table_shows_what_there_is(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            self.assertEqual(table.table(folder), [])
            (folder / "parts.tsv").write_text("build\tok\t12\t\ntorch\tskipped\t1\tno PyTorch\n")
            (folder / "device.json").write_text(json.dumps([{
                "name": "create 2 MiB", "value": 3.0, "unit": "us", "spread": 0.5, "baseline": "",
                "baseline_value": 0, "ratio": 0, "label": "emulated"}]))
            report = {"step_seconds": [9.0, 1.0, 3.0], "label": "emulated",
                      "peak_device_bytes": 4 << 20}
            (folder / "trainer.json").write_text(json.dumps(
                {"plain": report, "offloaded": report, "identical": False,
                 "moved_bytes": 1 << 20}))
            rows = table.table(folder)
            self.assertEqual(rows[1], ("part torch", "skipped", "", "1 s", "no PyTorch", ""))
            self.assertEqual(rows[2][:4], ("create 2 MiB (emulated)", "3.00", "us", "50%"))
            self.assertIn(("trainer losses and weights", "DIFFERENT", "", "", "plain, every bit",
                           ""), rows)
            table.print_table(rows)

    def test_what_a_machine_lacks_is_no_failure(self):
        with tempfile.TemporaryDirectory() as scratch:
            done = subprocess.run(
                [sys.executable, "-S", "-E", HERE / "torch_step.py", "--results",
                 Path(scratch) / "torch.json"], capture_output=True, text=True, timeout=100)
            self.assertEqual(done.returncode, 77, done.stderr)
            self.assertIn("PyTorch", done.stdout)


if __name__ == "__main__":
    unittest.main()
