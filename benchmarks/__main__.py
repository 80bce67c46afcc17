"""Time Edgewise beside its peers: each in its own process, checked against float64 first, rounds interleaved.

    python -m benchmarks                                         the cases and the contenders
    python -m benchmarks csr-4x16 --threads 2
    python -m benchmarks window-4096 --only edgewise sdpa-blocks
    python -m benchmarks all --out results
    python -m benchmarks.gpu                                     on an NVIDIA GPU

One thread is measured in processor time, several by the clock (in `threads` one too); memory is the peak above what
was resident before.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks import report, roofline
from benchmarks.cases import CASES, Case
from benchmarks.contenders import CONTENDERS, OURS
from benchmarks.harness import Budget, race
from edgewise.apps.arguments import Parser, whole
from edgewise.apps.command.listing import columns
from edgewise.errors import ConfigError, EdgewiseError, nearest

ALSO = {
    "roofline": "how fast this machine copies and multiplies, which every other case is compared with",
    "all": "everything above",
}


def build_parser() -> Parser:
    """The options."""
    about, _, details = (__doc__ or "").partition("\n")
    parser = Parser(
        prog="python -m benchmarks",
        description=about,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="cases, or `all`; without one, list them")
    parser.add_argument("--quick", action="store_true", help="small sizes, two rounds, one thread, nothing compiled")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write the tables and results.json here")
    parser.add_argument("--only", nargs="+", default=[], metavar="CONTENDER", help="these contenders only")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON on standard output")
    number = whole(1, 1024)
    parser.add_argument("--threads", type=number, nargs="+", default=[], metavar="N", help="(default: 1 2)")
    parser.add_argument("--seconds", type=whole(1), default=20, metavar="S", help="to measure each part (default: 20)")
    parser.add_argument("--rounds", type=whole(1, 10_000), metavar="N", help="measure N rounds instead")
    parser.add_argument(
        "--memory", type=whole(1), default=16, metavar="GB", help="of one process at most (default: 16)"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for: 0, or 2 for what the user can put right."""
    try:
        parser = build_parser()
        args, extra = parser.parse_known_args(argv)
        if extra:
            parser.refuse(extra[0])
        if args.cases:
            budget = Budget(seconds=args.seconds, rounds=args.rounds, gigabytes=args.memory)
            results = bench(args.cases, args.quick, args.threads, budget, args.only, args.out)
        else:
            results = show()
        if args.json:
            print(json.dumps(results, ensure_ascii=False))
    except EdgewiseError as error:
        print("benchmarks: error: " + " ".join(str(error).split()), file=sys.stderr)
        return 2
    return 0


def bench(
    cases: Sequence[str],
    quick: bool = False,
    threads: Sequence[int] = (),
    budget: Budget = Budget(),  # noqa: B008 (immutable)
    only: Sequence[str] = (),
    out: Path | None = None,
) -> dict[str, Any]:
    """Run cases by name on this machine's processor."""
    names = [*CASES, *ALSO]
    for case in cases:
        if case not in names:
            raise ConfigError(f"unknown case {case!r}{nearest(case, names)}; `python -m benchmarks` lists them")
    for name in only:
        if name not in CONTENDERS:
            known = ", ".join(CONTENDERS)
            raise ConfigError(f"unknown contender {name!r}{nearest(name, CONTENDERS)}; known are {known}")
    if quick:
        budget = replace(budget, quick=True, seconds=0.0, rounds=budget.rounds or 2)
    results: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks", *_typed(cases, quick, threads, only)]),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "quick": quick,
        "machine": report.surroundings(),
        "roofline": {},
        "formulas": roofline.FORMULAS,
        "measurements": [],
        "achieved": [],
    }
    cases = names if "all" in cases else cases
    chosen = {name: CASES[name] for name in CASES if name in cases}
    if only:
        _check_they_take_part(chosen, only)
    if "roofline" in cases or any(part.traffic for one in chosen.values() for part in one.parts.values()):
        results["roofline"] = roofline.machine(tuple(threads) or (1, 2), budget)
        _print_machine(results["roofline"])
    for name, one in chosen.items():
        _run(name, one, tuple(threads), budget, only, results)
        sys.stdout.flush()
    if out is not None:
        results["files"] = [str(out / name) for name in report.write(out, results)]
        print(f"wrote {', '.join(results['files'])}")
    return results


