"""Run folders of which a file was torn or altered: an older checkpoint with a message, or one clean refusal."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from edgewise.apps.command.main import main

READ = ("config.yaml", "metrics.jsonl", "checkpoints/*/*")  # what a command reads of a run folder


def flipped(content: bytes, random: Random) -> bytes:
    place = random.randrange(len(content))
    return content[:place] + bytes([content[place] ^ (1 << random.randrange(8))]) + content[place + 1 :]


def zeroed(content: bytes, random: Random) -> bytes:
    place = random.randrange(len(content))
    length = min(random.choice([1, 16, 512, 4096]), len(content) - place)
    return content[:place] + bytes(length) + content[place + length :]


def shuffled(content: bytes, random: Random) -> bytes:
    place, length = random.randrange(len(content)), random.randrange(1, 512)
    return content[place : place + length] + content[:place] + content[place + length :]


TEARS: dict[str, Callable[[bytes, Random], bytes | None]] = {
    "cut short": lambda content, random: content[: random.randrange(len(content))],
    "emptied": lambda content, random: b"",
    "a bit flipped": flipped,
    "zeroed in part": zeroed,
    "reordered": shuffled,
    "longer": lambda content, random: content + random.randbytes(random.randrange(1, 99)),
    "another line": lambda content, random: content + content.splitlines(keepends=True)[-1],
    "other bytes": lambda content, random: random.randbytes(len(content)),
    "removed": lambda content, random: None,
}


def tear(run: Path, random: Random) -> tuple[Path, str]:
    """Damage one file: which, and how."""
    path = random.choice(sorted(path for pattern in READ for path in run.glob(pattern)))
    how = random.choice(sorted(TEARS))
    content = TEARS[how](path.read_bytes(), random)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    elif random.random() < 0.3:
        path.mkdir()  # a folder in its place
    return path, how


def last(run: Path, command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object], str]:
    """A command's exit code, its result, and its messages."""
    capsys.readouterr()
    code = main([*command.split(), str(run), "--json"])
    told = capsys.readouterr()
    assert "Traceback" not in told.err
    return code, json.loads(told.out.splitlines()[-1]) if code == 0 else {}, told.err


def check(count: int, own: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    """Tear a finished and an interrupted run, each time one file; how many ended how."""
    finished, ends = own("karate"), {"unchanged": 0, "an older checkpoint": 0, "refused": 0}
    interrupted = shutil.copytree(finished, tmp_path / "interrupted")
    shutil.rmtree(interrupted / "checkpoints" / "step-00000004")
    history = interrupted / "metrics.jsonl"
    history.write_bytes(b"".join(history.read_bytes().splitlines(keepends=True)[:-2]))
    # What an undisturbed run says, and what one says whose newest checkpoint is gone.
    evaluated = [last(finished, "evaluate", capsys)[1], last(interrupted, "evaluate", capsys)[1]]
    expected = [[result[split] for split in ("valid", "test")] for result in evaluated]
    reached = last(Path(shutil.copytree(interrupted, tmp_path / "resumed")), "resume", capsys)[1]["values"]
    random = Random(0)
    for number in range(count):
        first = (finished, interrupted)[number % 2]
        run = Path(shutil.copytree(first, tmp_path / "torn"))
        path, how = tear(run, random)
        what = f"{number}: {path.relative_to(run)} {how}"
        for command in ("evaluate", "resume"):
            code, result, messages = last(run, command, capsys)
            if code:
                assert code == 2 and messages.count("edgewise: error: ") == 1, what
                assert messages.splitlines()[-1].startswith("edgewise: error: "), what
                end = "refused"
            else:
                scores = [result[split] for split in ("valid", "test")] if command == "evaluate" else result["values"]
                assert scores == reached or scores in expected, what
                end = "an older checkpoint" if "using the one before" in messages else "unchanged"
            ends[end] += 1
        shutil.rmtree(run)
    return ends


def test_a_torn_file_costs_a_checkpoint_or_is_refused(own, tmp_path, capsys) -> None:
    ends = check(14, own, tmp_path, capsys)
    assert sum(ends.values()) == 28 and all(ends.values())


@pytest.mark.endurance
@pytest.mark.timeout(900)
def test_three_hundred_torn_files(own, tmp_path, capsys) -> None:
    print(check(300, own, tmp_path, capsys))
