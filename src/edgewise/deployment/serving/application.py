"""The service's requests and responses: JSON in, JSON out, an error that says what would be right."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from edgewise.deployment.serving.batches import Batches, BusyError, RowError
from edgewise.deployment.serving.description import describe, page
from edgewise.deployment.serving.requests import (
    Limits,
    Refusal,
    as_texts,
    read_body,
    read_rows,
    shortened,
    without_places,
)
from edgewise.deployment.trained import Trained
from edgewise.errors import EdgewiseError, installing
from edgewise.tasks.core.abilities import predicting

try:
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send
except ImportError as error:
    raise EdgewiseError(f"a service runs on starlette and uvicorn: {installing('serve')}") from error

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")  # names under which a page of another site cannot reach this machine
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
STRICT = "default-src 'none'; frame-ancestors 'none'"


def application(
    trained: Trained, title: str = "edgewise", limits: Limits | None = None, hosts: tuple[str, ...] = LOOPBACK
) -> Starlette:
    """The service of a trained model, for any server of ASGI applications, or to be mounted in one.

    Symbols     title = what it is called on its page; hosts = by which names it answers (none: by any)
    """
    service = _Service(trained, title, limits or Limits())
    routes = [
        Route("/", service.page, methods=["GET"]),
        Route("/openapi.json", service.description, methods=["GET"]),
        Route("/health", service.health, methods=["GET"]),
        Route("/predict", service.predict, methods=["POST"]),
    ]
    handlers: Mapping[Any, Any] = {HTTPException: _known, Exception: _unknown}
    named = [Middleware(_Named, hosts=hosts)] if hosts else []
    made = Starlette(routes=routes, exception_handlers=handlers, middleware=named)
    made.state.batches = service.batches
    return made


class _Service:
    def __init__(self, trained: Trained, title: str, limits: Limits) -> None:
        task = predicting(trained.task)
        self.limits, self.files = limits, task.files
        self.batches = Batches(trained)
        self.openapi = describe(task, title, limits)

    async def page(self, request: Request) -> Response:
        content, policy = page(self.openapi)
        return Response(content, media_type="text/html", headers=HEADERS | {"content-security-policy": policy})

    async def description(self, request: Request) -> Response:
        return _json(self.openapi)

    async def health(self, request: Request) -> Response:
        return _json({"status": "ready", "rows": self.batches.predicted})

    async def predict(self, request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            if kind != "application/json":  # which a form of another site cannot send
                raise Refusal(415, "the body is JSON: say content-type: application/json")
            rows = read_rows(await self._body(request), self.limits)
            with as_texts(rows, self.files) as (texts, folder):
                return await self._predicted(texts, folder)
        except Refusal as refusal:
            return complaint(refusal.status, str(refusal))

    async def _body(self, request: Request) -> bytes:
        try:
            async with asyncio.timeout(self.limits.seconds):
                length, waits = request.headers.get("content-length"), "expect" in request.headers
                return await read_body(request.stream(), length, self.limits, waits=waits)
        except TimeoutError as error:
            raise Refusal(408, f"the body did not come within {self.limits.seconds:g} s") from error
        except ClientDisconnect as error:
            raise Refusal(400, "the client went away") from error

    async def _predicted(self, texts: list[str], folder: str) -> Response:
        try:
            async with asyncio.timeout(self.limits.seconds):
                predictions = await self.batches.predict(texts)
        except TimeoutError as error:
            raise Refusal(503, f"no prediction within {self.limits.seconds:g} s: send fewer rows") from error
        except BusyError as error:
            raise Refusal(503, "too many rows wait: try later") from error
        except (RowError, EdgewiseError) as error:
            raise Refusal(422, shortened(without_places(str(error), folder))) from error
        return _json({"predictions": [without_places(prediction, folder) for prediction in predictions]})


class _Named:
    """A page of another site whose name was made to lead here (DNS rebinding) is refused, wherever it asks."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...]) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if scope["type"] == "http" and not self._is_meant(Headers(scope=scope).get("host", "")):
            app = complaint(421, f"the service is called {self.hosts[0]} here")
        await app(scope, receive, send)

    def _is_meant(self, host: str) -> bool:
        name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
        return name.lower() in self.hosts


async def _known(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path, reason = shortened(request.url.path), error.detail
    if error.status_code == 404:
        routes = [route.path for route in request.app.routes if isinstance(route, Route)]
        reason = f"there is no {path} here: ask for {', '.join(routes)}"
    elif error.status_code == 405:
        allowed = Headers(error.headers).get("allow", "")
        reason = f"{path} takes {allowed} requests, not {shortened(request.method)}"
    return complaint(error.status_code, reason, error.headers)


async def _unknown(request: Request, error: Exception) -> Response:
    """The trace is the log's alone: Starlette raises the error once more for the server, which writes it."""
    return complaint(500, "the service failed: its log says why")


def complaint(status: int, reason: str, headers: Mapping[str, str] | None = None) -> Response:
    """A response with what was wrong."""
    later = {"retry-after": "1"} if status == 503 else {}
    closing = {"connection": "close"} if status in (408, 413) else {}  # the rest of the body is not read
    return _json({"error": reason}, status, {**(headers or {}), **later, **closing})


def _json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    text = json.dumps(content, allow_nan=False)
    of_all = HEADERS | {"content-security-policy": STRICT}
    return Response(text, status, of_all | dict(headers or {}), media_type="application/json")
