"""What the demo of the device tier trains, with how much of which memory, over which links."""

from __future__ import annotations

from settings import MIB, Plan, Shape, UsageError, as_size

DEVICE_FULL = Plan(Shape(layers=8, width=256, heads=4, context=128, batch=8), steps=4, rounds=2)
DEVICE_QUICK = Plan(Shape(layers=4, width=128, heads=4, context=128, batch=8), steps=3, rounds=1)
# A GPU computes the shapes above in milliseconds, and what they need is too little to be a demo.
DEVICE_GPU = Plan(Shape(layers=12, width=768, heads=12, context=512, batch=8), steps=4, rounds=2)

# Kernels on the host's processor are slower than a GPU's by a factor of hundreds. Links slower by
# a hundred leave the proportion of the two on the pessimistic side.
PCIE_4_X16_BYTES_PER_S = 25_000_000_000
LINK_SCALE = 100
# For the plain run, whose need is not known yet. It is an upper bound; untouched memory costs none.
PLAIN_EMULATED_MEMORY = "16GiB"

# AdamW without a warm-up of its rate: with 0.001 the larger shape unlearns in its fourth step.
LEARNING_RATE = 0.0005

CHUNK_BYTES = 2 * MIB  # what device memory is taken in
ALLOCATIONS_BYTES = MIB // 2  # what the driver adds to allocations, each rounded up
LEAST_CHUNKS = 4


def device_limit(plain_peak_bytes: int) -> int:
    """Half of what the plain run took; the device has no more, where that can be set."""
    return plain_peak_bytes // 2


def device_budgets(plain: dict) -> dict[str, int]:
    """Budgets in bytes by tier, from the first plain run.

    The tier on the device gets what its half leaves beside what stays there. DRAM and pmem take a
    third each of what is left over, so the rest has to go to swap, which could hold all of it.
    Raises UsageError if the device's half is too small for that.
    """
    limit, fixed = device_limit(plain["peak_device_bytes"]), plain["fixed_device_bytes"]
    chunks = (limit - fixed - ALLOCATIONS_BYTES) // CHUNK_BYTES
    if chunks < LEAST_CHUNKS:
        raise UsageError(
            f"half of the device memory of the plain run is {as_size(limit)}, and what cannot "
            f"move takes {as_size(fixed)} of it: too little is left; try a larger --batch"
        )
    device = chunks * CHUNK_BYTES
    left = plain["kept_bytes"] - device
    part = max(left // 3 // CHUNK_BYTES, 2) * CHUNK_BYTES
    return {"device": device, "dram": part, "pmem": part, "swap": left + 16 * MIB}
