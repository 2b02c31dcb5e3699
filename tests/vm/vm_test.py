"""Tests on persistent memory that is real to the kernel: a virtual machine with emulated NVDIMMs.

Usage: vm_test.py --build FOLDER. Prints one line for each scenario and exits 1 if one failed, or 77
if there is no machine: FROSTLINE_GUEST_KERNEL names the folder that holds boot/ and lib/modules/,
which `./run vm-test` prepares. FROSTLINE_SEED repeats the moments at which the machine is killed.

What it shows: DAX mappings, sysfs, devdax, NUMA nodes, and that what was fenced is there after a
kill. What it cannot show is a missing flush, because a killed machine loses no CPU cache.
"""

import argparse
import os
import random
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

import guest_image
from machine import Hung, Machine, Media

# Each with the fewest tests that must have run: a renamed test must not go missing unnoticed.
SUITES = {"fsdax": 17, "fsdax-copies": 38, "devdax": 13, "numa": 12, "block-device": 1}
SUITE_LIMIT_S = 120
SUITES_LIMIT_S = 240
LIFE_LIMIT_S = 45
ROUNDS = 5
SKIPPED = 77


class Report:
    """One line for each scenario, as soon as it has ended."""

    def __init__(self):
        self.failed = []
        self.count = 0
        self._begun = time.monotonic()
        self._last = self._begun

    def end(self, name, passed, remark=""):
        now = time.monotonic()
        word = "pass" if passed else "FAIL"
        print(f"{word}  {name:14} {now - self._last:6.1f} s  {remark}", flush=True)
        self._last = now
        self.count += 1
        if not passed:
            self.failed.append(name)

    def close(self):
        seconds = time.monotonic() - self._begun
        good = self.count - len(self.failed)
        print(f"vm-test: {good} of {self.count} scenarios passed in {seconds:.0f} s")
        return 1 if self.failed else 0


def show(machine):
    said = [line for line in machine.console if not line.startswith("fenced ")]
    print("\n".join("    | " + line for line in said[-80:]))


def run_suites(boot, report):
    """Every suite in one life of the machine."""
    ended = set()
    with boot({"VM_DO": "suites", "VM_FRESH": 1}, SUITES_LIMIT_S) as machine:
        try:
            for line in machine.lines():
                match = re.match(r"vm: end (\S+) (\w+) (\d+)$", line)
                if not match:
                    continue
                name, result, tests = match[1], match[2], int(match[3])
                ended.add(name)
                passed = result == "passed" and tests >= SUITES.get(name, 1)
                report.end(name, passed, f"{tests} tests")
                if not passed:
                    show(machine)
        except Hung as error:
            print(f"vm-test: {error}")
        missing = [name for name in SUITES if name not in ended]
        for name in missing:
            report.end(name, False, "did not end")
        if missing:
            show(machine)


def one_life(machine, kill_after, delay_s):
    """Follows a life to its end and kills it after so many reports. Returns the results of what was
    verified, and the last record that was reported."""
    results, last, reports = {}, None, 0
    for line in machine.lines():
        if match := re.match(r"vm: end (\S+) (\w+)", line):
            results[match[1]] = match[2]
        elif line.startswith("vm: broken"):
            raise Hung(line)
        elif match := re.fullmatch(r"fenced (\d+)", line):
            last = int(match[1])
            reports += 1
            if reports == kill_after:
                time.sleep(delay_s)  # to be anywhere within a batch
                machine.kill()  # what the pipe still holds was said before
    return results, last


def run_recovery(boot, report, seed):
    """Each life but the first verifies what the lives before it reported, and all but the last are
    killed while they write."""
    draw = random.Random(seed)
    last = 0
    for life in range(ROUNDS + 1):
        writes = life < ROUNDS
        settings = {
            "VM_DO": "recovery",
            "VM_FRESH": int(life == 0),
            "VM_LAST": last,
            "VM_WRITE": int(writes),
        }
        kill_after, delay_s = draw.randint(20, 400), draw.uniform(0, 0.05)
        name = f"recovery-{life}" if life > 0 else "first-writes"
        with boot(settings, LIFE_LIMIT_S) as machine:
            try:
                results, now = one_life(machine, kill_after if writes else 0, delay_s)
            except Hung as error:
                report.end(name, False, str(error))
                show(machine)
                return
            recovered = life == 0 or results == {"recovery": "passed", "missing": "failed"}
            passed = recovered and (now is not None) == writes
            remark = f"{last} records verified"
            if writes:
                remark += f", killed after {now}"
            report.end(name, passed, remark)
            if not passed:
                show(machine)
                return
            last = now


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, help="folder of the release build")
    arguments = parser.parse_args()
    guest = os.environ.get("FROSTLINE_GUEST_KERNEL")
    if not guest:
        print("vm-test: skipped: there is no guest kernel; ./run vm-test gets one")
        return SKIPPED
    given = os.environ.get("FROSTLINE_SEED")
    seed = int(given, 0) if given else random.SystemRandom().getrandbits(32)
    print(f"vm-test: FROSTLINE_SEED={seed}")
    build = Path(arguments.build).resolve()
    report = Report()
    work = Path(tempfile.mkdtemp(prefix="vm-", dir=build))
    try:
        kernel, modules = guest_image.find_kernel(guest)
        programs = [build / "bin/test_tiers", build / "bin/pmem_writer"]
        # The GPU of the tests of copies.
        loaded = [build / "lib/libfrostline_emulator.so"]
        initrd = guest_image.build(work, programs, loaded, modules)

        def boot_on(media):
            limits = {"VM_LIMIT_S": SUITE_LIMIT_S, "FROSTLINE_SEED": seed}
            return lambda settings, limit_s: Machine(
                kernel, initrd, media, {**limits, **settings}, limit_s
            )

        run_suites(boot_on(Media(work / "suites")), report)
        run_recovery(boot_on(Media(work / "recovery")), report, seed)
    finally:
        shutil.rmtree(work)
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
