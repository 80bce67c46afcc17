"""The figures of the documentation: what is run for each, what it gave, its bound, and the tables made of them.

    python -m benchmarks.figures                 run what has no result in build/figures yet, then write docs/tables
    python -m benchmarks.figures karate hopfield only commands and tables with one of these words in their names
    python -m benchmarks.figures --part 2/6      the second of six parts of about equal length, and write nothing
    python -m benchmarks.figures --write         run nothing: take over what build/figures holds, and write docs/tables

`figures.tsv` has a line for each figure. A result in build/figures stays until `--again`, or until its recipe or study
is changed; what was interrupted begins anew. `recorded.jsonl` keeps for each command what the tables show: of each
figure the mean, the sample deviation and the number of runs, and the processor's seconds of the whole command;
"earlier" marks what was run by hand before this module was there.

The columns of `figures.tsv`:

    table    the file of docs/tables, or nothing: the bound alone is held
    command  `edgewise train ...`, perhaps with $EDGEWISE_DATA/NAME; or a study, whose table is read as it prints it
    measure  what the table calls the figure
    bound    what must hold, after semicolons more: `≥ 0.8`; `≤ 0.5 × GNN/error`, of another figure of the same command;
             `better`, than without
    simple   a simple method's figure on the same split, and its name; where a run measures one itself, that is shown
    without  options that take away what the figure is to show, or another command
    value    the figure's name; of a study ROW/COLUMN, in which * stands for any row. Nothing: a run's own metric, or a
             study's whole table
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from hashlib import sha256
from inspect import signature
from pathlib import Path
from string import Template
from typing import Any

from edgewise.apps.command.main import parse
from edgewise.apps.options import configure
from edgewise.apps.recipes import FOLDER, names, read, task_of
from edgewise.errors import DataError
from edgewise.files import write_file
from edgewise.memory import KEPT, LARGEST
from edgewise.tasks import TASKS

ROOT = Path(__file__).parent.parent
TABLES, FIGURES, RECORDED = ROOT / "docs/tables", ROOT / "benchmarks/figures.tsv", ROOT / "benchmarks/recorded.jsonl"
BUILD = ROOT / "build" / "figures"
HEAD = ("command", "measure", "bound", "simple method", "without it", "measured", "seconds")
LESS = ("loss", "mse", "rmse", "ratio", "force_error", "energy_error", "memory", "degree", "clustering")  # is better
PERCENT = ("accuracy", "recalled", "ratio", "force_error", "energy_error", "valid", "novel", "unique")
DECIMALS = {"bleu": 1, "elbo": 1, "mse": 4, "degree": 4, "clustering": 4}  # of others 3
# What `keep_freed` asks for in the `edgewise` command.
FREED = {"MALLOC_MMAP_THRESHOLD_": f"{LARGEST}", "MALLOC_TRIM_THRESHOLD_": f"{KEPT}", "THP_MEM_ALLOC_ENABLE": "1"}
UNKNOWN = 60.0  # seconds of a command that was never timed
NO_DATA = "no folder with all files of"
Record = dict[str, Any]


class FigureError(Exception):
    """A command that gave no figure."""


@dataclass(frozen=True)
class Figure:
    """A line of figures.tsv."""

    table: str
    command: str
    measure: str = ""
    bound: str = ""
    simple: str = ""
    without: str = ""
    value: str = ""

    @property
    def other(self) -> str:
        """The command without what the figure is to show, or nothing."""
        return f"{self.command} {self.without}" if self.without.startswith("--") else self.without


@cache
def figures() -> tuple[Figure, ...]:
    with FIGURES.open(encoding="utf-8", newline="") as file:
        return tuple(Figure(*row) for row in list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:])


def commands(words: Sequence[str] = ()) -> list[str]:
    """Those of all figures, or of those with a word in the name of their command or table; each once."""
    chosen = [one for one in figures() if not words or any(w in f"{one.command} {one.table}" for w in words)]
    return list(dict.fromkeys(command for one in chosen for command in (one.command, one.other) if command))


# What a command gives


def measured(command: str, again: bool = False) -> Record:
    """What a command gave, from build/figures, or from running it now; the first one's figure is the run's metric."""
    path = place(command)
    if again or not path.is_file():
        write_file(path, json.dumps(run(command), ensure_ascii=False).encode())
    return json.loads(path.read_text(encoding="utf-8"))


def place(command: str) -> Path:
    """The file of a command's result; another one after a change of its recipe or study."""
    first, *words = shlex.split(command)
    if first == "python":
        path = ROOT / words[1].replace(".", "/")
        path = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    else:
        path = FOLDER / f"{words[1]}.yaml"
    source = sha256(f"{command}\n{path.read_text(encoding='utf-8')}".encode()).hexdigest()[:12]
    return BUILD / f"{re.sub(r'[^A-Za-z0-9.=]+', '-', command)[:180]}-{source}.json"


