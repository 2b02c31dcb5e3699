"""Bad input is refused at once: the message names what, where and what to do; nothing is left."""

import os

import pytest

import frostline

SIZES = ["12Q", "", "  ", "MiB", "-1", "1MiB MiB", "0x10", "1e3MiB", "nan", "inf", "9" * 40,
         "1,5GiB"]
ODD_SIZES = [-1, 1.5, True, [1], float("nan"), float("inf"), 2**70, b"1MiB"]


def refused(kind=frostline.InvalidArgument, **options):
    """Opens with the options, which must fail; the message."""
    with pytest.raises(kind) as caught:
        frostline.offload(**options)
    error = caught.value
    assert isinstance(error, frostline.Error) and isinstance(error.code, str)
    message = str(error)
    assert "\n" not in message and len(message) < 400
    return message


@pytest.mark.parametrize("name", ["dram", "pmem_bytes", "swap_bytes", "min_bytes"])
@pytest.mark.parametrize("size", SIZES + ODD_SIZES, ids=repr)
def test_sizes_that_do_not_parse(name, size, tmp_path):
    options = {"dram": "1MiB", "pmem": tmp_path / "pmem", "swap": tmp_path, name: size}
    message = refused(**options)
    assert message.startswith(f"{name}: "), message
    assert "is not a size" in message and "512MiB" in message
    assert isinstance(frostline.InvalidArgument("x"), ValueError)
    assert os.listdir(tmp_path) == []


def test_no_dram_budget():
    assert "set dram" in refused(dram=None)
    with pytest.raises(TypeError, match="dram"):
        frostline.offload()


def test_a_gpu_that_nothing_is_for():
    message = refused(dram="1MiB", gpu=1)
    assert "gpu=1" in message and "pin" in message


def test_min_bytes_none():
    assert refused(dram="1MiB", min_bytes=None).startswith("min_bytes: ")


@pytest.mark.parametrize("size,bytes_", [(0, 0), ("0", 0), (4096, 4096), ("1.5 GiB", 3 << 29),
                                         ("64kib", 65536), ("1MB", 10**6), ("7B", 7)])
def test_sizes_that_do_parse(size, bytes_):
    assert frostline.parse_byte_size(str(size)) == bytes_
    assert frostline.offload(dram=size).stats()["tiers"]["dram"]["budget_bytes"] == bytes_


def test_an_unknown_keyword():
    with pytest.raises(TypeError, match="drram"):
        frostline.offload(dram="1MiB", drram="1MiB")
    with pytest.raises(TypeError):
        frostline.offload("1MiB", None, None, "1MiB", "1GiB")


@pytest.mark.parametrize("option", ["pmem", "swap"])
def test_paths_of_a_wrong_type(option):
    with pytest.raises(TypeError):
        frostline.offload(dram="1MiB", **{option: 7})
    assert option in refused(dram="1MiB", **{option: ""})
    assert option in refused(dram="1MiB", **{option: "a\0b"})


def test_paths_as_text_bytes_and_path_objects(tmp_path):
    for path in (str(tmp_path), tmp_path, os.fsencode(tmp_path)):
        stats = frostline.offload(dram="1MiB", swap=path, swap_bytes="1MiB").stats()
        assert stats["tiers"]["swap"]["location"] == str(tmp_path)
    for path in (str(tmp_path / "p"), os.fsencode(tmp_path / "p")):
        stats = frostline.offload(dram="1MiB", pmem=path, pmem_bytes="1MiB").stats()
        assert stats["tiers"]["pmem"]["location"] == str(tmp_path / "p")


def test_a_swap_directory_that_is_missing_or_a_file(tmp_path):
    missing = tmp_path / "missing"
    message = refused(frostline.Error, dram="1MiB", swap=missing)
    assert str(missing) in message and "existing, writable directory" in message
    missing.write_text("a file")
    message = refused(frostline.Error, dram="1MiB", swap=missing)
    assert str(missing) in message and "Not a directory" in message
    assert missing.read_text() == "a file"


