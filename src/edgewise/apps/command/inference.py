"""What a trained run measures, predicts, writes and serves."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from edgewise import deployment, training
from edgewise.apps.console import columns, shown
from edgewise.deployment.exporting import place_of
from edgewise.deployment.inputs import is_file_of_inputs, one_input
from edgewise.errors import ConfigError, DataError, counted
from edgewise.files import folder_name, write_file
from edgewise.models.text.sampling import Piece, Sampling, texts_of
from edgewise.tasks import Split
from edgewise.tasks.core import measures
from edgewise.tasks.core.abilities import Streams, generating, predicting
from edgewise.tasks.core.drawing import Output
from edgewise.training import LoadedRun, Moved
from edgewise.training.calibration import told
from edgewise.training.journal import say

EVALUATION = "evaluation.json"
SHOWN = 40  # classes that are printed


def evaluate(run: str, accept: bool, data: Moved, on: str | None = None) -> dict[str, Any]:
    """Print the scores of a run's best weights on the validation data and, where there are any, on the test data; of
    the last of them also every measure with its interval, each class, or the largest errors. The run has them in
    evaluation.json, if it can be written. With `on`, print those of other labelled data alone."""
    loaded = training.load_any(Path(run), accept=accept, folder=data)
    size = loaded.config.evaluation_batch
    result: dict[str, Any] = {"run": run, "recipe": loaded.config.recipe, "metric": loaded.task.metric}
    splits: tuple[Split, ...] = ("valid", "test") if loaded.task.has_test else ("valid",)
    if on is not None:
        loaded, splits, result["data"] = training.on_data(loaded, Path(on)), ("test",), on
    for split in splits:
        scores, answers = training.examined(
            loaded.model, loaded.task, split, size, loaded.pattern, device_of(loaded), whole=split == splits[-1]
        )
        result[split] = scores
        print(f"{on or split}: " + ", ".join(f"{name} {shown(name, value)}" for name, value in scores.items()))
    if answers:
        numbers: Any = loaded.task.splits[splits[-1]]
        quality = measures.quality(answers, lambda row: predicting(loaded.task).name_of(int(numbers[row])))
        print("\n".join(in_words(quality)))
        result["quality"] = quality
    if lines := list(told(training.record_of(run))):
        print("\n".join(lines))
    if on is not None:
        return result
    kept = json.dumps(result, indent=1, ensure_ascii=False).encode(errors="backslashreplace")
    try:
        write_file(Path(run) / EVALUATION, kept)
    except OSError as error:
        unwritten(str(Path(run) / EVALUATION), error)
    return result


def in_words(quality: dict[str, Any]) -> Iterator[str]:
    """The lines in which the measures, each class, or the largest errors are printed, target by target."""
    if "measures" in quality:
        heads = ("measure", "value", "95 % of a bootstrap")
        rows = [dict(zip(heads, row, strict=True)) for row in measures.in_rows(quality["measures"])]
        yield columns(rows, heads=True)
    for name, one in quality.get("targets", {}).items():
        yield f"{name}:"
        yield from in_words(one)
    if not {"worst", "classes"} & {*quality}:
        return
    if "worst" in quality:
        rows = [{name: number_of(value) for name, value in one.items()} for one in quality["worst"]]
        yield columns([{"largest errors": row.pop("example"), **row} for row in rows], heads=True)
        return
    classes = list(quality["classes"].items())
    rows = [{"class": name} | {part: number_of(value) for part, value in one.items()} for name, one in classes[:SHOWN]]
    yield columns(rows, heads=True)
    if len(classes) > SHOWN:
        yield f"and {len(classes) - SHOWN} more classes in {EVALUATION}"


def number_of(value: Any) -> str:
    """A figure of a table; what has none is a dash."""
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def predict(
    run: str, input: str, out: str | None, column: str | None, bad_rows: str, accept: bool, data: Moved
) -> dict[str, Any]:
    """Print what a run's best weights predict for one input; its drawings are written into the run's figures. With
    `out`, write a table for all inputs of a file or a folder instead."""
    if out is not None:
        return predict_all(run, input, out, column, bad_rows == "skip", accept, data)
    if column is not None or bad_rows != "refuse":
        flag = "--bad-rows" if column is None else "--column"
        raise ConfigError(f"{flag} is of a file of inputs: give --out for the table of predictions")
    loaded = training.load_any(Path(run), accept=accept, folder=data)
    try:
        request = one_input(input, loaded.task)
        output = predicting(loaded.task).examine(loaded.model, loaded.pattern, request, device_of(loaded))
    except DataError as error:
        if is_file_of_inputs(input):
            raise DataError(*error.args, "for all inputs of a file or of a folder give --out answers.csv") from error
        raise
    prediction = output.values | written(output, Path(run))
    print(json.dumps(prediction, ensure_ascii=False, indent=2))
    return prediction


def generate(
    run: str,
    prompt: str,
    steps: int,
    temperature: float | None,
    top_k: int | None,
    top_p: float,
    min_p: float,
    repetition_penalty: float,
    stop: list[str],
    no_cache: bool,
    count: int | None,
    seed: int,
    accept: bool,
    data: Moved,
) -> dict[str, Any]:
    """Print what a run's best weights write: a prompt continued, as it is written, or several times; or new graphs."""
    sampling = Sampling(
        prompt=prompt,
        steps=steps,
        count=count,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        stop=tuple(stop),
        cache=not no_cache,
        seed=seed,
    )
    loaded = training.load_run(Path(run), accept=accept, folder=data)
    started, task, device = time.perf_counter(), generating(loaded.task), device_of(loaded)
    drawings = dict[str, str]()
    if isinstance(task, Streams):
        written_out = task.stream(loaded.model, loaded.pattern, sampling, device)
        values = texts_of(printed(written_out, prompt) if count in (None, 1) else written_out, sampling)
        for number, text in enumerate(values["texts"] if len(values["texts"]) > 1 else ()):
            print(f"{number}: {text}")
    else:
        output = task.generate(loaded.model, loaded.pattern, sampling, device)
        values, drawings = output.values, written(output, Path(run))
        print("\n".join([output.text, *drawings.values()]))
    return {"run": run, "seconds": time.perf_counter() - started} | values | drawings