def run(command: str) -> Record:
    """Run a command in a folder of its own, beside what it starts from."""
    first, *words = shlex.split(command)
    if first == "python":
        printed, used = process([*words], ROOT)
        lines = [line.strip().strip("|").split("|") for line in printed.splitlines() if re.match(r"\|(?! ?---)", line)]
        return {"command": command, "rows": [[cell.strip() for cell in line] for line in lines], **used}
    recipe, words = words[1], [Template(word).safe_substitute(environment()) for word in words]
    more: list[str] = []
    if recipe in starts() and not any(word.startswith("--start.run") for word in words):
        first = starts()[recipe]
        if not (BUILD / "runs" / first).is_dir():
            measured(f"edgewise train {first}", again=True)
        more = ["--start.run", str(BUILD / "runs" / first)]
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        kept = len(words) == 2 and recipe in starts().values()
        more += ["--run", str(BUILD / "runs" / recipe if kept else Path(folder) / "run")]
        printed, used = process(["-m", "edgewise", *words, *more, "--json"], Path(folder))
        result = json.loads(printed.splitlines()[-1])
        logs = [Path(folder, path, "metrics.jsonl").read_text(encoding="utf-8") for path in result["runs"]]
        simple = [
            json.loads(path.read_text()) for one in result["runs"] for path in Path(folder, one).glob("simple.json")
        ]
    last = [json.loads(log.splitlines()[-1]) for log in logs]
    scores = [one.get("test") or one["valid"] for one in last]
    found = {result["metric"]: spread(result["values"]), "validation": spread(result["valid"])}
    named = [name for name, score in scores[0].items() if name not in found and isinstance(score, float)]
    found |= {name: spread([one[name] for one in scores]) for name in named}
    if "--folds" in words:
        found["mean curve"] = best_of_mean_curve(logs, result["metric"])
    found["memory"] = [used.pop("memory"), None, 1]
    beside = {"simple": [statistics.fmean(map(value_of, simple)), simple[0]["name"]]} if simple else {}
    return {"command": command, "figures": found, **beside, **used}


def best_of_mean_curve(logs: Sequence[str], metric: str) -> list[float | None]:
    """Of the validation scores at the step where their mean over the folds is largest, as Xu et al. (2019) choose it:
    it reads the very scores that it chooses by, so it flatters."""
    records = [[json.loads(line) for line in log.splitlines()[:-1]] for log in logs]
    curves = [{one["step"]: one["valid"][metric] for one in fold if "valid" in one} for fold in records]
    steps = [step for step in curves[0] if all(step in curve for curve in curves)]
    return spread(max(([curve[step] for curve in curves] for step in steps), key=statistics.fmean))


def value_of(simple: Record) -> float:
    return simple["valid"] if simple["test"] is None else simple["test"]


def spread(values: Sequence[float]) -> list[float | None]:
    """Mean, sample deviation, number."""
    return [statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values)]


