"""The service's requests and responses: JSON in, JSON out, each within bounds; FastAPI checks and describes them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import inspect
import json
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields
from html import escape
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, cast, get_type_hints

from edgewise import __version__
from edgewise.configuration import build
from edgewise.data.rows import as_text
from edgewise.deployment.inputs import attempts
from edgewise.deployment.trained import Trained
from edgewise.errors import ConfigError, EdgewiseError, installing
from edgewise.models.text.sampling import Piece, Sampling, texts_of
from edgewise.tasks.core.abilities import Generates, Streams, generating, predicting
from edgewise.tasks.core.task import EXAMPLE

try:
    from fastapi import Body, FastAPI, HTTPException, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
    from pydantic import BaseModel, ConfigDict, Field, StrictInt, create_model
    from starlette.datastructures import Headers, MutableHeaders
    from starlette.exceptions import HTTPException as RoutingError
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError as error:
    raise EdgewiseError(f"a service runs on fastapi and uvicorn: {installing('serve')}") from error

ROWS = 256  # that the model reads at once
WAITING = 4096  # rows: a request that comes on top of them is refused
WRITING = 16  # texts, or requests for others, that are written at once
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")  # names under which a page of another site cannot reach this machine
STRICT = "default-src 'none'; frame-ancestors 'none'"
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff", "content-security-policy": STRICT}
SILENT: Any = {"tracing": False, "metrics": False, "logs": False}  # FastAPI's own telemetry
NAME = 255  # bytes of a file's name, which is what file systems take
SHOWN = 400  # characters of an error: those that repeat a row have its beginning and its end
FORM = 'a JSON object {"rows": [...]}'
STATUS = {"json_invalid": 400, "too_long": 413, "string_too_long": 413}  # of pydantic's errors; others are 422
# Of its errors: the row is of another kind.
KINDS = ("string_type", "int_type", "float_type", "model_type", "dict_type")
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body is not JSON"},
    408: {"description": "The body did not come in time"},
    413: {"description": "The body, a row or their number is too large"},
    415: {"description": "The content type is not application/json"},
    421: {"description": "The host is another than the service's"},
    422: {"description": "A row cannot be read: the error names it"},
    503: {"description": "Too many rows wait, or the prediction took too long: try later"},
}


@dataclass(frozen=True)
class Limits:
    """What one request may ask for.

    Args:
        bytes: Of its body.
        rows: Inputs in it.
        characters: Of a row, or of a prompt.
        seconds: Until its body has come, and then until its predictions are there, or what it writes ends.
        steps: Tokens of a text that is to be written.
        count: Texts, graphs or images that are to be written.
    """

    bytes: int = 8_000_000
    rows: int = 1024
    characters: int = 100_000
    seconds: float = 30.0
    steps: int = 4096
    count: int = 16


class File(BaseModel):
    """A file that travels in the request."""

    model_config = ConfigDict(extra="forbid")
    file: str = Field(description="Its name, without a folder")
    content: str = Field(description="Its bytes in base64", json_schema_extra={"contentEncoding": "base64"})


class Predictions(BaseModel):
    predictions: list[dict[str, Any]] = Field(description="One for each row, in their order.")


class Health(BaseModel):
    status: str
    rows: int


class Refused(BaseModel):
    error: str


def application(
    trained: Trained, title: str = "edgewise", limits: Limits | None = None, hosts: tuple[str, ...] = LOOPBACK
) -> FastAPI:
    """The service of a trained model, for any server of ASGI applications, or to be mounted in one.

    Symbols     title = what it is called on its page; hosts = by which names it answers (none: by any)
    """
    limits, task, batches = limits or Limits(), predicting(trained.task), Batches(trained)
    writes = isinstance(task, Generates)
    reads = " ".join((inspect.getdoc(task.predict) or "").split("\n\n")[0].split())
    reads += f" A new one is {task.form}." if task.form else ""
    reads += " A file travels in the request; paths are not read." if task.files else ""
    text = Annotated[str, Field(strict=True, max_length=limits.characters)]
    row: Any = text | StrictInt | Annotated[float, Field(strict=True, allow_inf_nan=False)]
    row = row | File if task.files else row
    row = row | dict[str, Any] if task.form else row
    rows = Annotated[list[row], Field(min_length=1, max_length=limits.rows, description=reads)]
    asked = create_model("Rows", __config__=ConfigDict(extra="forbid"), rows=(rows, ...))
    app = FastAPI(
        title=title,
        version=__version__,
        description=f"{task.describe()}. {reads}",
        docs_url=None,  # whose pages load scripts from elsewhere
        redoc_url=None,
        telemetry=SILENT,
        redirect_slashes=False,
        responses={status: {**about, "model": Refused} for status, about in ERRORS.items()},
    )
    app.state.batches = batches
    app.add_middleware(_Guard, hosts=hosts, limits=limits)

    @app.exception_handler(RequestValidationError)
    async def misread(request: Request, error: RequestValidationError) -> Response:
        found = error.errors()
        first = next((one for one in found if one["type"] not in KINDS), found[0])
        place, status = first["loc"][1:], STATUS.get(first["type"], 422)
        if request.url.path == "/generate" and place and status == 422:
            return complaint(status, f"{place[0]}: {first['msg']}")
        if place[:1] == ("rows",) and len(place) > 1:
            kinds = "a text or a number" + (', or {"file": NAME, "content": BASE64}' if task.files else "")
            kinds += f", or {task.form}" if task.form else ""
            return complaint(status, f"row {place[1]} is not {kinds} ({first['msg']})")
        what = "" if place[:1] == ("rows",) else f"the body is not {FORM}: "
        return complaint(status, f"{what}{first['msg']} {first.get('ctx', {}).get('error', '')}".strip())

    @app.exception_handler(RoutingError)
    async def refused(request: Request, error: RoutingError) -> Response:
        path, reason = shortened(request.url.path), error.detail
        if error.status_code == 404:
            reason = f"there is no {path} here: ask for /, /openapi.json, /health, /predict{', /generate' * writes}"
        elif error.status_code == 405:
            allowed = Headers(error.headers).get("allow", "other")
            reason = f"{path} takes {allowed} requests, not {shortened(request.method)}"
        return complaint(error.status_code, reason, error.headers)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        """The trace is the log's alone: the error is raised once more for the server, which writes it."""
        return complaint(500, "the service failed: its log says why")

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        content, policy = page_of(title, app.description, {"rows": [task.typical]})
        return HTMLResponse(content, headers={"content-security-policy": policy})

    @app.get("/health", response_model=Health)
    async def health() -> Any:
        """Whether it is ready, and the rows that it has predicted."""
        return {"status": "ready", "rows": batches.predicted}

    async def predict(request: Any) -> Response:
        """Predict for some rows."""
        with as_texts(request.rows, task.files) as (texts, folder):
            try:
                async with asyncio.timeout(limits.seconds):
                    made = await batches.predict(texts)
            except TimeoutError:
                raise HTTPException(503, f"no prediction within {limits.seconds:g} s: send fewer rows") from None
            except BusyError:
                raise HTTPException(503, "too many rows wait: try later") from None
            except (RowError, EdgewiseError) as error:
                raise HTTPException(422, shortened(without_places(str(error), folder))) from error
            return JSONResponse({"predictions": [without_places(one, folder) for one in made]})

    example = {"rows": [task.typical]}
    predict.__annotations__["request"] = Annotated[asked, Body(examples=[example], openapi_examples=None)]
    app.post("/predict", response_model=Predictions)(predict)

    async def generate(request: Any) -> Response:
        """Continue a prompt, or write something new; with "stream", events tell of a text while it grows: its number,
        what comes next of it, and at its end why it "ended"."""
        try:
            sampling = build(Sampling, request.model_dump(exclude={"stream"}), "")
            for name, most in (("steps", limits.steps), ("count", limits.count)):
                if (getattr(sampling, name) or 1) > most:
                    raise ConfigError(f"{name} must be at most {most:,} here, not {getattr(sampling, name):,}")
            if not isinstance(task, Streams):
                if request.stream:
                    raise ConfigError(f"stream is for texts, and {task.name} writes none: leave it out")
                async with asyncio.timeout(limits.seconds):
                    return JSONResponse(await batches.made(sampling))
            written = batches.write(sampling, limits.seconds)
            if not request.stream:
                return JSONResponse(texts_of([piece async for piece in written], sampling))
            first = await anext(written, None)  # an error is a response, while none has begun
        except TimeoutError:
            raise HTTPException(503, f"nothing is written within {limits.seconds:g} s: ask for less") from None
        except BusyError:
            raise HTTPException(503, "too many texts are being written: try later") from None
        except EdgewiseError as error:
            raise HTTPException(422, shortened(str(error))) from error
        return StreamingResponse(events(first, written), media_type="text/event-stream")

    if writes:
        hints = get_type_hints(Sampling, include_extras=True) | {"stop": list[str] | str}
        hints |= {"prompt": Annotated[str, Field(max_length=limits.characters)]}
        known = {one.name: (hints[one.name], one.default) for one in fields(Sampling) if one.name != "cache"}
        options: Any = known | {"stop": (hints["stop"], []), "stream": (bool, False)}
        asked = create_model("Options", __config__=ConfigDict(extra="forbid", strict=True), **options)
        generate.__annotations__["request"] = asked
        app.post("/generate")(generate)
    return app


