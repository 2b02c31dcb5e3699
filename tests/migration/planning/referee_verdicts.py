"""Lets the independent referee judge many cases in one process.

Usage: referee_verdicts.py FOLDER_OF_REFEREE CASES VERDICTS. CASES has one case a line, as
replay_case.cpp writes it; VERDICTS gets one verdict a line, in the order of the machine's tiers and
links.
"""

import json
import sys

sys.dont_write_bytecode = True


def judge(referee, case):
    trace, machine, schedule = case["trace"], case["machine"], case["schedule"]
    tensors = {i: (size, kind) for i, size, kind in trace["tensors"]}
    kernels = [tuple(each) for each in trace["kernels"]]
    lines = [[tuple(each) for each in schedule[k]] for k in ("init", "kernels", "moves", "drops")]
    try:
        judging = referee.Referee(tensors, kernels, machine, lines)
        verdict = judging.run()
    except referee.Illegal as illegal:
        return {"legal": False, "why": str(illegal)}
    return {
        "legal": True,
        "step_ns": verdict["step_ns"],
        "slowdown": verdict["slowdown"],
        "peak_bytes": [verdict["peak_bytes"][tier["name"]] for tier in machine["tiers"]],
        "moved_bytes": [judging.moved[link["from"], link["to"]] for link in machine["links"]],
    }


def main():
    folder, cases, verdicts = sys.argv[1:]
    sys.path.insert(0, folder)
    import referee

    with open(cases) as lines, open(verdicts, "w") as out:
        for line in lines:
            print(json.dumps(judge(referee, json.loads(line))), file=out)


main()