def process(words: Sequence[str], folder: Path) -> tuple[str, dict[str, float]]:
    """What Python prints, with the processor's seconds and the gigabytes at the peak."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        command = [sys.executable, *words]
        begun = subprocess.Popen(command, cwd=folder, stdout=out, stderr=err, env=environment())  # noqa: S603
        _, status, usage = os.wait4(begun.pid, 0)
        begun.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        printed, wrong = out.read().decode(), err.read().decode()
    if begun.returncode:
        raise FigureError(wrong.strip().splitlines()[-1] if wrong.strip() else f"exit status {begun.returncode}")
    return printed, {"seconds": round(usage.ru_utime + usage.ru_stime, 1), "memory": usage.ru_maxrss * 1024 / 1e9}


def environment() -> dict[str, str]:
    """That of a command, which runs on one thread, and elsewhere than here; studies keep freed memory as it does."""
    data, paths = os.environ.get("EDGEWISE_DATA"), [str(ROOT), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(filter(None, paths))} | (
        {"EDGEWISE_DATA": str(Path(data).resolve())} if data else {}
    )
    return FREED | {"OMP_NUM_THREADS": "1", **os.environ, **own}


def fetch(chosen: Sequence[str]) -> None:
    """Let the tasks of trainings fetch their public data, by hash, into the cache, where studies look for them, too."""
    tasks = {}
    for words in map(shlex.split, chosen):
        own = "--task.data" in words
        if own or (words[0] == "edgewise" and "download" in signature(TASKS[task_of(read(words[2]))]).parameters):
            config = configure(read(words[2]), [*parse(words[1:]).sections, ("task.download", "true")])
            tasks[repr(config.task)] = config.task
    for task in tasks.values():
        try:
            TASKS[task.name](**task.options)
        except DataError as error:  # what needs them says so, too
            print(f"  no data  {error}", flush=True)


@cache
def starts() -> dict[str, str]:
    """The recipes that start from another's run, by name, and the other, whose run is kept."""
    found = {name: read(name).sections.get("start", {}).get("run") for name in names()}
    return {name: Path(run).name.removesuffix("-0") for name, run in found.items() if run}


def part(chosen: Sequence[str], number: int, count: int) -> list[str]:
    """One of parts of about equal length, its shortest command first; what starts from a run stays beside it."""
    known, groups = recorded(), dict[str, list[str]]()
    for command in chosen:
        name = [*shlex.split(command), ""][2]
        groups.setdefault(starts().get(name, name) if "edgewise" in command else command, []).append(command)
    length = {name: sum(known.get(c, {}).get("seconds") or UNKNOWN for c in own) for name, own in groups.items()}
    parts: list[list[str]] = [[] for _ in range(count)]
    total = [0.0] * count
    for name in sorted(groups, key=lambda name: (-length[name], name)):
        least = total.index(min(total))
        total[least] += length[name]
        parts[least] += groups[name]
    return sorted(parts[number - 1], key=lambda command: known.get(command, {}).get("seconds") or UNKNOWN)


# What holds


def recorded() -> dict[str, Record]:
    """What RECORDED keeps, by command."""
    lines = RECORDED.read_text(encoding="utf-8").splitlines() if RECORDED.is_file() else []
    return {one["command"]: one for one in map(json.loads, lines)}


