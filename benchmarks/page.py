"""The measurements as a page of prose and tables: docs/performance.md, written from results.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks import report
from benchmarks.contenders import OURS, PEERS
from benchmarks.report import KINDS, Row

HEAD = """# Performance

<!-- written by `python docs/performance.py results.json` -->

Edgewise computes attention and aggregation on a graph with kernels of its own, and this page compares them with the
fastest other way that was found to compute the same numbers from Python. The chart has one bar for each case, forward
and backward on one thread: how many times as long the fastest peer takes. Every figure can be measured anew with one
command.

<!-- chart: peers -->

## How it was measured

Measured by `{command}` on {date}: {processor}; {versions}. {quick}{remarks}Run it on your own machine:

```sh
python -m benchmarks
python -m benchmarks csr-4x16
python -m benchmarks all --out results
```

The first lists the cases and the contenders; `python docs/performance.py results/results.json` writes this page from
what the last one measured.

Each contender runs in a process of its own. Its output and its gradients are compared with a float64 oracle first,
and one that is wrong by more than 1e-4 of the largest entry is not timed; models of particles and small GPTs are
compared by their first losses. Two cases have no oracle: an epoch on Cora, whose error is that of validation after
training, and `sampling`, whose draws are not compared. Rounds are interleaved, so that whatever else the machine does
meets everyone alike; a figure is the median of the rounds, with the quartiles in parentheses. Compiling and the first
steps do not count. On one thread the time is the process's processor time; on several, and where `threads` compares
one with several, it is time by the clock. MB is the peak above what was resident just before the step, and "extra"
what of it is neither the output nor a gradient; `kept` is what stays between steps, such as a graph's transpose. "×"
is a contender's time divided by Edgewise's: above 1, Edgewise is faster. `-reuse` means that the allocator keeps what
is freed (`MALLOC_MMAP_MAX_=0`, `MALLOC_TRIM_THRESHOLD_=-1`), which spares a peer the cost of fresh pages.
"""

ON_A_GPU = """## On a GPU

<!-- written by `python docs/performance.py --gpu table.md` -->

    PYTHONPATH=src python -m benchmarks all --device cuda --out results-gpu

runs straight from the sources, begins no case after 8.5 minutes (`--minutes`), and needs PyTorch and Triton alone;
PyTorch Geometric and anemoi-models take part where they are installed. `--dry-run` shows the script at work without a
GPU, and `--compile-only` compiles every kernel for one that is not there. Every contender of attention and sums is
compared with a float64 oracle before it is timed; of training steps the losses have to fall, on the whole graph to be
finite. Times are medians between CUDA events, of rounds in which all take turns, on inputs that rotate over more than
the L2 holds. It covers

- attention on edges, 100,000 nodes with 2 million edges and a million with 16 million, in bfloat16 and float32, beside
  PyTorch Geometric, eager and compiled, and as a share of what the card's memory can move;
- complete and causal attention of 1,024 to 16,384 tokens beside PyTorch's own, and windows beside FlexAttention with
  the time that their masks take to build;
- 512 molecules with a bias on their edges beside variable-length and padded attention;
- a graph transformer's step on 2.4 million nodes and 120 million edges: its peak memory;
- sums, means and maxima of neighbours beside cuSPARSE and PyTorch Geometric;
- steps of `cora-gat` beside PyTorch Geometric's, and of `shakespeare-gpt` beside a plain GPT under `torch.compile`,
  both in CUDA graphs, too;
- the planner's constants and its regret.