def printed(pieces: Iterable[Piece], prompt: str) -> Iterator[Piece]:
    """The pieces of a text, printed as they come after its prompt."""
    for number, piece in enumerate(pieces):
        print(piece.text if number else prompt + piece.text, end="", flush=True)
        yield piece
    print()


def predict_all(
    run: str, file: str, out: str, column: str | None, skip: bool, accept: bool, data: Moved
) -> dict[str, Any]:
    """Write a table of what a run's best weights predict for all inputs of a file, with a progress bar."""
    trained, started = deployment.load(run, accept=accept, folder=data), time.perf_counter()
    with tqdm(unit=" rows", dynamic_ncols=True, disable=not sys.stderr.isatty()) as bar:
        rows = deployment.predict_file(trained, file, out, column, done=bar.update, say=say, skip=skip)
    seconds = time.perf_counter() - started
    print(f"{out}: {counted(rows, 'prediction')} in {seconds:.1f} s")
    return {"table": out, "rows": rows, "seconds": seconds}


def export(
    run: str, to: str, out: str | None, cache: bool, native: bool, radius: float | None, accept: bool, data: Moved
) -> dict[str, Any]:
    """Write a run's best weights as a file for other programs, and say what it reads and returns."""
    exported = deployment.export_run(run, to, out, accept, cache, native, radius, data)
    place = Path(out) if out else place_of(run, to)
    inputs = {name: f"[{', '.join(map(str, shape))}]" for name, shape in exported.inputs.items()}
    shown_inputs = ", ".join(f"{name} {shape}" for name, shape in inputs.items())
    print(f"{place} ({place.stat().st_size / 1e6:.1f} MB): {shown_inputs} -> {', '.join(exported.outputs)}")
    print(f"how to call it: {place}.md; python {shlex.quote(f'{place}.py')}")
    return {"file": str(place), "bytes": place.stat().st_size, "inputs": inputs, "outputs": list(exported.outputs)}


def serve(run: str, host: str, port: int, timeout: int, megabytes: int, accept: bool, data: Moved) -> dict[str, Any]:
    """Predict over HTTP until interrupted; print the address first."""
    from edgewise.deployment import serving

    limits = serving.Limits(bytes=megabytes * 1_000_000, seconds=timeout)

    def ready(address: str) -> None:
        print(f"{run}: predictions at {address} (Ctrl-C stops)", flush=True)

    title = folder_name(Path(run)).encode(errors="replace").decode()  # a folder's name may be no text
    trained = deployment.load(run, accept=accept, folder=data)
    rows = serving.serve(trained, title, host, port, limits, ready)
    print(f"stopped after {counted(rows, 'row')}")
    return {"run": run, "rows": rows}


def written(output: Output, run: Path) -> dict[str, str]:
    """Write a command's drawings into a run's figures; the path of each by its name, but of those that cannot be."""
    if not output.drawings:
        return {}
    from edgewise.apps.report.render import save

    places = {}
    for name, drawing in output.drawings.items():
        try:
            places[name] = str(save(drawing, run)[0])
        except OSError as error:
            unwritten(f"{name} in {run}", error)
    return places


def unwritten(what: str, error: OSError) -> None:
    """Warn of what cannot be written, such as into the run of another user: the rest is printed all the same."""
    say(f"edgewise: warning: {what} could not be written: {error.strerror or error}")


def device_of(loaded: LoadedRun) -> torch.device:
    """Where a run's weights are."""
    return next(loaded.model.parameters()).device
