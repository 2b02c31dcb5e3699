# The set-up that `run` sources: Debian packages, Python with PyTorch, and pinned packages.
# Nothing here touches the user's own Python, and a folder in the cache bears its final name (or
# its marker) only when it is complete, so that an interrupted set-up is simply done again.
#
# Uses from `run`: say, die, logged, and the paths cache, build and logs.

# What is pinned. The CUDA headers are of the oldest CUDA 13, so that what compiles against them
# compiles against every newer 13, too. pybind11 3 is the first that knows Python 3.14.
readonly torch_version=2.13.0
readonly pybind11_version=3.0.4
readonly pytest_version=8.4.2
readonly cuda_runtime_version=13.0.96

readonly packages=(
    g++ cmake ninja-build pkgconf libpmem-dev libhwloc-dev libnuma-dev liburing-dev
    libboost-dev libboost-program-options-dev libgtest-dev libgmock-dev libfmt-dev
    nlohmann-json3-dev libxxhash-dev libexpected-dev python3 python3-venv python3-dev)
# mimalloc's library has another name in each release; its development files find it by one.
readonly bench_packages=(fio libjemalloc2 libmimalloc-dev)

# What `./run vm-test` needs besides, and the kernel of its guest, which is never installed.
readonly vm_packages=(qemu-system-x86 busybox-static ndctl e2fsprogs cpio xz-utils binutils)
readonly guest_kernel_package=linux-image-cloud-amd64

# ---- Debian's packages ----

missing_packages() {
    # Unknown names make dpkg-query fail, but it still reports on the others.
    local installed name
    installed=" $(dpkg-query -W -f='${db:Status-Status}=${Package} ' "$@" 2>/dev/null || true)"
    for name in "$@"; do
        [[ $installed == *" installed=$name "* ]] || printf '%s\n' "$name"
    done
}

