#!/usr/bin/env bash
# Builds on a machine with an NVIDIA GPU, tests and measures on the real driver, and prints one
# table.
#
# Nothing is installed or fetched. What is not there, such as a PyTorch with CUDA, is left out, and
# the table says so. Every part has a time limit of its own, and none begins after the common one.
# Exit status: 0 all went well; 1 a part failed; 2 called wrongly; 77 there is no GPU.
set -uo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
readonly root
readonly limit_s=470

usage() {
    cat <<'TEXT'
usage: tests/gpu/check.sh [--prefix DIR] [--build DIR] [--emulated]

  --prefix DIR  where the libraries that Frostline needs are unpacked (or FROSTLINE_PREFIX): DIR/lib
                and DIR/include, or those of DIR/usr
  --build DIR   where to build (default: build/gpu)
  --emulated    without a GPU: the same on the emulator of its driver, with smaller sizes; the
                figures say nothing of a GPU

FROSTLINE_PYTHON names a Python with PyTorch (default: python3).
TEXT
}

say() { printf 'check: %s\n' "$*" >&2; }

prefix="${FROSTLINE_PREFIX:-}"
build="$root/build/gpu"
emulated=0
while (($#)); do
    case $1 in
        --prefix | --build)
            (($# > 1)) || { say "$1 needs a folder"; exit 2; }
            if [[ $1 == --prefix ]]; then prefix="$2"; else build="$2"; fi
            shift 2 ;;
        --emulated) emulated=1; shift ;;
        --help) usage; exit 0 ;;
        *) say "unknown argument '$1'"; usage >&2; exit 2 ;;
    esac
done
[[ -z $prefix || -d $prefix ]] || { say "no folder '$prefix'"; exit 2; }

# ---- The GPU ----

if ((emulated)); then
    gpu="the emulator"
elif ! gpu="$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null)" || [[ -z $gpu ]]; then
    say "no NVIDIA GPU here: nvidia-smi finds none; --emulated runs the same on the emulator"
    exit 77
fi
gpu="$(head -n 1 <<<"$gpu")"
python="$(command -v "${FROSTLINE_PYTHON:-python3}")" || { say "no Python"; exit 2; }
mkdir -p "$build" && build="$(cd "$build" && pwd)" || exit 2
results="$build/check"
rm -rf "$results"
mkdir -p "$results" || exit 2

# ---- What the prefix adds ----

# prepend VARIABLE FOLDER: before what is searched already, if there is such a folder.
prepend() {
    local before="${!1:-}"
    if [[ -d $2 ]]; then export "$1=$2${before:+:$before}"; fi
}

cmake_prefix=
if [[ -n $prefix ]]; then
    prefix="$(cd "$prefix" && pwd)"
    for tree in "$prefix" "$prefix/usr"; do
        cmake_prefix+="${cmake_prefix:+;}$tree"
        for folder in "$tree"/lib "$tree"/lib64 "$tree/lib/$(uname -m)-linux-gnu"; do
            prepend LD_LIBRARY_PATH "$folder"
            prepend PKG_CONFIG_PATH "$folder/pkgconfig"
        done
        prepend PKG_CONFIG_PATH "$tree/share/pkgconfig"
        prepend PATH "$tree/bin"
    done
    # Unpacked packages of a distribution believe that they lie in /usr.
    if [[ -d $prefix/usr/include ]]; then export PKG_CONFIG_SYSROOT_DIR="$prefix"; fi
fi

# ---- Parts ----

# part NAME SECONDS COMMAND...: runs it and notes what came of it. A command that ends with 77 was
# not possible here, and its last line says why.
failed=0
part() {
    local name="$1" limit="$2" left=$((limit_s - SECONDS)) begun=$SECONDS status outcome note=
    shift 2
    local log="$results/$name.log"
    if ((left < 5)); then
        printf '%s\t%s\t%s\t%s\n' "$name" "FAILED" 0 "no time was left" >>"$results/parts.tsv"
        failed=1
        return 1
    fi
    ((limit < left)) || limit=$left
    say "$name (at most $limit s)"
    timeout --kill-after=5 "$limit" "$@" >"$log" 2>&1 </dev/null
    status=$?
    case $status in
        0) outcome=ok ;;
        77) outcome=skipped note="$(tail -n 1 "$log")" ;;
        124 | 137) outcome=FAILED note="took longer than $limit s; see $log" ;;
        *) outcome=FAILED note="status $status; see $log" ;;
    esac
    [[ $outcome != FAILED ]] || failed=1
    printf '%s\t%s\t%s\t%s\n' "$name" "$outcome" $((SECONDS - begun)) "$note" >>"$results/parts.tsv"
    [[ $outcome == ok ]]
}

