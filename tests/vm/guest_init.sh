#!/bin/busybox sh
# The first and only process of the guest: makes /mnt (a DAX file system) and a DAX device of the
# machine's two NVDIMMs, runs what the kernel command line asks for, and turns the machine off.
# The host reads the lines that begin with "vm: ".

/bin/busybox --install -s /bin
export PATH=/bin HOME=/ TMPDIR=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm

give_up() {
    echo "vm: broken: $*"
    poweroff -f
}

while read -r module; do
    insmod "/modules/$module" || give_up "$module cannot be loaded"
done </modules/order

wait_for() {
    tries=0
    while [ ! -e "$1" ]; do
        [ $tries -lt 100 ] || give_up "no $1"
        tries=$((tries + 1))
        sleep 0.1
    done
}

# Only an fsdax or devdax namespace has DAX; its page structures go to DRAM. The label area of the
# NVDIMM keeps the choice over a boot.
make_namespace() {
    ndctl create-namespace -f -e "namespace$1.0" -m "$2" -M mem >/dev/null || give_up "$2"
}

wait_for /sys/bus/nd/devices/namespace0.0
if [ "$VM_FRESH" = 1 ]; then
    make_namespace 0 fsdax
    wait_for /dev/pmem0
    mkfs.ext4 -q -F -b 4096 /dev/pmem0 || give_up "no file system"
fi
wait_for /dev/pmem0
mount -t ext4 -o dax /dev/pmem0 /mnt || give_up "/mnt is no DAX file system"

# scenario NAME LIMIT_S COMMAND...: one line for the host; what the command said if it failed.
scenario() {
    name="$1" limit_s="$2"
    shift 2
    echo "vm: begin $name"
    timeout -s KILL "$limit_s" "$@" >/tmp/said 2>&1 </dev/null
    case $? in 0) result=passed ;; 1) result=failed ;; *) result=broken ;; esac
    [ $result = passed ] || cat /tmp/said
    tests="$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' /tmp/said | tail -n 1)"
    echo "vm: end $name $result ${tests:-0}"
}

# suite NAME LIMIT_S FILTER: those of the C++ tests.
suite() { scenario "$1" "$2" test_tiers --gtest_brief=0 --gtest_filter="$3"; }

run_suites() {
    make_namespace 1 devdax
    wait_for /dev/dax1.0
    [ -d /sys/devices/system/node/node1 ] || give_up "one NUMA node only"
    wait_for /dev/vda
    export FROSTLINE_TEST_PMEM=/mnt
    suite fsdax "$VM_LIMIT_S" '*/pmem_dax:Pmem/*/dax_file'
    unset FROSTLINE_TEST_PMEM
    export TMPDIR=/mnt
    suite fsdax-copies "$VM_LIMIT_S" 'CopyPairs/*pmem*:PmemTier.*:PmemInPlace.*:PmemFileTest.*'
    export TMPDIR=/tmp FROSTLINE_TEST_DEVDAX=/dev/dax1.0
    suite devdax "$VM_LIMIT_S" '*/pmem_device:Pmem/*/device'
    unset FROSTLINE_TEST_DEVDAX
    suite numa "$VM_LIMIT_S" '*Numa*'
    export FROSTLINE_TEST_BLOCK_DEVICE=/dev/vda
    suite block-device "$VM_LIMIT_S" 'SwapDevice.*'
}

# Checks what an earlier life of this machine reported, and that the check can fail; then writes on
# until the host kills the machine.
run_recovery() {
    if [ "$VM_LAST" -gt 0 ]; then
        scenario recovery "$VM_LIMIT_S" pmem_writer verify /mnt/records "$VM_LAST"
        # So many more than reported were certainly not written.
        scenario missing "$VM_LIMIT_S" pmem_writer verify /mnt/records $((VM_LAST + 1000))
    fi
    [ "$VM_WRITE" = 1 ] || return
    echo "vm: begin writing"
    pmem_writer write /mnt/records $((VM_LAST + 1)) </dev/null
    echo "vm: broken: the writer ended"
}

"run_$VM_DO"
echo "vm: done"
poweroff -f