{measured}
"""
NOT_MEASURED = (
    "Nothing was measured on a GPU yet: here will stand the figures, with the card, the versions and the date. Until "
    "then the planner assumes an H200's published speeds."
)


def on_a_gpu(table: str | None = None) -> str:
    """The section on GPUs, with the tables that `python -m benchmarks --device cuda` wrote."""
    return ON_A_GPU.format(measured=NOT_MEASURED if table is None else table.strip())


def around_gpus(text: str) -> tuple[str, str, str]:
    """What stands before the section on GPUs, that section (without figures where there is none yet), and what follows.

    Example
        >>> around_gpus("# Page\\n\\n## On a GPU\\n\\nfast\\n\\n## Next\\n")
        ('# Page\\n\\n', '## On a GPU\\n\\nfast\\n', '\\n## Next\\n')
    """
    start = text.find("## On a GPU\n")
    if start < 0:
        return text, on_a_gpu(), ""
    end = text.find("\n## ", start)
    end = len(text) if end < 0 else end
    return text[:start], text[start:end], text[end:]


def page(results: dict[str, Any]) -> str:
    """The whole page, but for the section on GPUs."""
    parts = [_head(results), _overview(results["measurements"])]
    rows = results["measurements"]
    cases = dict.fromkeys(row["case"] for row in rows)
    parts += [_case(name, [row for row in rows if row["case"] == name], results) for name in cases]
    parts += [_roofline(results), _regret(results["regret"])]
    return "\n".join(part for part in parts if part).rstrip() + "\n"


def best_peer(rows: Sequence[Row], kind: str) -> Row | None:
    """The fastest of those that are not Edgewise's own."""
    timed = [row for row in rows if row["contender"] in PEERS and kind in row["seconds"]]
    return min(timed, key=lambda row: row["seconds"][kind]["median"], default=None)


def _head(results: dict[str, Any]) -> str:
    machine = results["machine"]
    packages = {"edgewise": "Edgewise", "torch": "PyTorch", "torch_geometric": "PyTorch Geometric", "numba": "numba"}
    versions = ", ".join(f"{told} {machine[name]}" for name, told in packages.items() if machine.get(name))
    quick = "This was a quick run at small sizes, which says little about speed. " if results["quick"] else ""
    return HEAD.format(
        command=results["command"],
        date=results["date"],
        processor=machine["processor"],
        versions=f"Python {machine['python']}, {versions}",
        quick=quick,
        remarks=f"{results['remarks']} " if "remarks" in results else "",  # of whoever put several runs together
    )


def _overview(rows: Sequence[Row]) -> str:
    """Each case's Edgewise beside the fastest peer."""
    lines = []
    for case, part, threads in dict.fromkeys((row["case"], row["part"], row["threads"]) for row in rows):
        same = [row for row in rows if (row["case"], row["part"], row["threads"]) == (case, part, threads)]
        own = next((row for row in same if row["contender"] == "edgewise"), None)
        for kind, told in KINDS.items():
            peer = best_peer(same, kind)
            if own is None or kind not in own["seconds"] or peer is None:
                continue
            lines.append(
                {
                    "case": f"{case} {part}".strip(),
                    "threads": threads,
                    "pass": told,
                    "Edgewise, ms": report.shown(1e3 * own["seconds"][kind]["median"]),
                    "fastest peer, ms": report.shown(1e3 * peer["seconds"][kind]["median"]),
                    "peer": f"`{peer['contender']}`",
                    "×": report.ratio(same, peer, kind),
                    "MB": f"{own['megabytes'][kind]:,.0f}",
                    "its MB": f"{peer['megabytes'][kind]:,.0f}",
                    "extra": report.beyond_results(own, kind),
                    "its extra": report.beyond_results(peer, kind),
                }
            )
    return f"## Beside the fastest peer\n\n{report.markdown(lines)}" if lines else ""