def number(cell: str) -> float:
    """The first number of a cell, a share where it is in percent.

    Example
        >>> number("88.3 % ± 3.6 %"), number("1,280 ms"), number("−0.2")
        (0.883, 1280.0, -0.2)
    """
    found = re.search(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?( ?%)?", cell.replace(",", "").replace("−", "-"))
    if found is None:
        raise FigureError(f"no number in {cell!r}")
    return float(found[0].rstrip("% ")) / (100 if found[1] else 1)


def values(record: Record, value: str) -> dict[str, float]:
    """Figures of a record by row, of a training only one."""
    if "rows" not in record:
        name = value or next(iter(record["figures"]))
        if name not in record["figures"]:
            raise FigureError(f"{record['command']}: no figure {name!r}; there are {', '.join(record['figures'])}")
        return {"": record["figures"][name][0]}
    row, _, column = value.rpartition("/")
    head, *rows = record["rows"]
    found = {f"{n} {own[0]}": number(own[head.index(column)]) for n, own in enumerate(rows) if fnmatchcase(own[0], row)}
    if not found:
        raise FigureError(f"{record['command']}: no row {row!r}; there are {', '.join(own[0] for own in rows)}")
    return found


def smaller(figure: Figure, record: Record) -> bool:
    """Whether less of it is better."""
    return "≤" in figure.bound or ("≥" not in figure.bound and unit(figure, record) in LESS)


def unit(figure: Figure, record: Record) -> str:
    """The name of the metric in which a figure is given."""
    return (
        next(iter(record.get("figures", {"": 0}))) if figure.value in ("", "validation", "mean curve") else figure.value
    )


def beside(figure: Figure, record: Record) -> tuple[float, str] | None:
    """The simple method's figure and its name."""
    if "simple" in record and not figure.value:
        return tuple(record["simple"])
    value, _, name = figure.simple.partition(" ")
    return (float(value), name) if value else None


def wrong(figure: Figure, known: dict[str, Record]) -> Iterator[str]:
    """What a figure breaks: its bounds; and none is under a simple method's figure that it beats beyond doubt."""
    if not figure.bound:
        return
    record = known[figure.command]
    found, name = values(record, figure.value), f"{figure.command}{f', {figure.value}' * bool(figure.value)}"
    simple, less = beside(figure, record), smaller(figure, record)
    for bound in filter(None, figure.bound.split("; ")):
        if bound == "better":
            sign, factor, limits = "≤" if less else "≥", 1.0, values(known[figure.other], figure.value)
        elif (said := re.fullmatch(r"([≥≤]) (-?[\d.e-]+)(?: × (.+))?", bound)) is None:
            raise FigureError(f"{name}: what is the bound {bound!r}?")
        else:
            sign, factor = said[1], float(said[2])
            limits = values(record, said[3]) if said[3] else {"": 1.0}
            margin = doubt(figure, record)
            beaten = simple and all(
                not worse(value, simple[0], less) and abs(value - simple[0]) > margin for value in found.values()
            )
            if simple and beaten and not said[3] and worse(factor, simple[0], less):
                yield f"{name}: the bound {factor:g} is under the {simple[0]:g} of {simple[1]}"
        for row, value in found.items():
            limit = factor * limits.get(row, next(iter(limits.values())))
            if value > limit + 1e-9 if sign == "≤" else value < limit - 1e-9:
                yield f"{name}: {value:.4g}{f' ({row})' * bool(row)} is not {sign} {limit:.4g} ({bound})"


def doubt(figure: Figure, record: Record) -> float:
    """Two standard errors of a training's figure; of a single run, and of a study, 0."""
    named = record.get("figures", {"": [0.0, None, 1]})
    _, deviation, count = named.get(figure.value, next(iter(named.values())))
    return 2 * (deviation or 0.0) / count**0.5


def worse(one: float, other: float, less: bool) -> bool:
    return one > other if less else one < other


# What the tables show


def shown(name: str, value: float, deviation: float | None = None, plain: bool = False) -> str:
    """A figure in the one format that figures of its name have.

    Example
        >>> shown("accuracy", 0.8163, 0.0098), shown("loss", 1.5871), shown("memory", 1.93)
        ('81.6 % ± 1.0 %', '1.587', '1.9 GB')
    """
    if name == "memory":
        return f"{value:.1f} GB"
    percent = name in PERCENT or "accuracy" in name
    texts = [
        f"{100 * one:.1f} %" if percent else f"{one:.{DECIMALS.get(name.split(' of ')[0], 3)}f}"
        for one in (value, deviation)
        if one is not None
    ]
    return " ± ".join(texts).replace("-", "−")


def cell(figure: Figure, record: Record) -> str:
    """What was measured, as a table shows it."""
    if "rows" in record:
        row, _, column = figure.value.rpartition("/")
        head, *rows = record["rows"]
        return next(own[head.index(column)] for own in rows if own[0] == row)
    name = figure.value or next(iter(record["figures"]))
    value, deviation, count = record["figures"][name]
    return f"{shown(unit(figure, record), value, deviation)}{' (one run)' * (count == 1 and name != 'memory')}"


def line(figure: Figure, known: dict[str, Record]) -> list[str]:
    """A row of a table."""
    record, less = known[figure.command], smaller(figure, known[figure.command])
    name, simple, other = unit(figure, record), beside(figure, record), ""
    bounds = [
        f"{bound[0]} {shown(name, float(bound[2:]))}" if re.fullmatch(r"[≥≤] -?[\d.e-]+", bound) else bound
        for bound in filter(None, figure.bound.split("; "))
    ]
    mine = next(iter(values(record, figure.value).values()))
    if figure.other:
        way = figure.without if figure.without.startswith("--") else figure.other
        missed = worse(mine, next(iter(values(known[figure.other], figure.value).values())), less)
        other = f"{cell(figure, known[figure.other])}, `{way}`{': no gain' * missed}"
    method = f"{shown(name, simple[0])}, {simple[1]}{': missed' * worse(mine, simple[0], less)}" if simple else ""
    seconds = f"{record['seconds']:,.0f}" if record.get("seconds") else ""
    return [
        f"`{figure.command}`",
        figure.measure,
        "; ".join(bounds) or "none",
        method,
        other,
        cell(figure, record),
        seconds,
    ]


def tables(known: dict[str, Record]) -> dict[str, str]:
    """Each table of docs/tables that follows from the figures, by name: CSV, without columns that say nothing."""
    rows: dict[str, list[list[str]]] = {}
    for figure in figures():
        if not figure.table or not {figure.command, figure.other} <= {"", *known}:
            continue
        if "rows" in known[figure.command] and not figure.value:
            head, *found = known[figure.command]["rows"]  # of several studies with the same head one table
            rows[figure.table] = [*rows.get(figure.table, [head]), *found]
        else:
            own, row = rows.setdefault(figure.table, [list(HEAD)]), line(figure, known)
            own.append([*row[:-1], ""] if row[0] == own[-1][0] else row)  # a command's seconds once
    return {name: text(own) for name, own in rows.items()}


def text(rows: list[list[str]]) -> str:
    used = [n for n, column in enumerate(zip(*rows, strict=True)) if any(column[1:])]
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([row[n] for n in used] for row in rows)
    return file.getvalue()


def write(results: Iterable[Record]) -> None:
    """Take results over into RECORDED, without commands that no figure has any more, and write the tables."""
    known = recorded() | {one["command"]: one for one in results}
    kept = {command: shortened(known[command]) for command in sorted(commands()) if command in known}
    write_file(RECORDED, "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in kept.values()).encode())
    for name, content in tables(kept).items():
        write_file(TABLES / f"{name}.csv", content.encode())


def shortened(record: Record) -> Record:
    """A record with the run's metric and what figures name alone."""
    if "rows" in record:
        return record
    named = {figure.value for figure in figures() if record["command"] in (figure.command, figure.other)}
    first = next(iter(record["figures"]))
    found = {
        name: [float(f"{one:.6g}") if isinstance(one, float) else one for one in parts]
        for name, parts in record["figures"].items()
        if name in named | {first}
    }
    return record | {"figures": found}


def main() -> int:
    about, _, details = (__doc__ or "").partition("\n")
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m benchmarks.figures", None, about, details, formatter_class=shape)
    parser.add_argument("words", nargs="*", metavar="WORD", help="only commands and tables with one of these words")
    parser.add_argument("--part", default="", metavar="N/PARTS", help="one part; write no table")
    parser.add_argument("--write", action="store_true", help="run nothing; write the tables of what was run")
    parser.add_argument("--again", action="store_true", help="run what has a result, too")
    parser.add_argument(
        "--download", action="store_true", help="let the recipes fetch their public data, by hash, first"
    )
    asked = parser.parse_args()
    chosen, failed, results = commands(asked.words), list[str](), list[Record]()
    if asked.download:
        fetch(commands())
    if asked.part:
        chosen = part(chosen, *map(int, asked.part.split("/")))
    if asked.write:
        results = [measured(command) for command in chosen if place(command).is_file()]
    for command in [] if asked.write else chosen:
        try:
            results.append(measured(command, asked.again))
            print(f"{results[-1]['seconds']:7,.0f} s  {command}", flush=True)
        except FigureError as error:
            print(f"{'no data' if NO_DATA in str(error) else 'failed':>9}  {command}: {error}", flush=True)
            failed += [command] * (NO_DATA not in str(error))
    ran = {one["command"]: one for one in results}
    known = recorded() | ran
    held = [one for one in figures() if one.command in ran and one.other in {"", *known}]
    broken = [said for one in held for said in wrong(one, known)]
    print("\n".join(["Out of bounds:", *broken]) if broken else f"{len(results)} results, all within their bounds")
    if not asked.part:
        write(results)
    return int(bool(broken or failed))


if __name__ == "__main__":
    sys.exit(main())
