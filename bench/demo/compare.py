"""Decides whether the offloaded runs did what was promised; exact, no tolerance anywhere."""

from __future__ import annotations

from dataclasses import dataclass

from kinds import Kind
from settings import as_size


@dataclass(frozen=True)
class Check:
    """One promise: its name, whether it was kept, and one line of detail for the reader."""

    name: str
    passed: bool
    detail: str


def first_difference(left: list[str], right: list[str]) -> int | None:
    """Index of the first place at which two lists of hexadecimal losses differ, None if nowhere."""
    for index, (a, b) in enumerate(zip(left, right)):
        if a != b:
            return index
    return None if len(left) == len(right) else min(len(left), len(right))


def check_losses(plain: list[dict], offloaded: list[dict]) -> Check:
    """Every run of both modes must have the same losses, bit for bit, at least one of them, and
    none of them NaN, which would be equal in text and mean nothing."""
    reference = plain[0]["losses_hex"]
    if not reference or any(loss != loss for run in plain for loss in run["losses"]):
        return Check("losses_identical", False, "the plain run has no usable losses")
    for run in plain[1:]:
        step = first_difference(reference, run["losses_hex"])
        if step is not None:
            detail = f"two plain runs differ in step {step + 1}: this machine is not deterministic"
            return Check("losses_identical", False, detail)
    for run in offloaded:
        step = first_difference(reference, run["losses_hex"])
        if step is not None:
            plain_loss = (reference[step : step + 1] or ["nothing"])[0]
            other_loss = (run["losses_hex"][step : step + 1] or ["nothing"])[0]
            detail = f"step {step + 1}: plain {plain_loss}, offloaded {other_loss}"
            return Check("losses_identical", False, detail)
    return Check("losses_identical", True, f"{len(reference)} losses, every bit the same")


def check_weights(plain: list[dict], offloaded: list[dict], hash_name: str) -> Check:
    """All weights after the last step must have the same hash in every run."""
    hashes = {run["weights_hash"] for run in plain + offloaded}
    if len(hashes) == 1:
        return Check("weights_identical", True, f"{hash_name} {hashes.pop()[:16]}…")
    mine, theirs = plain[0]["weights_hash"], offloaded[0]["weights_hash"]
    detail = f"final weights differ: plain {mine[:16]}…, offloaded {theirs[:16]}…"
    return Check("weights_identical", False, detail)


def check_budgets(tiers: dict[str, dict]) -> Check:
    """No tier may ever have held one byte more than its budget."""
    for name, tier in tiers.items():
        peak, budget = tier["peak_bytes"], tier["budget_bytes"]
        if peak > budget:
            detail = f"{name} held {peak} bytes with a budget of {budget}"
            return Check("budgets_kept", False, detail)
    return Check("budgets_kept", True, "no tier went over its budget")


def check_tiers_used(tiers: dict[str, dict]) -> Check:
    """A tier that held nothing, or that nothing moved into and out of, shows nothing: then the demo
    did not do what it claims."""
    needed = ("peak_bytes", "moved_in_bytes", "moved_out_bytes")
    unused = [name for name, tier in tiers.items() if not all(tier[key] for key in needed)]
    if unused:
        return Check("tiers_used", False, f"never used: {', '.join(unused)}")
    return Check("tiers_used", True, "every tier held some of it, and passed it on")


def check_limit(offloaded: list[dict], kind: Kind) -> Check:
    """Where the memory itself was limited, no run may have had more of it."""
    for run in offloaded:
        peak, limit = run[f"{kind.peak}_bytes"], run.get("limit_bytes")
        if limit is not None and peak > limit:
            detail = f"an offloaded run took {peak} bytes of {kind.memory}, more than {limit}"
            return Check("limit_kept", False, detail)
    return Check("limit_kept", True, f"the limit of {kind.memory} was kept, where there was one")


def check_misuse(runs: list[dict]) -> Check:
    """An emulated driver reports calls that a real one would have answered with wrong data."""
    count = sum(run.get("misuses", 0) for run in runs)
    detail = f"the emulated driver reported {count} cases of misuse"
    return Check("no_misuse", count == 0, detail)


def check_all(
    plain: list[dict], offloaded: list[dict], tiers: dict[str, dict], kind: Kind
) -> list[Check]:
    """All checks; the demo fails if one of them does."""
    return [
        check_losses(plain, offloaded),
        check_weights(plain, offloaded, kind.hash_name),
        check_budgets(tiers),
        check_tiers_used(tiers),
        check_limit(offloaded, kind),
        check_misuse(plain + offloaded),
    ]


def describe_saving(plain_bytes: int, offloaded_bytes: int) -> str:
    """For example "46 % less (905 MiB)", or how much more it was."""
    saved = plain_bytes - offloaded_bytes
    word = "less" if saved >= 0 else "more"
    return f"{abs(saved) / plain_bytes:.0%} {word} ({as_size(abs(saved))})".replace("%", " %", 1)