async def events(piece: Piece | None, written: AsyncIterator[Piece]) -> AsyncIterator[str]:
    """The first piece of texts, and all others, as server-sent events, without the empty ones."""
    while piece is not None:
        if piece.text or piece.ended:
            ended = {"ended": piece.ended} if piece.ended else {}
            yield f"data: {json.dumps({'number': piece.number, 'text': piece.text} | ended)}\n\n"
        piece = await anext(written, None)


class _Guard:
    """What holds for every request: its host, as a page of another site may have a name that was made to lead here
    (DNS rebinding); its content type, which a form of another site cannot send; its body's size and time."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...], limits: Limits) -> None:
        self.app, self.hosts, self.limits = app, hosts, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limits, size = self.limits, int(Headers(scope=scope).get("content-length", 0))
        deadline, read, whole = asyncio.get_running_loop().time() + limits.seconds, 0, False

        async def within_limits() -> Message:
            nonlocal read, whole
            if whole:  # what comes yet is that nobody listens any more
                return await receive()
            if max(size, read) > limits.bytes:
                raise HTTPException(413, f"the body is longer than {limits.bytes:,} bytes: send fewer rows at a time")
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                late = f"the body did not come within {limits.seconds:g} s"
                raise HTTPException(408, late, {"connection": "close"}) from None
            read += len(message.get("body", b""))
            whole = read <= limits.bytes and not message.get("more_body", False)
            return message if read <= limits.bytes else await within_limits()

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await (self._refusal(scope) or self.app)(scope, within_limits, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
        if self.hosts and name.lower() not in self.hosts:
            return complaint(421, f"the service is called {self.hosts[0]} here")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] == "POST" and kind != "application/json":
            return complaint(415, "the body is JSON: say content-type: application/json")
        return None


Made = list[dict[str, Any]]  # the predictions of a request
Waiting = tuple[Sequence[str], "asyncio.Future[Made]"]  # a request


class BusyError(Exception):
    """More rows wait than will be kept waiting."""


class RowError(Exception):
    """The rows that cannot be read, by their numbers in their request, each with the reason."""

    def __init__(self, wrong: Mapping[int, Exception]) -> None:
        super().__init__("; ".join(f"row {row}: {reason}" for row, reason in wrong.items()))


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
        self.writing = 0  # texts, and requests for others
        self._requests = deque[Waiting]()
        self._running: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "predictions")

    async def predict(self, rows: Sequence[str]) -> Made:
        """The predictions of a request's rows, once their turn has come."""
        waiting = sum(len(others) for others, _ in self._requests)
        if waiting and waiting + len(rows) > WAITING:
            raise BusyError
        future: asyncio.Future[Made] = asyncio.get_running_loop().create_future()
        self._requests.append((rows, future))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await future

    async def write(self, sampling: Sampling, seconds: float) -> AsyncIterator[Piece]:
        """The pieces of texts, each of which waits for its turn among the predictions; after so many seconds they are
        cut short.

        Errors      BusyError where `WRITING` others are written
        """
        task, loop, count = self.trained.task, asyncio.get_running_loop(), sampling.count or 1
        assert isinstance(task, Streams)
        if self.writing + count > WRITING:
            raise BusyError
        pieces = task.stream(self.trained.model, self.trained.pattern, sampling, self.trained.device)
        deadline, going = loop.time() + seconds, {*range(count)}
        self.writing += count
        try:
            while loop.time() < deadline:
                piece = await loop.run_in_executor(self._thread, next, pieces, None)
                if piece is None:
                    return
                going -= {piece.number} if piece.ended else set()
                yield piece
            for number in sorted(going):
                yield Piece(number, "", "time")
        finally:
            self.writing -= count
            # In its turn: it may still be running there.
            self._thread.submit(cast("Generator[Piece, None, None]", pieces).close)

    async def made(self, sampling: Sampling) -> dict[str, Any]:
        """What else a model writes, at once."""
        task, loop = generating(self.trained.task), asyncio.get_running_loop()
        if self.writing >= WRITING:
            raise BusyError
        self.writing += 1
        try:
            how = self.trained.model, self.trained.pattern, sampling, self.trained.device
            return (await loop.run_in_executor(self._thread, task.generate, *how)).values
        finally:
            self.writing -= 1

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

    def _next(self) -> list[Waiting]:
        """The first requests that wait, as long as their rows fit a batch; at least one."""
        part, count = list[Waiting](), 0
        while self._requests and (not part or count + len(self._requests[0][0]) <= ROWS):
            rows, future = self._requests.popleft()
            if not future.done():
                part.append((rows, future))
                count += len(rows)
        return part

    def _predicted(self, requests: list[Sequence[str]]) -> list[Made | Exception]:
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
                results = attempts(self.trained.predict, rows)
            except BaseException as other:
                error = other
            else:
                wrong = {row: one for row, one in enumerate(results) if isinstance(one, EdgewiseError)}
                return RowError(wrong) if wrong else error
        failure = RuntimeError(f"{type(error).__name__}: {error}")
        failure.__cause__ = error
        return failure


