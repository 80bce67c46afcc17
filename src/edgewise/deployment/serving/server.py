"""The server under the service: one process, its socket, its signals."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
from collections.abc import Callable
from typing import Any

from edgewise.deployment.serving.application import LOOPBACK, application, complaint
from edgewise.deployment.serving.requests import Limits
from edgewise.deployment.trained import Trained
from edgewise.errors import ConfigError, EdgewiseError, installing

try:
    import h11
    from uvicorn import Config, Server
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise EdgewiseError(f"a service runs on starlette and uvicorn: {installing('serve')}") from error

CONNECTIONS = 256  # at once: further ones are refused with 503
# Seconds until the head of a connection's first request, and of each further one that has begun; and in which some of a
# response that waits must be read.
HEAD = 10.0
IDLE = 5  # seconds that a connection may wait for its next request


def serve(
    trained: Trained,
    title: str,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits | None = None,
    ready: Callable[[str], object] = lambda address: None,
) -> int:
    """Answer requests until SIGINT or SIGTERM, then finish those that have come; returns the number of rows predicted.

    Symbols     port = 0 takes a free one; ready(address) = called once requests are answered
    Errors      ConfigError for an address that is not to be had
    """
    limits = limits or Limits()
    listening = _listen(host, port)
    name = _in_url(host)
    app = application(trained, title, limits, _hosts(listening, name))
    config = Config(
        app,
        http=_within(limits.seconds),
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=round(limits.seconds) + 1,
    )
    with listening, _stopping_quietly():
        server = _Server(config, lambda: ready(f"http://{name}:{listening.getsockname()[1]}"))
        server.run([listening])
    return app.state.batches.predicted


class _Server(Server):
    def __init__(self, config: Config, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()


class _Protocol(H11Protocol):
    """uvicorn's own, with a limit on how long the head of a request, the rest of a body that is not wanted and the
    reading of a response may take, and with its complaints as JSON."""

    seconds: float  # until a body has come

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            self.app = _full
        self._seen, self._unread = self.cycle, 0
        self._check = self.loop.call_later(HEAD, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._check.cancel()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread = 0

    def _look(self) -> None:
        """Close a connection on which no request comes; drop one whose response is not read."""
        waits = self.transport.is_closing() or self.flow.write_paused  # until then more may be written
        unread = self.transport.get_write_buffer_size() if waits else 0
        if 0 < self._unread <= unread:
            self.transport.abort()
            return
        if self.conn.their_state is h11.IDLE and self.cycle is self._seen:
            self.transport.close()
        self._seen, self._unread = self.cycle, unread
        self._check = self.loop.call_later(HEAD, self._look)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._comes_in_vain():
            self.loop.call_later(self.seconds, self._cut, self.cycle)

    def _comes_in_vain(self) -> bool:
        """Whether a request has been answered before all of its body is there."""
        return self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY

    def _cut(self, cycle: object) -> None:
        """Close a connection that still sends what the answered request began."""
        if self.cycle is cycle and self._comes_in_vain():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        content = json.dumps({"error": msg}).encode()
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=content), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def _within(seconds: float) -> type[_Protocol]:
    """The protocol of a service whose bodies come within so many seconds."""
    return type("_Within", (_Protocol,), {"seconds": seconds})


async def _full(scope: Any, receive: Any, send: Any) -> None:
    """What answers a connection too many."""
    response = complaint(503, f"more than {CONNECTIONS} connections: try later", {"connection": "close"})
    await response(scope, receive, send)


def _listen(host: str, port: int) -> socket.socket:
    if not host:  # which would listen on every network
        raise ConfigError("an empty --host is no address: leave it out for this machine alone, or give 0.0.0.0")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.getaddrinfo(host, port, family)
        return socket.create_server((host, port), family=family, backlog=CONNECTIONS)
    except (OSError, ValueError) as error:  # a ValueError: of a name that no host can have
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise ConfigError(f"{host} port {port} is not to be had ({reason}): give --host or --port another") from error


def _hosts(listening: socket.socket, name: str) -> tuple[str, ...]:
    """By which names the service answers: on a loopback address by its own and those of this machine, else by any."""
    address = str(listening.getsockname()[0])
    is_loopback = address == "::1" or address.removeprefix("::ffff:").startswith("127.")
    return (name.lower(), _in_url(address), *LOOPBACK) if is_loopback else ()


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@contextlib.contextmanager
def _stopping_quietly() -> Any:
    """uvicorn sends itself once more the signal that has stopped it: it is no error here."""
    try:
        before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread, where no signal arrives
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
