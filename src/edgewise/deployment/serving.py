"""A run as a small HTTP service: the server under it, one process, its socket, its signals."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

from edgewise.deployment.service import LOOPBACK
from edgewise.deployment.service import Limits as Limits
from edgewise.deployment.service import application as application
from edgewise.deployment.trained import Trained
from edgewise.errors import ConfigError, EdgewiseError, installing

try:
    from uvicorn import Config, Server
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise EdgewiseError(f"a service runs on fastapi and uvicorn: {installing('serve')}") from error

CONNECTIONS = 256  # at once: further ones are refused with 503
HEAD = 10.0  # seconds until the head of a request has come, and the rest of a body that was answered before its end
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
        http=type("_Within", (_Protocol,), {"seconds": limits.seconds}),
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=round(limits.seconds) + 1,
    )
    with listening:
        _Server(config, lambda: ready(f"http://{name}:{listening.getsockname()[1]}")).run([listening])
    return int(app.state.batches.predicted)


class _Server(Server):
    def __init__(self, config: Config, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn's own sends itself once more the signal that has stopped it: it is no error here."""
        try:
            before = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not in the main thread, where no signal arrives
            yield
            return
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Protocol(H11Protocol):
    """uvicorn's own, which drops a connection on which no request comes, or none comes to its end."""

    seconds: float  # until a body has come, and then until its predictions are there

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._seen, self._since = self.cycle, self.loop.time()
        self._timer = self.loop.call_later(HEAD / 2, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._seen, self._since = self.cycle, self.loop.time()
        super().on_response_complete()

    def _look(self) -> None:
        if self.cycle is not self._seen:
            self._seen, self._since = self.cycle, self.loop.time()
        answering = self.cycle is not None and not self.cycle.response_complete
        unread = self.transport.get_write_buffer_size() > 0
        if self.loop.time() - self._since >= (2 * self.seconds if answering or unread else 0) + HEAD:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(HEAD / 2, self._look)


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
