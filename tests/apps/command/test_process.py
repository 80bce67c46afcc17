"""The command as a process of its own: what it makes of Ctrl-C, and of other processes that train with it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes
STEPS = ["--train.steps", "2", "--model.width", "8"]
PRESSED = """
import os, signal, sys, edgewise.__main__ as process

def press():
    os.kill(os.getpid(), signal.SIGINT)

def main():
    try:
        press()
    except KeyboardInterrupt:  # in an import of a compiled module, which makes another error of it
        press()  # the launcher's, at once
        {then}

process.main = main
sys.exit(process.command())
"""


def run_in_python(script: str) -> subprocess.CompletedProcess[str]:
    def as_in_a_terminal() -> None:  # a shell lets what it runs in the background ignore Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)

    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=as_in_a_terminal)


def test_ctrl_c_in_the_middle_of_an_import_is_one_line() -> None:
    done = run_in_python(PRESSED.format(then='raise ImportError("cannot load module more than once per process")'))
    assert (done.returncode, done.stderr) == (130, "edgewise: interrupted\n")


def test_ctrl_c_that_comes_later_once_more_ends_at_once() -> None:
    done = run_in_python(PRESSED.format(then="process.ECHO = -1; press(); print('goes on')"))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_sigterm_ends_a_command_as_ctrl_c_does_and_its_workers_at_once() -> None:
    script = """
import os, signal, sys, edgewise.__main__ as process

def main():
    child = os.fork()
    if not child:
        os.kill(os.getpid(), signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return command_line.main(["list"])

def run(args):
    os.kill(os.getpid(), signal.SIGTERM)

import edgewise.apps.command.main as command_line
command_line.run = run
process.main = main
sys.exit(process.command())
"""
    done = run_in_python(script)
    assert (done.returncode, done.stdout, done.stderr) == (143, "143\n", "edgewise: interrupted\n")


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143)])
def test_an_interruption_that_a_destructor_swallows_comes_once_more(name: str, code: int) -> None:
    script = f"""
import os, signal, sys, time, edgewise.__main__ as process
import edgewise.apps.command.main as command_line

class Swallows:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})

def run(args):
    Swallows()
    for _ in range(100):
        time.sleep(0.01)
    return {{}}

command_line.run = run
process.main = lambda: command_line.main(["list"])
sys.exit(process.command())
"""
    done = run_in_python(script)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "edgewise: interrupted\n")


@pytest.mark.parametrize("closed", ["stdout", "all"])
def test_streams_that_the_shell_has_closed_take_all(closed: str) -> None:
    numbers = {"stdout": (1,), "all": (0, 1, 2)}[closed]

    def close() -> None:
        for number in numbers:
            os.close(number)

    command = [sys.executable, "-m", "edgewise", "list", "patterns"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=close)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("causal" in done.stdout) == (1 not in numbers)


@pytest.mark.parametrize("into", ["a pipe that nobody reads", "a disk that is full"])
def test_an_error_that_cannot_be_told_has_its_code(into: str) -> None:
    """Another error came while it was told, and the code was 1."""
    reader, writer = os.pipe() if "pipe" in into else (None, os.open("/dev/full", os.O_WRONLY))
    if reader is not None:
        os.close(reader)
    command = [sys.executable, "-m", "edgewise", "list", "nonsense"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=writer, check=False)
    os.close(writer)
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize("into", ["a pipe that nobody reads", "a disk that is full"])
def test_progress_that_cannot_be_told_loses_no_run(into: str, tmp_path: Path) -> None:
    reader, writer = os.pipe() if "pipe" in into else (None, os.open("/dev/full", os.O_WRONLY))
    if reader is not None:
        os.close(reader)
    command = [sys.executable, "-m", "edgewise", "train", "karate", *STEPS]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=writer, text=True, check=False, cwd=tmp_path)
    os.close(writer)
    assert done.returncode == 0 and done.stdout.startswith("seed 0: test accuracy")


ALONE = os.environ | {"OMP_NUM_THREADS": "1"}


def launching(*options: str) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "--"]
    return [*launcher, "edgewise", *options]


def together(*options: str) -> subprocess.CompletedProcess[str]:
    """The command under `torchrun`, in two processes."""
    return subprocess.run(launching(*options), capture_output=True, text=True, check=False, env=ALONE, timeout=100)


@pytest.mark.parametrize("options", [["digits-vit", "--train.shard", "true", "--schedule.warmup", "0"]])
def test_two_processes_print_what_one_does(options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = together("train", *options, *STEPS, "--run", "run")
    assert done.returncode == 0, done.stderr
    assert [line[:9] for line in done.stderr.splitlines()] == ["step 2/2 "]
    assert len(done.stdout.splitlines()) == 1


def test_two_processes_say_a_mistake_once_and_the_launcher_repeats_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = together("train", "karate", "--train.batchh", "3")
    assert done.returncode == 1
    assert done.stderr.count("edgewise: error: train takes no option 'batchh'") == 1
    assert done.stderr.rpartition("Root Cause")[2].count("train takes no option 'batchh'") == 1


def test_two_processes_whose_launcher_is_stopped_say_once_how_to_go_on(tmp_path: Path) -> None:
    command = launching("train", "karate", *STEPS, "--train.steps", "1000000")
    history = tmp_path / "runs" / "karate-0" / "metrics.jsonl"
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ALONE, cwd=tmp_path) as launcher:
        while launcher.poll() is None and not history.is_file():
            time.sleep(0.1)
        launcher.send_signal(signal.SIGINT)
        said = launcher.communicate(timeout=100)[1]
    assert said.count("edgewise: ") == 1
    assert "edgewise: interrupted; go on with: edgewise resume runs/karate-0\n" in said
