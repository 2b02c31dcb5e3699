"""Sums up a test run and judges its skips, from the JUnit reports of CTest and pytest.

Usage: summary.py EXPECTED_SKIPS FOLDER_OF_REPORTS. Exits 1 if no test ran at all, or if CI=true and
a test skipped that EXPECTED_SKIPS does not list. What failed is CTest's to judge, and only counted.
"""

import fnmatch
import os
import re
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Part:
    """One report: how many tests had which end, and why some skipped."""

    name: str
    passed: int = 0
    failed: int = 0
    time_s: float = 0.0
    skips: dict = field(default_factory=dict)


def skip_reason(case, skipped):
    """pytest gives the reason as the message; GoogleTest prints it on the line after `Skipped`."""
    output = case.findtext("system-out") or ""
    printed = re.search(r": Skipped\n(.*)", output)
    return printed.group(1) if printed else skipped.get("message", "no reason given")


def read_part(path):
    part = Part(path.stem)
    root = ElementTree.parse(path).getroot()
    for suite in root.iter("testsuite"):
        part.time_s += float(suite.get("time", 0))
    for case in root.iter("testcase"):
        name, group = case.get("name", "?"), case.get("classname", "")
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            part.failed += 1
        elif skipped is not None:
            full_name = name if group in ("", name) else f"{group}.{name}"
            part.skips[full_name] = skip_reason(case, skipped)
        else:
            part.passed += 1
    return part


def read_expected(path):
    lines = (line.split("#")[0].strip() for line in Path(path).read_text().splitlines())
    return [line for line in lines if line]


def is_expected(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def summarise(expected_path, folder, in_ci, out=sys.stdout):
    """Prints the table and the skips; returns the exit status."""
    patterns = read_expected(expected_path)
    reports = Path(folder).glob("*.xml")
    parts = [read_part(path) for path in sorted(reports, key=os.path.getmtime)]
    print(f"\n{'part':10}{'passed':>8}{'failed':>8}{'skipped':>9}{'time':>9}", file=out)
    for part in parts:
        print(f"{part.name:10}{part.passed:8}{part.failed:8}{len(part.skips):9}"
              f"{part.time_s:7.0f} s", file=out)
    unexpected = 0
    for part in parts:
        for name, reason in part.skips.items():
            known = is_expected(name, patterns)
            unexpected += not known
            note = "" if known else "  [not in expected_skips.txt]"
            print(f"skipped in {part.name}: {name}: {reason}{note}", file=out)
    if not any(part.passed + part.failed for part in parts):
        print("no test ran", file=out)
        return 1
    return 1 if unexpected and in_ci else 0


def main(arguments):
    if len(arguments) != 2:
        sys.exit(__doc__)
    return summarise(*arguments, in_ci=os.environ.get("CI") == "true")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
