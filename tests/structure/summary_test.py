"""Proves that a skip which nobody expects is seen, whichever of the test runners it comes from."""

import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import summary  # noqa: E402

CTEST = """<testsuite name="x" time="2">
<testcase name="Tier.Works" classname="Tier.Works" status="run"/>
<testcase name="Tier.Fails" classname="Tier.Fails" status="fail"><failure message="x"/></testcase>
<testcase name="Tier.Dax" classname="Tier.Dax" status="notrun">
<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
<system-out>tests/tiers/x.cpp:5: Skipped
no DAX here
</system-out></testcase></testsuite>"""
PYTEST = """<testsuites><testsuite name="pytest" time="1.5">
<testcase classname="tests.python.test_x" name="test_a"/>
<testcase classname="tests.python.test_x" name="test_b">
<skipped type="pytest.skip" message="no GPU here">x</skipped></testcase></testsuite></testsuites>"""


class SummaryTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.expected = self.folder / "expected.txt"
        self.expected.write_text("# nothing\n")

    def run_summary(self, in_ci):
        out = io.StringIO()
        status = summary.summarise(self.expected, self.folder, in_ci, out)
        return status, out.getvalue()

    def test_unexpected_skips_fail_in_ci_only(self):
        for name, text, skip in (("asan", CTEST, "Tier.Dax: no DAX here"),
                                 ("python", PYTEST, "tests.python.test_x.test_b: no GPU here")):
            with self.subTest(name=name):
                report = self.folder / f"{name}.xml"
                report.write_text(text)
                status, said = self.run_summary(in_ci=True)
                self.assertEqual(status, 1)
                self.assertIn(f"skipped in {name}: {skip}  [not in expected_skips.txt]", said)
                self.assertEqual(self.run_summary(in_ci=False)[0], 0)
                report.unlink()

    def test_expected_skips_pass(self):
        (self.folder / "asan.xml").write_text(CTEST)
        (self.folder / "python.xml").write_text(PYTEST)
        self.expected.write_text("Tier.Dax  # needs DAX\ntests.python.*.test_b\n")
        status, said = self.run_summary(in_ci=True)
        self.assertEqual(status, 0)
        self.assertNotIn("[not", said)
        self.assertIn("skipped in asan: Tier.Dax: no DAX here", said)

    def test_counts(self):
        (self.folder / "asan.xml").write_text(CTEST)
        part = summary.read_part(self.folder / "asan.xml")
        self.assertEqual((part.passed, part.failed, len(part.skips), part.time_s), (1, 1, 1, 2.0))

    def test_no_test_at_all_fails(self):
        self.assertEqual(self.run_summary(in_ci=False)[0], 1)
        (self.folder / "asan.xml").write_text("<testsuite time='0'/>")
        self.assertEqual(self.run_summary(in_ci=False)[0], 1)


if __name__ == "__main__":
    unittest.main()
