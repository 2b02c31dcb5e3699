"""The guest's file system in memory: the programs under test with the libraries that they load, the
tools that make DAX namespaces, the kernel's modules, and the init script.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

TOOLS = ["ndctl", "mkfs.ext4"]
# In the order of loading; the kernel has ext4 and DAX built in.
MODULES = (
    "libnvdimm nd_btt nd_pmem nfit dax_pmem device_dax "
    "virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk"
).split()
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def find_kernel(folder):
    """The newest cloud kernel under the folder, and its modules."""
    kernels = sorted(Path(folder, "boot").glob("vmlinuz-*-cloud-amd64"), key=version_key)
    if not kernels:
        raise FileNotFoundError(f"no kernel in {folder}/boot")
    release = kernels[-1].name[len("vmlinuz-") :]
    return kernels[-1], Path(folder, "lib/modules", release)


def version_key(path):
    return [int(part) for part in re.findall(r"\d+", path.name)]


def libraries_of(program):
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return re.findall(r"(/\S+) \(0x", listed)


def stage_program(tree, program):
    stage(tree, program, tree / "bin" / Path(program).name)


def stage_library(tree, library):
    """One that a program loads by its path, which is the same in the guest."""
    place = tree / str(library).lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    stage(tree, library, place)


def stage(tree, program, staged):
    """Stripped: debugging symbols are most of it, and all of it is copied into guest memory."""
    subprocess.run(["strip", "-o", staged, program], check=True)
    for library in libraries_of(program):
        place = tree / library.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place)


def stage_modules(tree, modules):
    target = tree / "modules"
    target.mkdir()
    names = []
    for name in MODULES:
        # A module that is not there is built in.
        for found in modules.rglob(f"{name}.ko*"):
            unpacked = target / f"{name}.ko"
            if found.suffix == ".ko":
                shutil.copy(found, unpacked)
            else:
                with open(unpacked, "wb") as out:
                    subprocess.run(["xz", "-dc", found], stdout=out, check=True)
            names.append(unpacked.name)
    (target / "order").write_text("".join(name + "\n" for name in names))


def build(folder, programs, loaded, modules):
    """Makes folder/initrd and returns its path. Not compressed: the guest would be slower at that
    than at reading it."""
    tree = folder / "guest"
    for each in ("bin", "proc", "sys", "dev", "mnt", "tmp"):
        (tree / each).mkdir(parents=True)
    shutil.copy(shutil.which("busybox", path=PATH), tree / "bin/busybox")
    for tool in TOOLS:
        stage_program(tree, shutil.which(tool, path=PATH))
    for program in programs:
        stage_program(tree, program)
    for library in loaded:
        stage_library(tree, library)
    stage_modules(tree, modules)
    init = tree / "init"
    shutil.copy(Path(__file__).parent / "guest_init.sh", init)
    init.chmod(0o755)
    names = "".join(str(path.relative_to(tree)) + "\n" for path in sorted(tree.rglob("*")))
    initrd = folder / "initrd"
    with open(initrd, "wb") as out:
        subprocess.run(
            ["cpio", "--create", "--format=newc", "--quiet"],
            cwd=tree, input=names.encode(), stdout=out, check=True,
        )
    return initrd
