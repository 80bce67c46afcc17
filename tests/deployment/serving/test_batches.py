"""Requests that wait are predicted side by side, and each gets its own predictions, or its own error."""

import asyncio
import threading
from typing import Any

import pytest
import torch
from fastapi import FastAPI
from torch import nn

from edgewise.deployment import Trained
from edgewise.deployment import service as module
from edgewise.deployment.service import Batches, BusyError, RowError
from edgewise.deployment.serving import Limits, application
from edgewise.errors import DataError
from edgewise.tasks import Predicts


class Doubling(Predicts):
    """A task whose model doubles numbers; "panic" is an error that is not ours."""

    train_batch = batches = loss = score = predict = None  # nothing trains it

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.free = threading.Event()
        self.free.set()

    def predictions(self, model, pattern, requests, device) -> list[dict[str, Any]]:
        assert self.free.wait(5)
        self.sizes.append(len(requests))
        if "panic" in requests:
            raise BaseException("a parser's own")
        for request in requests:
            if not request.isdigit():
                raise DataError(f"no number {request!r}")
        return [{"twice": 2 * int(request)} for request in requests]


def run(task: Any, *requests: list[str]) -> list[Any]:
    """What each of some requests gets that arrive at once, while a first one is being predicted."""

    async def together() -> list[Any]:
        batches = Batches(Trained(nn.Identity(), task))
        task.free.clear()
        first = asyncio.create_task(batches.predict(["0"]))
        await asyncio.sleep(0)
        others = [asyncio.create_task(batches.predict(rows)) for rows in requests]
        await asyncio.sleep(0.05)
        task.free.set()
        return (await asyncio.gather(first, *others, return_exceptions=True))[1:]

    return asyncio.run(together())


def test_requests_that_wait_are_one_batch() -> None:
    task = Doubling()
    results = run(task, ["1", "2"], ["3"], ["4", "5", "6"])
    assert [[row["twice"] for row in rows] for rows in results] == [[2, 4], [6], [8, 10, 12]]
    assert task.sizes in ([1, 6], [7])


def test_a_request_that_cannot_be_read_spoils_no_other() -> None:
    task = Doubling()
    one, two, three, four = run(task, ["1"], ["2", "3", "x", "y"], ["panic"], ["4"])
    assert (one, four) == ([{"twice": 2}], [{"twice": 8}])
    assert isinstance(two, RowError) and str(two) == "row 2: no number 'x'; row 3: no number 'y'"
    assert isinstance(three, RuntimeError) and "a parser's own" in str(three)


def test_a_batch_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", 3)
    task = Doubling()
    results = run(task, *[[str(number)] for number in range(7)], ["1"] * 5)
    assert [len(rows) for rows in results] == [1] * 7 + [5]
    assert max(task.sizes) == 3


def test_a_full_queue_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING", 4)
    results = run(Doubling(), ["1"] * 3, ["1"] * 2, ["2"])
    assert isinstance(results[1], BusyError)
    assert [len(rows) for rows in (results[0], results[2])] == [3, 1]
    more, other = run(Doubling(), ["1"] * 5, ["2"])  # more than may wait, where no other waits
    assert len(more) == 5 and isinstance(other, BusyError)


def test_a_request_that_is_given_up_is_left_out() -> None:
    task = Doubling()

    async def given_up() -> None:
        batches = Batches(Trained(nn.Identity(), task))
        task.free.clear()
        first = asyncio.create_task(batches.predict(["0"]))
        await asyncio.sleep(0.02)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(batches.predict(["1", "2"]), 0.02)
        task.free.set()
        assert await first == [{"twice": 0}] and await batches.predict(["3"]) == [{"twice": 6}]

    asyncio.run(given_up())
    assert task.sizes == [1, 1]


def test_the_model_runs_in_a_thread_of_its_own() -> None:
    seen = []

    class Task(Doubling):
        def predictions(self, model, pattern, requests, device):
            seen.append((threading.current_thread() is threading.main_thread(), torch.get_num_threads()))
            return super().predictions(model, pattern, requests, device)

    run(Task(), ["1"])
    assert seen[0] == (False, torch.get_num_threads())


class Described(Doubling):
    files, typical = (), "1"

    def describe(self) -> str:
        return "Numbers"

    def predict(self) -> None:
        """Numbers in digits."""


def test_the_service_is_mounted_where_the_server_sends_no_lifespan_events() -> None:
    app = FastAPI()
    app.mount("/twice", application(Trained(nn.Identity(), Described()), limits=Limits(seconds=2)))

    async def send(method: str, path: str, content: bytes = b"") -> tuple[int, str]:
        sent, events = [], [{"type": "http.request", "body": content, "more_body": False}]

        async def receive() -> dict[str, Any]:
            return events.pop()

        async def note(event: dict[str, Any]) -> None:
            sent.append(event)

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "http_version": "1.1", "method": method, "path": path, "query_string": b""}
        await app(scope | {"scheme": "http", "headers": headers, "server": ("localhost", 80)}, receive, note)
        return sent[0]["status"], b"".join(event.get("body", b"") for event in sent).decode()

    for _ in range(2):  # each on a loop of its own
        assert asyncio.run(send("POST", "/twice/predict", b'{"rows": [4]}')) == (200, '{"predictions":[{"twice":8}]}')
    status, page = asyncio.run(send("GET", "/twice/"))
    assert status == 200 and 'fetch("predict"' in page