@contextmanager
def as_texts(rows: list[Any], suffixes: tuple[str, ...]) -> Iterator[tuple[list[str], str]]:
    """Rows as a task reads them, and the folder where their files are meanwhile, "" without any.

    A task that opens files gets none but those that travel in the request: a path in a row is refused.
    """
    if not any(isinstance(row, File) for row in rows):
        yield [_text(number, row, suffixes) for number, row in enumerate(rows)], ""
        return
    with tempfile.TemporaryDirectory(prefix="edgewise-") as folder:
        texts = []
        for number, row in enumerate(rows):
            if not isinstance(row, File):
                texts.append(_text(number, row, suffixes))
                continue
            place = Path(folder) / str(number) / _name(number, row.file, suffixes)
            place.parent.mkdir()
            try:
                place.write_bytes(base64.b64decode(row.content, validate=True))
            except (binascii.Error, ValueError) as error:
                raise HTTPException(422, f"row {number}: its content is not base64 ({error})") from error
            texts.append(str(place))
        yield texts, folder


def _text(number: int, row: str | float | dict[str, Any], suffixes: tuple[str, ...]) -> str:
    text = as_text(row)
    if suffixes and not isinstance(row, dict) and not EXAMPLE.fullmatch(text.strip()):
        right = '{"file": NAME, "content": BASE64}, or name an example as in "test:7"'
        raise HTTPException(422, f"row {number}: files of this machine are not read: send {right}")
    return text


