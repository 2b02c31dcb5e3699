"""Plants classic mistakes in copies of the device code and expects each to be caught.

The scenes of device_scenarios.cpp are clean with the code as it is. For each mistake one source is
copied, changed in one place that must be there exactly once, compiled, and linked in the place of
the original; the scene that leads there must then fail, with the report that the mistake earns.
Settings come as a JSON file from CMake.
"""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile


@dataclasses.dataclass(frozen=True)
class Mistake:
    what: str
    source: str
    right: str
    wrong: str
    scene: str
    caught_as: str  # any of these, separated by "|"


MISTAKES = (
    Mistake(
        "a pin ends without a wait for its event",
        "bindings/stream_pins.cpp",
        "if (!*done) return std::nullopt;",
        "",
        "TensorsComeAndGoUnderWork",
        "unmap-under-work",
    ),
    Mistake(
        "access is not set after mapping",
        "tiers/device_mapping.cpp",
        "driver.cuMemSetAccess(address, total_bytes(chunks), access.data(), access.size()));",
        "total_bytes(chunks) + access.size() > 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);",
        "TensorsComeAndGoUnderWork",
        "access-not-set",
    ),
    Mistake(
        "a handle is released twice",
        "tiers/device_chunks.cpp",
        'return driver.check("cuMemRelease", driver.cuMemRelease(chunk.handle));',
        '(void)driver.cuMemRelease(chunk.handle);'
        ' return driver.check("cuMemRelease", driver.cuMemRelease(chunk.handle));',
        "TensorsComeAndGoUnderWork",
        "double-release",
    ),
    Mistake(
        "half of a mapping is unmapped",
        "tiers/device_mapping.cpp",
        "driver.cuMemUnmap(address, size_bytes)",
        "driver.cuMemUnmap(address, size_bytes / 2)",
        "TensorsComeAndGoUnderWork",
        "split-mapping",
    ),
    Mistake(
        "staging is used before the event of its copy",
        "tiers/device_queue.cpp",
        "if (status) status = slot.event.synchronize();",
        "",
        "LargeTensorsGoThroughStaging",
        "wrong bytes|unmap-under-work",
    ),
    Mistake(
        "a copy does not wait for the stream that writes its source",
        "bindings/device_io.cpp",
        "FROSTLINE_TRY_VOID(wait_for(*link.context, route.out, *written));",
        "",
        "HostMemoryTakesWhatTheStreamWillHaveWritten",
        "wrong bytes",
    ),
    Mistake(
        "whatever device is current is used",
        "tiers/cuda_context.cpp",
        "driver_.cuCtxPushCurrent(context.context_)",
        "[&] { CUcontext now = nullptr; (void)driver_.cuCtxGetCurrent(&now);"
        " return driver_.cuCtxPushCurrent(now != nullptr ? now : context.context_); }()",
        "C03_AnotherDeviceIsCurrent",
        "wrong-device|access-not-set",
    ),
    Mistake(
        "the capture mode is left as it was",
        "tiers/cuda_context.cpp",
        'entered_ = driver_.check("cuThreadExchangeStreamCaptureMode",\n'
        "                             driver_.cuThreadExchangeStreamCaptureMode(&mode_));",
        "mode_ = CU_STREAM_CAPTURE_MODE_GLOBAL;",
        "AStreamOfTheSameThreadIsCaptured",
        "illegal-during-capture",
    ),
    Mistake(
        "handles are forgotten when mapping fails",
        "tiers/device_tier.cpp",
        "chunks_->give(chunks);\n        return mapped;",
        "return mapped;",
        "MappingFailsMidway",
        "leak-at-exit",
    ),
    Mistake(
        "what was mapped stays when mapping fails",
        "tiers/device_mapping.cpp",
        "if (!status && mapped_bytes > 0) (void)driver.cuMemUnmap(address, mapped_bytes);",
        "",
        "MappingFailsMidway",
        "leak-at-exit|free-mapped-reservation",
    ),
    Mistake(
        "a size is mapped that is no multiple of the granularity",
        "tiers/device_mapping.cpp",
        "driver.cuMemMap(address + mapped_bytes, chunk.size_bytes, 0, chunk.handle, 0)",
        "driver.cuMemMap(address + mapped_bytes, chunk.size_bytes - 1, 0, chunk.handle, 0)",
        "TensorsComeAndGoUnderWork",
        "bad-size",
    ),
    Mistake(
        "a peer is not given access",
        "tiers/device_mapping.cpp",
        "for (const int device : devices) {",
        "for (const int device : devices.first(1)) {",
        "APeerReadsATensor",
        "access-not-set",
    ),
    Mistake(
        "host memory is unregistered while a copy uses it",
        "bindings/device_io.cpp",
        "pins_.unpin_after(tensor->pinned, *read, route.out);",
        "engine_.unpin_now(tensor->pinned);",
        "AManagerEndsWhileTensorsAreOnTheirWay",
        "unregister-under-work",
    ),
)