@pytest.mark.parametrize("place", ["/proc", "/sys"])
def test_a_directory_in_which_nobody_may_write(place):
    message = refused(frostline.Error, dram="1MiB", swap=place)
    assert f"'{place}'" in message and "existing, writable directory" in message
    message = refused(frostline.Error, dram="1MiB", pmem=f"{place}/frostline-pmem")
    assert f"'{place}/frostline-pmem'" in message and "writable" in message


def test_a_directory_without_permission(tmp_path):
    """Root may write everywhere, and so is somebody else for a moment."""
    tmp_path.chmod(0o500)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        message = refused(frostline.Error, dram="1MiB", swap=tmp_path)
        assert str(tmp_path) in message and "denied" in message
        message = refused(frostline.Error, dram="1MiB", pmem=tmp_path / "pmem")
        assert str(tmp_path / "pmem") in message and "denied" in message
    finally:
        os.seteuid(user)
        tmp_path.chmod(0o700)


def test_pmem_paths_that_cannot_be_used(tmp_path):
    assert "missing" in refused(frostline.Error, dram="1MiB", pmem=tmp_path / "missing" / "pmem")
    assert "directory" in refused(frostline.Error, dram="1MiB", pmem=tmp_path)
    assert "regular file" in refused(frostline.Error, dram="1MiB", pmem="/dev/null")
    target = tmp_path / "target"
    target.touch(mode=0o600)
    (tmp_path / "link").symlink_to(target)
    message = refused(frostline.Error, dram="1MiB", pmem=tmp_path / "link", pmem_bytes="1MiB")
    assert "link" in message and target.stat().st_size == 0
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    assert "regular file" in refused(frostline.Error, dram="1MiB", pmem=fifo)


def test_a_pmem_file_that_is_too_small_or_open_to_others(tmp_path):
    path = tmp_path / "pmem"
    path.write_bytes(b"x" * 5000)
    path.chmod(0o600)
    message = refused(dram="1MiB", pmem=path)
    assert str(path) in message and "too small" in message and "5000" in message
    message = refused(dram="1MiB", pmem=path, pmem_bytes="2MiB")
    assert "too small" in message and str(2 << 20) in message
    assert path.read_bytes() == b"x" * 5000, "what cannot be used is left as it was"
    assert "too few" in refused(dram="1MiB", pmem=tmp_path / "new", pmem_bytes=100)
    assert not (tmp_path / "new").exists()
    path.write_bytes(b"x" * (2 << 20))
    path.chmod(0o644)
    assert "chmod 600" in refused(frostline.Error, dram="1MiB", pmem=path)


def test_a_pmem_file_in_use_here_or_in_another_process(tmp_path):
    path = tmp_path / "pmem"
    first = frostline.offload(dram="1MiB", pmem=path, pmem_bytes="1MiB")
    message = refused(frostline.Error, dram="1MiB", pmem=path, pmem_bytes="1MiB")
    assert str(path) in message and "in use" in message
    child = os.fork()
    if child == 0:
        try:
            frostline.offload(dram="1MiB", pmem=path, pmem_bytes="1MiB")
        except frostline.Error as error:
            os._exit(7 if "in use by another process" in str(error) else 8)
        finally:
            os._exit(9)
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 7
    assert path.exists()
    del first
    assert not path.exists()
    frostline.offload(dram="1MiB", pmem=path, pmem_bytes="1MiB")


def test_a_pmem_file_that_was_there_stays(tmp_path):
    path = tmp_path / "pmem"
    path.write_bytes(b"x" * (1 << 20))
    path.chmod(0o600)
    offload = frostline.offload(dram="1MiB", pmem=path)
    assert offload.stats()["tiers"]["pmem"]["budget_bytes"] == 1 << 20
    del offload
    assert path.stat().st_size == 1 << 20


def test_more_than_the_disk_holds(tmp_path):
    message = refused(frostline.Error, dram="1MiB", pmem=tmp_path / "pmem", pmem_bytes="8000TiB")
    assert str(tmp_path / "pmem") in message and "allocate" in message
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("value", [True, False, "yes", "no", 0, 1])
def test_verify_takes_what_says_yes_or_no(value):
    frostline.offload(dram="1MiB", verify=value)


def test_verify_that_is_neither():
    assert "verify" in refused(dram="1MiB", verify="maybe")
