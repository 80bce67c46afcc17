"""`edgewise serve` as a process: its address, its end, what it refuses."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from unittest.mock import Mock

import pytest

from edgewise.apps.command.main import main
from edgewise.deployment import serving as server
from edgewise.deployment.service import LOOPBACK


@pytest.fixture(scope="module")
def karate(tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "karate"
    assert main(["train", "karate", "--train.steps", "2", "--model.width", "8", "--run", str(run)]) == 0
    return run


@pytest.fixture
def process(karate):
    command = [sys.executable, "-m", "edgewise", "serve", str(karate), "--port", "0", "--json"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as made:
        yield made
        made.kill()


@pytest.mark.processes
def test_a_signal_ends_it_once_the_requests_that_have_come_are_answered(process) -> None:
    line = process.stdout.readline()
    (port,) = re.findall(r"predictions at http://127\.0\.0\.1:(\d+) \(Ctrl-C stops\)", line)
    results = []

    def send() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=30)
        connection.putrequest("POST", "/predict")
        connection.putheader("content-type", "application/json")
        connection.putheader("content-length", "13")
        connection.endheaders()
        connection.send(b'{"rows"')
        begun.set()
        asked.wait(10)
        connection.send(b": [0]}")
        response = connection.getresponse()
        results.append((response.status, json.loads(response.read())))
        connection.close()

    begun, asked = threading.Event(), threading.Event()
    client = threading.Thread(target=send)
    client.start()
    assert begun.wait(20)
    while not results and process.poll() is None and not asked.wait(0.3):
        process.send_signal(signal.SIGTERM)
        asked.set()
    client.join(20)
    out, errors = process.communicate(timeout=20)
    assert results[0][0] == 200 and results[0][1]["predictions"][0]["node"] == 0
    assert process.returncode == 0 and errors == ""
    assert out.splitlines()[0] == "stopped after 1 row" and json.loads(out.splitlines()[-1])["rows"] == 1


def test_another_loopback_address_answers_by_its_own_name(karate, monkeypatch) -> None:
    names = []
    monkeypatch.setattr(server, "application", lambda trained, title, limits, hosts: names.append(hosts))
    monkeypatch.setattr(server, "_Server", lambda config, ready: Mock())
    monkeypatch.setattr(server, "Config", Mock())
    for host in ("127.0.0.2", "0.0.0.0"):  # noqa: S104
        with suppress(AttributeError):
            server.serve(None, "", host, 0)
    assert names == [("127.0.0.2", "127.0.0.2", *LOOPBACK), ()]


def test_an_empty_address_is_refused(karate, capsys) -> None:
    assert main(["serve", str(karate), "--host", ""]) == 2
    assert "an empty --host is no address" in capsys.readouterr().err


def test_an_address_that_is_taken_is_said(karate, capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", str(karate), "--port", port]) == 2
    assert f"127.0.0.1 port {port} is not to be had (Address already in use" in capsys.readouterr().err
    assert main(["serve", str(karate), "--host", "999.1.1.1"]) == 2
    assert "999.1.1.1 port 8000 is not to be had" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["é..example", "é" * 70, "a\0b"])
def test_a_name_that_no_host_can_have_is_refused(host: str, karate, capsys) -> None:
    assert main(["serve", str(karate), "--host", host, "--port", "0"]) == 2
    assert " port 0 is not to be had (" in capsys.readouterr().err


def test_the_title_is_the_name_of_the_run(karate, tmp_path, monkeypatch) -> None:
    titles = []
    monkeypatch.setattr("edgewise.deployment.serving.serve", lambda trained, title, *_: titles.append(title) or 0)
    strange = tmp_path / os.fsdecode(b"caf\xe9")
    shutil.copytree(karate, strange)
    monkeypatch.chdir(karate)
    assert main(["serve", "."]) == main(["serve", str(strange)]) == 0
    assert titles == ["karate", "caf?"]


def test_what_is_no_run_is_an_error_in_one_line(capsys, tmp_path) -> None:
    assert main(["serve", str(tmp_path)]) == 2
    assert "is not a run folder" in capsys.readouterr().err