class Workshop:
    """Builds the scenes with one source changed. The build itself is only read."""

    def __init__(self, settings, folder):
        self.settings = settings
        self.folder = folder
        self.root = pathlib.Path(settings["root"])
        database = pathlib.Path(settings["build"]) / "compile_commands.json"
        commands = json.loads(database.read_text())
        self.commands = {entry["file"]: entry for entry in commands}

    def build(self, number, mistake):
        original = self.root / mistake.source
        text = original.read_text()
        if text.count(mistake.right) != 1:
            times = text.count(mistake.right)
            raise AssertionError(
                f"{mistake.source} has {times} times, not once: {mistake.right}")
        place = self.folder / str(number)
        place.mkdir()
        changed = place / original.name
        changed.write_text(text.replace(mistake.right, mistake.wrong))
        entry = self.commands[str(original)]
        words = shlex.split(entry["command"])
        build = pathlib.Path(entry["directory"])
        built = os.path.normpath(build / words[words.index("-o") + 1])
        made = str(place / "changed.o")
        words[words.index("-o") + 1] = made
        words[words.index("-c") + 1] = str(changed)
        # Nothing that a change leaves unused is an error.
        self.call(words + ["-O0", "-g0", "-Wno-error"], build)
        others = [each for each in self.settings["objects"] if os.path.normpath(each) != built]
        libraries = self.settings["libraries"]
        program = str(place / "scenes")
        # What is linked first has the say over what the archives hold.
        self.call([words[0], "-s", "-o", program, made, *others, *libraries], build)
        return program

    @staticmethod
    def call(words, folder):
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{shlex.join(words)}\n{done.stderr[-4000:]}")


def play(program, scene):
    """Returns whether the scene was clean, and all that it said."""
    done = subprocess.run([program, f"--gtest_filter=DeviceScenario.{scene}"], capture_output=True,
                          text=True, errors="replace", timeout=60, check=False)
    return done.returncode == 0, done.stdout + done.stderr


def find_fault(workshop, number, mistake):
    """Returns why the mistake does not count as caught, or None."""
    clean, said = play(workshop.build(number, mistake), mistake.scene)
    if clean:
        return "it was not noticed"
    if not re.search(mistake.caught_as, said):
        return f"{mistake.caught_as} was expected, and this came:\n{said[-3000:]}"
    return None


def main():
    settings = json.loads(pathlib.Path(sys.argv[1]).read_text())
    clean, said = play(settings["program"], "*")
    if not clean:
        print(f"without any mistake the scenes are not clean:\n{said[-6000:]}")
        return 1
    bad = 0
    with tempfile.TemporaryDirectory(prefix="frostline-mistakes-") as name:
        workshop = Workshop(settings, pathlib.Path(name))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            running = [pool.submit(find_fault, workshop, number, mistake)
                       for number, mistake in enumerate(MISTAKES)]
            for mistake, each in zip(MISTAKES, running):
                why_not = each.exception() or each.result()
                print(f"{'MISSED' if why_not else 'caught'}: {mistake.what}")
                if why_not:
                    bad += 1
                    print(why_not)
    print(f"{len(MISTAKES) - bad} of {len(MISTAKES)} mistakes are caught")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
