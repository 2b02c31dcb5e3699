"""One life of the virtual machine: qemu without KVM, two NUMA nodes, two NVDIMMs and a small disk.
What lies on the NVDIMMs outlives the machine, also when it is killed.
"""

import os
import select
import subprocess
import time
from pathlib import Path

MIB = 1 << 20
# The label area must leave a multiple of 16 MiB.
NVDIMM_BYTES = 272 * MIB
LABEL_BYTES = 16 * MIB
DISK_BYTES = 64 * MIB


class Hung(Exception):
    """The machine said nothing more, or went on for too long."""


class Media:
    """The files behind the NVDIMMs and the disk."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir()
        self.nvdimms = [self._make(f"nvdimm{i}", NVDIMM_BYTES) for i in range(2)]
        self.disk = self._make("disk", DISK_BYTES)

    def _make(self, name, size_bytes):
        path = self.folder / name
        with open(path, "wb") as file:
            file.truncate(size_bytes)  # sparse
        return path


def qemu_command(kernel, initrd, media, settings):
    words = " ".join(f"{key}={value}" for key, value in settings.items())
    command = (
        "qemu-system-x86_64 -accel tcg -cpu max -smp 2 -machine q35,nvdimm=on"
        " -m 1G,slots=4,maxmem=4G -display none -monitor none -serial stdio -no-reboot -nodefaults"
    ).split()
    for node in range(2):
        command += ["-object", f"memory-backend-ram,id=ram{node},size=512M"]
        command += ["-numa", f"node,nodeid={node},cpus={node},memdev=ram{node}"]
    for number, image in enumerate(media.nvdimms):
        backend = f"memory-backend-file,id=nv{number},share=on,mem-path={image}"
        command += ["-object", f"{backend},size={NVDIMM_BYTES},pmem=off"]
        command += ["-device", f"nvdimm,memdev=nv{number},label-size={LABEL_BYTES}"]
    command += ["-drive", f"file={media.disk},format=raw,if=virtio,cache=unsafe"]
    command += ["-kernel", str(kernel), "-initrd", str(initrd)]
    # Settings without a dot are what the kernel hands to init as its environment.
    command += ["-append", f"console=ttyS0 loglevel=1 panic=-1 {words}"]
    return command


class Machine:
    """Use as a context: at its end nothing of the machine is left."""

    def __init__(self, kernel, initrd, media, settings, limit_s):
        self.console = []
        self._rest = b""
        self._end = time.monotonic() + limit_s
        self._qemu = subprocess.Popen(
            qemu_command(kernel, initrd, media, settings),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self._qemu.stdout.close()

    def kill(self):
        self._qemu.kill()
        self._qemu.wait()

    def lines(self):
        """The console's lines, until the machine is off. Only whole lines: what a killed machine
        was about to say it has not said. Raises Hung when its time is up."""
        stream = self._qemu.stdout.fileno()
        while True:
            left_s = self._end - time.monotonic()
            if left_s <= 0 or not select.select([stream], [], [], left_s)[0]:
                self.kill()
                raise Hung("the machine took too long")
            read = os.read(stream, 1 << 16)
            if not read:
                return
            *whole, self._rest = (self._rest + read).split(b"\n")
            for line in whole:
                text = line.decode(errors="replace").rstrip("\r")
                self.console.append(text)
                yield text