def _name(number: int, name: str, suffixes: tuple[str, ...]) -> str:
    if not name.isprintable() or len(name.encode()) > NAME or Path(name).name != name or "\\" in name:
        raise HTTPException(422, f"row {number}: give a file's name, of at most {NAME} bytes, without a folder")
    if Path(name).suffix.lower() not in suffixes:
        raise HTTPException(422, f"row {number}: files that end with {', '.join(suffixes)} are read")
    return name


def without_places(value: Any, folder: str) -> Any:
    """A prediction, or the words of an error, in which a file has its name alone."""
    if isinstance(value, dict):
        return {name: without_places(part, folder) for name, part in value.items()}
    if isinstance(value, str) and folder and folder in value:
        before, *parts = value.split(folder)
        return before + "".join(part.split("/", 2)[-1] for part in parts)
    return value


def complaint(status: int, reason: str, headers: Any = None) -> Response:
    """A response with what was wrong."""
    later = {"retry-after": "1"} if status == 503 else {}
    return JSONResponse({"error": shortened(reason)}, status, {**(headers or {}), **later})


def shortened(text: str) -> str:
    """The beginning and the end of a text that is too long to be shown.

    >>> len(shortened("9" * 100_000)) == SHOWN
    True
    """
    half = (SHOWN - 5) // 2
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 5 - half]} ... {text[-half:]}"


STYLE = "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto}textarea{width:100%}"
SCRIPT = """const [form, body, out] = ["form", "body", "out"].map((name) => document.getElementById(name));
form.onsubmit = async (event) => {
  event.preventDefault();
  const headers = { "content-type": "application/json" };
  const response = await fetch("predict", { method: "POST", headers, body: body.value });
  out.textContent = `${response.status}\\n${JSON.stringify(await response.json(), null, 2)}`;
};
"""


def page_of(title: str, about: str, example: dict[str, Any]) -> tuple[str, str]:
    """A page on which a request can be tried, which loads nothing from elsewhere, and the content policy for it."""
    html = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"><style>{STYLE}</style></head>
<body><h1>{escape(title)}</h1><p>{escape(about)}</p>
<form id="form"><label for="body"><code>POST /predict</code></label>
<textarea id="body" rows="4" spellcheck="false">{escape(json.dumps(example, ensure_ascii=False))}</textarea>
<p><button>Predict</button></p></form><pre id="out" aria-live="polite"></pre>
<p>Edgewise {escape(__version__)} · <a href="openapi.json">OpenAPI</a></p>
<script>{SCRIPT}</script></body></html>
"""
    style, script = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (STYLE, SCRIPT))
    policy = f"{STRICT}; style-src 'sha256-{style}'; script-src 'sha256-{script}'; connect-src 'self'; img-src data:"
    return html, f"{policy}; base-uri 'none'; form-action 'none'"