require_packages() {
    local -a missing as_root=()
    if ! command -v dpkg-query apt-get >/dev/null; then
        require_tools
        return
    fi
    mapfile -t missing < <(missing_packages "$@")
    ((${#missing[@]})) || return 0
    if ((EUID != 0)); then
        command -v sudo >/dev/null ||
            die "neither root nor sudo; have root do: apt-get install ${missing[*]}"
        as_root=(sudo)
    fi
    say "installing Debian packages: ${missing[*]}"
    local -a apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get
        -o DPkg::Lock::Timeout=300 -y)
    logged apt-update "${apt[@]}" update || say "apt-get update failed, trying on (log: $log)"
    logged apt-install "${apt[@]}" install --no-install-recommends "${missing[@]}" ||
        die "apt-get could not install ${missing[*]}; see $log"
}

# Where there is no apt-get, say what is needed and go on if the tools are there.
require_tools() {
    local tool
    for tool in c++ cmake ninja pkg-config python3; do
        command -v "$tool" >/dev/null ||
            die "this is not Debian, and '$tool' is missing; needed are g++ 12 or newer, CMake" \
                "3.25, Ninja, pkg-config, Python 3, and the development files of libpmem," \
                "Boost, GoogleTest, fmt, nlohmann_json, xxHash, hwloc, libnuma and liburing"
    done
}

# Debian's own tools come first: another cmake or ninja on PATH may be too old or a broken shim.
tool() {
    if [[ -x /usr/bin/$1 ]]; then printf '/usr/bin/%s' "$1"; else command -v "$1"; fi
}

# ---- Python and PyTorch ----

# Prints interpreter, version, and whether torch, numpy and pytest can be found; imports none.
readonly probe='
import importlib.util as util, sys
found = ["1" if util.find_spec(name) else "0" for name in ("torch", "numpy", "pytest")]
print(sys.executable, "%d.%d" % sys.version_info[:2], *found)'

imports_torch() { logged import-torch "$1" -c 'import torch; torch.zeros(1).sum().item()'; }

# Sets `python` to the interpreter that runs the demo, the Python tests and the module, and
# `python_version`, `has_numpy`, `has_pytest`. Importing torch takes a second or two, so the
# decision is kept in a stamp, with what it was made from, and only checked by the probe.
find_python() {
    local own stamp="$cache/python.stamp" key has_torch
    own="${FROSTLINE_PYTHON:-$(command -v python3)}"
    key="$("$own" -c "$probe" 2>/dev/null)" || die "'$own' does not run; set FROSTLINE_PYTHON"
    key="${FROSTLINE_PYTHON:+FROSTLINE_PYTHON }$key"
    python=
    if [[ -f $stamp && $(head -n 1 "$stamp") == "$key" ]]; then
        python="$(sed -n 2p "$stamp")"
        read -r _ python_version has_torch has_numpy has_pytest \
            < <("$python" -c "$probe" 2>/dev/null) || true
        [[ ${has_torch:-0} == 1 ]] || python=
    fi
    [[ -z $python ]] || return 0
    choose_python "$own"
    read -r _ python_version has_torch has_numpy has_pytest < <("$python" -c "$probe")
    printf '%s\n%s\n' "$key" "$python" >"$stamp.new"
    mv "$stamp.new" "$stamp"
}

choose_python() {
    local own="$1"
    if [[ -n ${FROSTLINE_PYTHON:-} ]]; then
        imports_torch "$own" || die "FROSTLINE_PYTHON=$own cannot import torch; see $log"
        python="$("$own" -c 'import sys; print(sys.executable)')"
    elif imports_torch "$own"; then
        python="$("$own" -c 'import sys; print(sys.executable)')"
    elif venv_is_complete || make_venv "$own"; then
        python="$venv/bin/python"
    else
        say "no torch $torch_version from PyPI (log: $log), taking Debian's python3-torch;" \
            "to try again, remove $cache/python.stamp"
        require_packages python3-torch python3-numpy
        python=/usr/bin/python3
    fi
    # Debian's torch takes whatever BLAS is there, and with the reference one it crawls.
    if "$python" -c 'import importlib.util as u, sys
sys.exit(not u.find_spec("torch").origin.startswith("/usr/lib/python3/"))'; then
        require_packages libopenblas0-pthread
    fi
    say "Python: $python"
}

readonly venv="$cache/venv"
readonly venv_content="torch==$torch_version numpy"

# Without its marker, which is written last, a venv counts only if every file that its packages
# list is there with its full size; pip writes that list after the files.
readonly venv_check='
import importlib.metadata as metadata, os, sys
names = set()
for package in metadata.distributions():
    names.add(package.metadata["Name"].lower())
    assert package.files, package.metadata["Name"]
    for file in package.files:
        assert file.size is None or os.path.getsize(file.locate()) == file.size, file
assert {"torch", "numpy"} <= names, names
assert metadata.version("torch").split("+")[0] == sys.argv[1]'

venv_is_complete() {
    [[ -x $venv/bin/python ]] || return 1
    if [[ ! -f $venv/frostline-complete ]]; then
        logged venv-check "$venv/bin/python" -c "$venv_check" "$torch_version" || return 1
        printf '%s\n' "$venv_content" >"$venv/frostline-complete"
    fi
    [[ $(<"$venv/frostline-complete") == "$venv_content" ]] && imports_torch "$venv/bin/python"
}

make_venv() {
    local base
    for base in "$1" /usr/bin/python3; do
        [[ -x $(command -v "$base") ]] || continue
        say "installing torch $torch_version into $venv, which may take some minutes"
        rm -rf "$venv"
        if logged venv "$base" -m venv "$venv" &&
            logged venv-pip pip_install "$venv/bin/python" "torch==$torch_version" numpy &&
            imports_torch "$venv/bin/python"; then
            printf '%s\n' "$venv_content" >"$venv/frostline-complete"
            return 0
        fi
        # The same Python would only fail in the same way again.
        [[ $("$base" -V) != "$(/usr/bin/python3 -V 2>&1)" ]] || break
    done
    rm -rf "$venv"
    return 1
}

# ---- Pinned packages, each in a folder of its own ----

pip_install() {
    local with="$1"
    shift
    PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 "$with" -m pip install --no-input --retries 2 "$@"
}

# pip_folder FOLDER ARGUMENTS...: installs into $cache/FOLDER. It gets its name only when complete.
# A failure is remembered for the day, so that a machine without PyPI does not wait each time.
pip_folder() {
    local folder="$cache/$1" with="$python"
    shift
    [[ ! -d $folder ]] || return 0
    [[ -z $(find "$folder.failed" -mtime -1 2>/dev/null) ]] || return 1
    if ! "$with" -m pip --version >/dev/null 2>&1; then
        # An interpreter without pip can still make a venv that has it.
        with="$cache/pip-$python_version/bin/python"
        [[ -x $with ]] || logged pip-venv "$python" -m venv "$cache/pip-$python_version" || return 1
    fi
    say "fetching ${*: -1}"
    rm -rf "$folder.partial" "$folder.failed"
    if logged "pip-${folder##*/}" pip_install "$with" --target "$folder.partial" "$@"; then
        mv "$folder.partial" "$folder"
    else
        touch "$folder.failed"
        return 1
    fi
}

find_pybind11() {
    pybind11_dir="$cache/pybind11-$pybind11_version/pybind11/share/cmake/pybind11"
    pip_folder "pybind11-$pybind11_version" "pybind11==$pybind11_version" && return
    require_packages pybind11-dev
    pybind11_dir=
}

# Sets `python_path`, where Python finds the package, and `test_path`, where tests find the rest.
find_python_packages() {
    local folder
    python_path="$build/python"
    test_path=
    if [[ $has_numpy == 0 ]]; then
        folder="numpy-py$python_version"
        pip_folder "$folder" numpy || die "$python has no numpy, and pip got none; see $log"
        python_path+=":$cache/$folder"
        test_path="$cache/$folder:"
    fi
    folder="pytest-$pytest_version-py$python_version"
    if pip_folder "$folder" "pytest==$pytest_version"; then
        test_path+="$cache/$folder"
    elif [[ $has_pytest == 0 ]]; then
        [[ $python == /usr/bin/python3 ]] ||
            die "$python has no pytest, and pip got none; see $log"
        require_packages python3-pytest
    fi
}

# Sets `cuda_include` to headers from PyPI; asked for only when CMake has found no others.
cuda_include=
fetch_cuda_headers() {
    local folder="cuda-runtime-$cuda_runtime_version" header
    pip_folder "$folder" --no-deps "nvidia-cuda-runtime==$cuda_runtime_version" || true
    header="$(find "$cache/$folder" -name cuda.h -print -quit 2>/dev/null || true)"
    [[ -n $header ]] || die "no cuda.h: install a CUDA toolkit and set CUDA_HOME, or make PyPI" \
        "reachable and remove $cache/$folder.failed"
    cuda_include="$(dirname "$header")"
}

# ---- The kernel of the virtual machine ----

# Sets `guest_kernel` to a folder with boot/ and lib/modules/. The package is only unpacked: to
# install a kernel means to build boot files, which fails in containers and nobody wants here.
guest_kernel=
find_guest_kernel() {
    local package folder
    if compgen -G '/boot/vmlinuz-*-cloud-amd64' >/dev/null; then
        guest_kernel=/
        return
    fi
    guest_kernel="$(printf '%s\n' "$cache"/guest-linux-image-*-amd64 | sort -V | tail -n 1)"
    [[ ! -d $guest_kernel ]] || return 0
    package="$(newest_guest_kernel)"
    if [[ -z $package ]]; then
        # The lists of packages may be missing or old.
        logged apt-update-kernel apt-get update || true
        package="$(newest_guest_kernel)"
    fi
    [[ -n $package ]] || die "apt knows no $guest_kernel_package; run apt-get update as root"
    guest_kernel="$cache/guest-$package"
    say "fetching $package"
    folder="$guest_kernel.partial"
    rm -rf "$folder"
    mkdir -p "$folder"
    logged guest-kernel unpack_package "$package" "$folder" ||
        die "$package could not be fetched; see $log"
    mv "$folder" "$guest_kernel"
}

# The package that the one without a version depends on, such as linux-image-6.1.0-40-cloud-amd64.
newest_guest_kernel() {
    apt-cache depends "$guest_kernel_package" 2>/dev/null |
        sed -n 's/^ *Depends: \(linux-image-[0-9].*\)$/\1/p' | head -n 1 || true
}

unpack_package() (
    cd "$2" || return
    apt-get download "$1" || { apt-get update && apt-get download "$1"; } || return
    dpkg-deb -x ./*.deb . && rm ./*.deb
)
