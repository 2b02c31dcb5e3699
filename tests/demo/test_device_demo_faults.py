"""What the demo of a device says when something goes wrong, with a stand-in for its trainer."""

import json
import os
import subprocess
import sys

import pytest
from conftest import DEMO, STAND_IN, demo_command

import gpu
from device_trainer import as_rate
from settings import UsageError


@pytest.fixture
def build(tmp_path):
    """A build folder with the stand-in in the place of the trainer, and no emulator."""
    folder = tmp_path / "build"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "frostline_train").symlink_to(STAND_IN / "frostline_train")
    return folder


@pytest.fixture
def run_stand_in(tmp_path, build):
    """Runs the demo on the stand-in with the given fault; the finished process."""

    def run(fault="", label="emulated", *arguments):
        places = ["--workdir", tmp_path / "work", "--out", tmp_path / "report", "--build", build]
        return subprocess.run(
            demo_command("--device", "--quick", *places, *arguments),
            env={
                **os.environ,
                "FROSTLINE_CUDA_DRIVER": "none",  # the stand-in asks for none
                "STAND_IN_FAULT": fault,
                "STAND_IN_LABEL": label,
            },
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def error_lines(done):
    return [line for line in done.stderr.splitlines() if line.startswith("demo: ")]


def test_a_run_without_fault_passes(run_stand_in, tmp_path):
    done = run_stand_in()
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "report/summary.json").read_text())["passed"] is True
    assert not (tmp_path / "work").exists()


def test_a_real_device_is_not_called_emulated(run_stand_in, tmp_path):
    done = run_stand_in("", "real")
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "report/index.html").read_text(encoding="utf-8")
    for text in (done.stdout, page):
        assert "a stand-in (real)" in text and "beside kernels" not in text
    assert "emulated" not in done.stdout and 'tag emulated"' not in page


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("loss", "FAILED: step 3: plain 0x1.c000000000000p+1, offloaded 0x1.c000000000002p+1"),
        ("weights", "FAILED: final weights differ"),
        ("misuse", "FAILED: the emulated driver reported "),
    ],
)
def test_a_run_that_differs_fails_the_demo(run_stand_in, tmp_path, fault, expected):
    done = run_stand_in(fault)
    assert done.returncode == 1
    assert expected in done.stdout
    assert json.loads((tmp_path / "report/summary.json").read_text())["passed"] is False
    assert "Failed" in (tmp_path / "report/index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("die", "the offloaded run failed: frostline_train: error: the stand-in has no room"),
        (
            "fixed",
            "half of the device memory of the plain run is 50 MiB, and what cannot move takes "
            "49 MiB of it: too little is left; try a larger --batch",
        ),
    ],
)
def test_what_cannot_run_gives_one_clear_line(run_stand_in, tmp_path, fault, expected):
    done = run_stand_in(fault)
    assert done.returncode == 1
    assert error_lines(done)[0] == f"demo: {expected}"
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "report/summary.json").exists()


def test_links_that_the_user_set_are_told_as_they_are():
    assert [as_rate(rate) for rate in ("0", "8000000000", "4GiB")] == [
        "unlimited",
        "8000 MB/s",
        "4GiB/s",
    ]


def test_threads_are_refused(run_stand_in):
    done = run_stand_in("", "emulated", "--threads", "2")
    assert done.returncode == 1
    assert error_lines(done) == [
        "demo: --threads does not go with --device: kernels run where the driver says"
    ]


def test_a_missing_program_gives_one_clear_line(run_stand_in, build):
    (build / "bin" / "frostline_train").unlink()
    done = run_stand_in()
    assert done.returncode == 1
    (line,) = error_lines(done)
    assert f"{build}/bin/frostline_train is missing: ./run demo --device builds it" in line


def test_the_driver_that_the_environment_names_goes_first(build, monkeypatch):
    monkeypatch.setattr(gpu, "gpu_count", lambda: 1)
    assert gpu.choose_driver(build, "some.so") == gpu.Driver("some.so", is_gpu=False)


def test_without_a_gpu_the_emulator_is_taken_or_missed(build, monkeypatch):
    monkeypatch.setattr(gpu, "gpu_count", lambda: 0)
    with pytest.raises(UsageError, match="there is no GPU, and .*emulator.so is missing"):
        gpu.choose_driver(build, None)
    emulator = build / "lib" / "libfrostline_emulator.so"
    emulator.parent.mkdir()
    emulator.touch()
    assert gpu.choose_driver(build, None) == gpu.Driver(str(emulator), is_gpu=False)


def test_a_gpu_is_taken_if_its_kernels_were_built(build, monkeypatch):
    monkeypatch.setattr(gpu, "gpu_count", lambda: 1)
    with pytest.raises(UsageError, match="there is a GPU, but .*fatbin is missing"):
        gpu.choose_driver(build, None)
    (build / "bin" / "frostline_train_kernels.fatbin").touch()
    assert gpu.choose_driver(build, None) == gpu.Driver("libcuda.so.1", is_gpu=True)


@pytest.mark.parametrize("missing", ["no/libcuda.so.1", "libm.so.6"])
def test_no_driver_means_no_gpu(monkeypatch, missing):
    monkeypatch.setattr(gpu, "DRIVER", missing)
    assert gpu.gpu_count() == 0


def test_a_driver_that_cannot_be_loaded_gives_one_clear_line(tmp_path):
    """With the real trainer, which says what it misses."""
    trainer = os.environ.get("FROSTLINE_BUILD_DIR", str(DEMO.parents[2] / "build"))
    places = ["--workdir", tmp_path / "work", "--out", tmp_path / "report", "--build", trainer]
    done = subprocess.run(
        demo_command("--device", "--quick", *places),
        env={**os.environ, "FROSTLINE_CUDA_DRIVER": "no-driver.so"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    first = error_lines(done)[0]
    assert first.startswith("demo: the plain run failed: frostline_train: error: ")
    assert "no-driver.so" in first


def test_settings_that_the_emulator_refuses_are_told_by_its_own_line(tmp_path):
    trainer = os.environ.get("FROSTLINE_BUILD_DIR", str(DEMO.parents[2] / "build"))
    places = ["--workdir", tmp_path / "work", "--out", tmp_path / "report", "--build", trainer]
    emulator = f"{trainer}/lib/libfrostline_emulator.so"
    done = subprocess.run(
        demo_command("--device", "--quick", *places),
        env={
            **os.environ,
            "FROSTLINE_CUDA_DRIVER": emulator,
            "FROSTLINE_EMULATOR_GRANULARTY": "64KiB",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert error_lines(done)[0] == (
        "demo: the plain run failed: frostline emulator: FROSTLINE_EMULATOR_GRANULARTY is no "
        "setting: did you mean FROSTLINE_EMULATOR_GRANULARITY?"
    )


def test_the_demo_of_a_device_needs_no_pytorch():
    """Nothing that it imports is outside of the standard library, in an interpreter without any."""
    start = f"import sys; sys.path.insert(0, {str(DEMO.parent)!r}); import demo; "
    check = "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-I", "-S", "-c", start + check]).returncode == 0