# The functions below run in shells of their own, so that each can be ended when its time is up.
configure() {
    local -a settings=(-DFROSTLINE_TESTS=ON -DFROSTLINE_BENCH=ON)
    if command -v ninja >/dev/null; then settings+=(-G Ninja); fi
    if [[ -n $cmake_prefix ]]; then settings+=("-DCMAKE_PREFIX_PATH=$cmake_prefix"); fi
    # The Python module needs pybind11: the interpreter's own, or what CMake finds.
    local pybind11 where='import pybind11; print(pybind11.get_cmake_dir())'
    if "$python" -c 'import torch' 2>/dev/null; then
        settings+=("-DFROSTLINE_PYTHON=$python")
        if pybind11="$("$python" -c "$where" 2>/dev/null)"; then
            settings+=("-DFROSTLINE_PYBIND11_DIR=$pybind11")
        elif [[ -n ${FROSTLINE_PYBIND11_DIR:-} ]]; then
            settings+=("-DFROSTLINE_PYBIND11_DIR=$FROSTLINE_PYBIND11_DIR")
        fi
    fi
    # A module that cannot be built is no reason not to check the rest.
    cmake -S "$root" -B "$build" "${settings[@]}" ||
        cmake -S "$root" -B "$build" "${settings[@]}" -DFROSTLINE_PYTHON=
}
build_all() {
    local -a wanted=(test_tiers frostline_emulator frostline_bench frostline_train)
    if grep -q '^FROSTLINE_PYTHON:[A-Z]*=.' "$build/CMakeCache.txt"; then
        wanted+=(frostline_python frostline_python_sources)
    fi
    cmake --build "$build" --parallel "$(nproc)" --target "${wanted[@]}"
}
train_and_compare() {
    local -a sizes=(--layers 8 --width 512 --heads 8 --context 256 --batch 16 --steps 12)
    if ((emulated)); then
        sizes=(--layers 4 --width 128 --heads 4 --context 128 --batch 8 --steps 3)
    fi
    "$python" "$root/tests/gpu/trainer_pair.py" "$build/bin/frostline_train" \
        "$results/trainer.json" "${sizes[@]}"
}
torch_steps() {
    local -a how=()
    if ((emulated)); then how=(--device cpu --layers 2 --width 128 --batch 4 --steps 3); fi
    PYTHONPATH="$build/python:$root/bench/demo${PYTHONPATH:+:$PYTHONPATH}" \
        "$python" "$root/tests/gpu/torch_step.py" --results "$results/torch.json" "${how[@]}"
}
torch_allocator() {
    local -a how=()
    if ((emulated)); then how=(--device cpu --layers 2 --width 128 --batch 4 --steps 3); fi
    PYTHONPATH="$build/python:$root/bench/demo${PYTHONPATH:+:$PYTHONPATH}" \
        "$python" "$root/tests/gpu/torch_allocator.py" --results "$results/torch_allocator.json" \
        "${how[@]}"
}
export -f configure build_all train_and_compare torch_steps torch_allocator
export root build results python cmake_prefix emulated

if part configure 60 bash -uc configure && part build 280 bash -uc build_all; then
    unset FROSTLINE_CUDA_DRIVER
    if ((emulated)); then
        export FROSTLINE_CUDA_DRIVER="$build/lib/libfrostline_emulator.so"
        export FROSTLINE_EMULATOR_MEMORY=4GiB
        # As small as any GPU's, so that budgets of some of them are filled in no time.
        export FROSTLINE_EMULATOR_GRANULARITY=64KiB
    fi
    # Not where memory is made to run out: that would strike the driver, too.
    part conformance 90 env FROSTLINE_TEST_GPU=1 "$build/bin/test_tiers" --gtest_brief=1 \
        --gtest_filter='*/device*:*_device:*dram_pinned-*Large*:*Death*:*Faults*'
    part device_costs 60 "$build/bin/frostline_bench" device --json "$results/device.json"
    part trainer 90 bash -uc train_and_compare
    part torch 90 bash -uc torch_steps
    part torch_allocator 90 bash -uc torch_allocator
fi
"$python" "$root/tests/gpu/table.py" "$results" --gpu "$gpu" --seconds "$SECONDS" || failed=1
exit "$failed"