def _typed(cases: Sequence[str], quick: bool, threads: Sequence[int], only: Sequence[str]) -> list[str]:
    words = [*cases] + (["--quick"] if quick else [])
    words += ["--threads", *map(str, threads)] if threads else []
    return words + (["--only", *only] if only else [])


def show() -> dict[str, Any]:
    """Print the cases and the contenders of a CPU."""
    rows = [{"case": name, "description": case.about} for name, case in CASES.items()]
    rows += [{"case": name, "description": about} for name, about in ALSO.items()]
    contenders = [{"contender": name, "description": one.about} for name, one in CONTENDERS.items()]
    print(f"cases\n{columns(rows)}\n\ncontenders\n{columns(contenders)}\n")
    print("`python -m benchmarks CASE` runs one of them, `make bench` all of them at a small size.")
    return {"cases": rows, "contenders": contenders}


def _check_they_take_part(chosen: dict[str, Case], only: Sequence[str]) -> None:
    takes_part = {name for one in chosen.values() for name in (*OURS, *one.peers)}
    absent = [name for name in only if name not in takes_part]
    if absent and chosen:
        known = ", ".join(name for name in CONTENDERS if name in takes_part)
        raise ConfigError(f"{absent[0]} has no part in {', '.join(chosen)}; there are {known}")


def _run(
    name: str, case: Case, threads: tuple[int, ...], budget: Budget, only: Sequence[str], results: dict[str, Any]
) -> None:
    """Measure every part on every number of threads, and print the table."""
    print(f"\n{name}: {case.about}")
    contenders = [one for one in (*OURS, *case.peers) if not only or one in only]
    counts, parts = threads or (case.threads[:1] if budget.quick else case.threads), list(case.parts)
    if budget.quick:
        budget, parts = replace(budget, size=case.quick), parts[:1]
        if not only and case.whole:
            contenders = ["edgewise", *case.peers]
    rows: list[report.Row] = []
    for count in counts:
        for part in parts:
            entrants = [(contender, count) for contender in contenders]
            rows += map(asdict, race(name, part, entrants, budget, _say))
    _say("")
    results["measurements"] += rows
    print(columns(_without_absent(report.table(rows))))
    works = {f"{name}/{part}": roofline.work(name, part, budget.size) for part in parts}
    results["achieved"] += report.achieved(rows, works, results["roofline"])


def _without_absent(lines: list[dict[str, str]]) -> list[dict[str, str]]:
    """The table for a terminal; refusals, which are long, stand above it, one line for each reason."""
    kept = [line for line in lines if not line["forward ms"].startswith("—")]
    reasons: dict[str, list[str]] = {}
    for line in lines:
        if line not in kept:
            who = f"{line.get('part', '')} {line['contender']}".strip()
            if who not in reasons.setdefault(line["forward ms"], []):
                reasons[line["forward ms"]].append(who)
    for told, names in reasons.items():
        print(f"  {', '.join(names)} {told}")
    return [dict(zip(kept[0], kept[0], strict=True)), *kept] if kept else []


def _print_machine(found: dict[str, dict[str, float]]) -> None:
    for count, speed in found.items():
        print(
            f"this machine, {count} thread{'s' if count != '1' else ''}: copies "
            f"{speed['bytes'] / 1e9:.1f} GB/s (read and written), multiplies {speed['flops'] / 1e9:.0f} GFLOP/s (sgemm)"
        )


def _say(line: str) -> None:
    """What is running, on one line of the terminal that the next one overwrites."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
