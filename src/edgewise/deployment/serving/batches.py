"""Rows that wait at the same time are predicted together, in a thread of its own, whoever sent them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

from edgewise.deployment.rows import refused
from edgewise.deployment.trained import Trained
from edgewise.errors import EdgewiseError

ROWS = 256  # that the model reads at once
WAITING = 4096  # rows: a request that comes on top of them is refused

Predictions = list[dict[str, Any]]
Request = tuple[Sequence[str], "asyncio.Future[Predictions]"]


class BusyError(Exception):
    """More rows wait than will be kept waiting."""


class RowError(Exception):
    """A row that cannot be read, by its number in its request, and the reason."""

    def __init__(self, row: int, reason: Exception) -> None:
        super().__init__(f"row {row}: {reason}")


class Batches:
    """A queue of requests in front of a model, which reads those that wait in one batch of at most `ROWS` rows.

    Errors      RowError for a request with a row that cannot be read, BusyError for one that finds the queue full;
                whatever else the model raises reaches the request that caused it, and no other
    Edge cases  a request that nobody waits for any more is left out
    Cost        memory of one batch and of `WAITING` rows, or of one request that has more
    """

    def __init__(self, trained: Trained) -> None:
        self.trained = trained
        self.predicted = 0  # rows
        self._requests = deque[Request]()
        self._running: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "predictions")

    async def predict(self, rows: Sequence[str]) -> Predictions:
        """The predictions of a request's rows, once their turn has come."""
        waiting = sum(len(others) for others, _ in self._requests)
        if waiting and waiting + len(rows) > WAITING:
            raise BusyError
        future: asyncio.Future[Predictions] = asyncio.get_running_loop().create_future()
        self._requests.append((rows, future))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        """Predict until nothing waits."""
        while part := self._next():
            loop, rows = asyncio.get_running_loop(), [rows for rows, _ in part]
            results = await loop.run_in_executor(self._thread, self._predicted, rows)
            for (_, future), result in zip(part, results, strict=True):
                if future.done():
                    continue
                if isinstance(result, BaseException):
                    future.set_exception(result)
                else:
                    self.predicted += len(result)
                    future.set_result(result)

    def _next(self) -> list[Request]:
        """The first requests that wait, as long as their rows fit a batch; at least one."""
        part, count = list[Request](), 0
        while self._requests and (not part or count + len(self._requests[0][0]) <= ROWS):
            rows, future = self._requests.popleft()
            if not future.done():
                part.append((rows, future))
                count += len(rows)
        return part

    def _predicted(self, requests: list[Sequence[str]]) -> list[Predictions | Exception]:
        """The predictions of each request, or why it has none: where a batch fails, each is tried alone."""
        try:
            made = iter(self.trained.predict([row for rows in requests for row in rows], ROWS))
            return [list(islice(made, len(rows))) for rows in requests]
        except BaseException as error:  # a panic of a parser in Rust is no `Exception`
            if len(requests) > 1:
                return [one for rows in requests for one in self._predicted([rows])]
            return [self._reason(requests[0], error)]

    def _reason(self, rows: Sequence[str], error: BaseException) -> Exception:
        if isinstance(error, EdgewiseError):
            try:
                row = refused(self.trained, rows)
            except BaseException as other:
                error = other
            else:
                return error if row is None else RowError(*row)
        failure = RuntimeError(f"{type(error).__name__}: {error}")
        failure.__cause__ = error
        return failure
