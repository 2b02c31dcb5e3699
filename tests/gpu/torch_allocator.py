"""A training step of PyTorch's with its own allocator, and with Frostline's.

Usage: torch_allocator.py --results FILE [sizes]. Each allocator has a process of its own, because
it is chosen for good; the two train the same model on the same tokens, so that losses must be the
same in every bit. On a GPU Frostline's also captures a graph, runs out of memory and uses several
streams. Exits 77 with a reason where it cannot run, and 1 if something is not as it must be.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time

from training_run import CONTEXT, HEADS, missing_gpu, missing_module, parser

# Before CUDA starts: without it cuBLAS may add in another order each time.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

WARM_UP = 2
MIB = 1 << 20


def train(torch, arguments):
    """Losses, and seconds of each step, from an idle device to an idle device."""
    from model import ByteLanguageModel

    def wait():
        if arguments.device.startswith("cuda"):
            torch.cuda.synchronize()

    torch.manual_seed(0)
    model = ByteLanguageModel(arguments.layers, arguments.width, HEADS, CONTEXT)
    model.to(arguments.device)
    optimizer = torch.optim.AdamW(model.parameters())
    generator = torch.Generator().manual_seed(1)
    losses, seconds = [], []
    for step in range(WARM_UP + arguments.steps):
        batch = arguments.batch - step % 3  # sizes that change, as they do in real training
        tokens = torch.randint(0, 256, (2, batch, CONTEXT), generator=generator)
        tokens = tokens.to(arguments.device)
        wait()
        start = time.perf_counter()
        loss = model(tokens[0], tokens[1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()
        seconds.append(time.perf_counter() - start)
        losses.append(loss.item().hex())
    return losses, seconds[WARM_UP:]


def check_graph(torch):
    """A captured graph replays right, whatever is allocated meanwhile."""
    source = torch.zeros(MIB, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = (source + 1).mul_(2)
    for value in range(3):
        source.fill_(value)
        churn = [torch.full((MIB,), 7.0, device="cuda") for _ in range(8)]
        del churn
        torch.cuda.empty_cache()
        graph.replay()
        assert bool((result == 2 * (value + 1)).all()), "the replay computed something else"
    del graph, result
    torch.cuda.empty_cache()


def check_out_of_memory(torch):
    """More than there is raises PyTorch's own exception, and nothing is lost by it."""
    before = torch.cuda.memory_allocated()
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        assert "out of memory" in str(error), error
    else:
        raise AssertionError("a petabyte was given")
    assert torch.cuda.memory_allocated() == before


def check_streams(torch):
    """A tensor that another stream reads is not handed out again before that."""
    side = torch.cuda.Stream()
    for value in range(20):
        tensor = torch.full((4 * MIB,), float(value), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            total = tensor.double().sum()
        tensor.record_stream(side)
        del tensor
        torch.full((4 * MIB,), -1.0, device="cuda")
        side.synchronize()
        assert total.item() == value * 4.0 * MIB, "the memory was handed out too soon"


def checks(torch):
    """What came of each check of Frostline's allocator on a GPU."""
    outcomes = {}
    for name, check in (("graph", check_graph), ("out of memory", check_out_of_memory),
                        ("streams", check_streams)):
        try:
            check(torch)
            outcomes[name] = "ok"
        except Exception as error:  # noqa: BLE001: whatever it is, the table says it
            outcomes[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return outcomes


def one_way(arguments):
    """Trains with one allocator and prints what came of it."""
    import torch

    on_gpu = arguments.device.startswith("cuda")
    if arguments.way == "frostline":
        import frostline

        if on_gpu:
            frostline.torch.enable()
        else:
            frostline.torch.enable_cpu()
    torch.use_deterministic_algorithms(True)
    losses, seconds = train(torch, arguments)
    median = statistics.median(seconds)
    result = {"losses": losses, "step_s": median, "spread": (max(seconds) - min(seconds)) / median,
              "device": torch.cuda.get_device_name() if on_gpu else "CPU", "checks": {}}
    if on_gpu:
        result["allocated_bytes"] = torch.cuda.max_memory_allocated()
        result["reserved_bytes"] = torch.cuda.max_memory_reserved()
        if arguments.way == "frostline":
            result["checks"] = checks(torch)
    print(json.dumps(result))


def run_way(way):
    done = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--way", way],
                          stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"the run with the {way} allocator failed")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--way", choices=("default", "frostline"), help="one allocator only")
    arguments = options.parse_args()
    if missing := missing_module():
        print(missing)
        return 77
    if arguments.way:
        one_way(arguments)
        return 0
    if missing := missing_gpu(arguments.device):
        print(missing)
        return 77
    ways = {way: run_way(way) for way in ("default", "frostline")}
    identical = ways["frostline"].pop("losses") == ways["default"].pop("losses")
    outcomes = ways["frostline"]["checks"].items()
    wrong = [f"{name}: {said}" for name, said in outcomes if said != "ok"]
    result = json.dumps({"ways": ways, "identical": identical}, indent=2)
    arguments.results.write_text(result + "\n", encoding="utf-8")
    if not identical:
        wrong.append("losses differ from those with PyTorch's own allocator")
    for each in wrong:
        print(each, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