def _case(name: str, rows: Sequence[Row], results: dict[str, Any]) -> str:
    from benchmarks.cases import CASES

    timed = [row for row in rows if not row["refused"]]
    text = [f"## {name}\n", f"{_sentence(CASES[name].about) if name in CASES else name}\n"]
    text.append(report.markdown([_coded(line) for line in report.table(timed)]))
    refusals: dict[str, list[str]] = {}
    for row in rows:
        if row["refused"]:
            listed = refusals.setdefault(row["refused"], [])
            label = f"`{row['contender']}`" + (f" ({row['part']})" if row["part"] else "")
            if label not in listed:
                listed.append(label)
    if refusals:
        told = "; ".join(f"{', '.join(who)}: {why}" for why, who in refusals.items())
        text.append(f"Not measured: {told}.\n")
    grown = [row for row in results["growth"] if row["case"] == name]
    if grown:
        text.append("Time and memory grow with the number of nodes to the power of:\n")
        text.append(report.markdown([_rounded(row) for row in grown]))
    several = [row for row in results["speed_up"] if row["case"] == name]
    if several:
        text.append("Speed-up over one thread, and whether output and gradients have the same bits on all of them:\n")
        lines = [
            {"part": row["part"], "contender": f"`{row['contender']}`"}
            | {f"{threads} threads": f"{value:.2f}" for threads, value in row["speed-up"].items()}
            | {"same bits": "yes" if row["same bits"] else "no"}
            for row in several
        ]
        text.append(report.markdown(lines))
    return "\n".join(text)


def _sentence(about: str) -> str:
    return about[0].upper() + about[1:] + "."


def _coded(line: dict[str, str]) -> dict[str, str]:
    return line | {"contender": f"`{line['contender']}`"}


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: f"{value:.2f}" if isinstance(value, float) else f"`{value}`" if name == "contender" else value
        for name, value in row.items()
        if name != "case"
    }


def _roofline(results: dict[str, Any]) -> str:
    if not results["roofline"]:
        return ""
    text = ["## What the machine allows\n"]
    for threads, speed in results["roofline"].items():
        text.append(
            f"On {threads} thread{'s' if threads != '1' else ''} it copies {speed['bytes'] / 1e9:.1f} GB/s "
            f"(read and written) and multiplies matrices at {speed['flops'] / 1e9:.0f} GFLOP/s, in the same run."
        )
    lines = [
        {
            "case": row["case"],
            "contender": f"`{row['contender']}`",
            "threads": row["threads"],
            "pass": KINDS[row["kind"]],
            "GB/s": f"{row['gigabytes per second']:.1f}",
            "of copying": f"{row['of copy']:.0%}",
            "GFLOP/s": f"{row['gigaflops']:.1f}",
            "of sgemm": f"{row['of sgemm']:.0%}",
        }
        for row in results["achieved"]
        if row["contender"] == "edgewise" or row["contender"] not in OURS
    ]
    if lines:
        formulas = results["formulas"]
        text.append(f"\nCounted is what any method must move and compute, with {formulas['symbols']}:\n")
        text += [f"- `{name}`: {formula}" for name, formula in formulas.items() if name not in ("symbols", "pairs")]
        text.append(
            "\nRows that several edges share are counted for each of them: caches can serve more than a copy does.\n"
        )
        text.append(report.markdown(lines))
    return "\n".join(text) + "\n"


def _regret(found: dict[str, Any] | None) -> str:
    if found is None or not found["rows"]:
        return ""
    worst = found["worst_at"]
    text = [
        "## The planner's choices\n",
        f"Every backend that does not refuse was measured, forward and backward on {found['threads']} threads, on "
        f"{len(found['rows'])} configurations: random graphs from 0.1 % of all pairs to all of them, windows, plain "
        f"patterns and batches of molecules. The planner's choice costs {found['median']:.1%} more than the best in "
        f"the median and {found['worst']:.0%} at worst ({worst['graph']}, n = {worst['n']}, "
        f"{worst['heads']} × {worst['channels']}: {worst['choice']} instead of {worst['best']}).\n",
        "The density at which attention on all pairs becomes as fast as on the edges alone:\n",
    ]
    lines = [
        {
            "nodes": row["n"],
            "heads × channels": f"{row['heads']} × {row['channels']}",
            "density": "no crossing measured" if row["density"] is None else f"{row['density']:.1%}",
        }
        for row in found["break_even"]
    ]
    return "\n".join([*text, report.markdown(lines)])
