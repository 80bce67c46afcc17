"""The service over HTTP, through a server on a free port: predictions, refusals, the page."""

import base64
import contextlib
import http.client
import io
import json
import re
import socket
import struct
import threading
import time
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from fastapi import HTTPException

from edgewise import tasks as tasks_folder
from edgewise.apps import recipes
from edgewise.apps.options import configure
from edgewise.deployment import Trained, load
from edgewise.deployment import serving as module
from edgewise.deployment.service import File, as_texts, without_places
from edgewise.deployment.serving import Limits
from edgewise.training import Choice, RunConfig, train
from edgewise.training.runs import assemble

OPTIONS = {
    "karate": [("train.steps", "4"), ("model.width", "8")],
    "digits-vit": [("train.steps", "1"), ("model.width", "8"), ("model.depth", "1")],
}
PNG = (".npy", ".png")
LIMITS = Limits(bytes=20_000, rows=50, characters=100, seconds=20)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    for name, options in OPTIONS.items():
        train(configure(recipes.read(name), options), place / name, progress=False)
    return {name: load(place / name) for name in OPTIONS}


class Served:
    """A service in a thread, which stops at the end."""

    def __init__(self, trained, limits: Limits = LIMITS) -> None:
        self.trained, self.limits, self.rows = trained, limits, None
        self.address, self.server = "", None

    def __enter__(self):
        ready, made = threading.Event(), []

        class Server(module._Server):
            def __init__(self, *arguments) -> None:
                super().__init__(*arguments)
                made.append(self)

        def listening(address: str) -> None:
            self.address = urlsplit(address).netloc
            ready.set()

        original = module._Server

        def serve() -> None:
            module._Server = Server
            try:
                self.rows = module.serve(self.trained, "karate <0>", port=0, limits=self.limits, ready=listening)
            finally:
                module._Server = original
                ready.set()

        self.thread = threading.Thread(target=serve)
        self.thread.start()
        assert ready.wait(20)
        (self.server,) = made
        return self

    def __exit__(self, *_) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive()

    def send(self, method: str = "POST", path: str = "/predict", body=None, **headers):
        """(status, content, headers) of a request; a body that is no bytes is sent as JSON."""
        connection = http.client.HTTPConnection(self.address, timeout=20)
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        given = {"content-type": "application/json"} | {name.replace("_", "-"): text for name, text in headers.items()}
        try:
            connection.request(method, path, content, given)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        read = json.loads(text) if response.headers["content-type"] == "application/json" else text
        return response.status, read, response.headers


@pytest.fixture(scope="module")
def karate(models):
    with Served(models["karate"]) as served:
        yield served


@pytest.fixture(scope="module")
def digits(models):
    with Served(models["digits-vit"], Limits(bytes=1_000_000)) as served:
        yield served


def test_predictions_are_those_of_predict(karate, digits) -> None:
    status, content, _ = karate.send(body={"rows": [0, "33", 5]})
    assert status == 200 and content == {"predictions": karate.trained.predict([0, 33, 5])}
    status, content, _ = digits.send(body={"rows": ["test:3"]})
    assert status == 200 and content == {"predictions": digits.trained.predict(["test:3"])}


def test_an_image_travels_in_the_request(digits, tmp_path) -> None:
    np.save(tmp_path / "three.npy", digits.trained.task.read("test:3")[0].numpy())
    sent = {"file": "three.npy", "content": base64.b64encode((tmp_path / "three.npy").read_bytes()).decode()}
    status, content, _ = digits.send(body={"rows": [sent, "test:3"]})
    mine, known = content["predictions"]
    assert status == 200 and mine["image"] == "three.npy" and mine["probabilities"] == known["probabilities"]
    broken = {"file": "three.npy", "content": base64.b64encode(b"no array").decode()}
    status, content, _ = digits.send(body={"rows": ["test:0", broken]})
    assert status == 422 and content["error"].startswith("row 1: three.npy: not a numpy array")
    status, content, _ = digits.send(body={"rows": [str(tmp_path / "three.npy")]})
    assert status == 422 and "files of this machine are not read" in content["error"]


def test_parallel_requests_get_their_own_predictions(karate) -> None:
    expected = {node: karate.trained.predict([node]) for node in range(34)}
    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda node: (node, karate.send(body={"rows": [node]})), list(range(34)) * 5))
    assert [found for node, found in results if found[:2] != (200, {"predictions": expected[node]})] == []


@pytest.mark.parametrize(
    ("status", "why", "request_"),
    [
        (400, "not a JSON object", {"body": b'{"rows": [1'}),
        (400, "not a JSON object", {"body": b"\xff\xfe"}),
        (422, "not a JSON object", {"body": [1]}),
        (422, "not a JSON object", {"body": {"rows": ["a"], "more": 1}}),
        (422, "not a JSON object", {"body": b""}),
        (422, "at least 1 item", {"body": {"rows": []}}),
        (422, "row 1: no node '34' in karate", {"body": {"rows": [0, 34, 99]}}),
        (422, "row 0 is not a text or a number", {"body": {"rows": [{"file": "a.png", "content": ""}]}}),
        (413, "at most 50 items", {"body": {"rows": [0] * 51}}),
        (413, "row 0 is not a text or a number (String should have at most 100", {"body": {"rows": ["0" * 101]}}),
        (413, "longer than 20,000 bytes", {"body": b" " * 20_001}),
        (413, "longer than 20,000 bytes", {"body": b" " * 30_000_000}),
        (415, "content-type: application/json", {"body": {"rows": [0]}, "content_type": "text/plain"}),
        (415, "say content-type", {"body": b"rows=0", "content_type": "application/x-www-form-urlencoded"}),
        (421, "the service is called 127.0.0.1", {"body": {"rows": [0]}, "host": "evil.example"}),
        (421, "the service is called 127.0.0.1", {"path": "/health/", "method": "GET", "host": "evil.example"}),
        (404, "there is no /docs here: ask for /, /openapi.json, /health", {"path": "/docs", "method": "GET"}),
        (405, "/predict takes POST requests, not GET", {"method": "GET"}),
    ],
)  # fmt: skip
def test_what_is_malformed_or_too_large_is_refused_in_a_line(status: int, why: str, request_, karate) -> None:
    got, content, headers = karate.send(**request_)
    assert (got, list(content)) == (status, ["error"]) and why in content["error"]
    assert "Traceback" not in content["error"] and "content-security-policy" in headers
    assert karate.send(body={"rows": [0]})[0] == 200


def raw(served, content: bytes) -> bytes:
    """What comes back for bytes that need not be HTTP, until the connection is closed."""
    host, port = served.address.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(content)
        received = b""
        with contextlib.suppress(ConnectionResetError):  # it does not read on once it has refused
            while part := connection.recv(4096):
                received += part
    return received


ROWS = [
    b"", b"null", b"true", b"[]", b"[0]", b"{}", b"1e400", b"-1e400", b"NaN", b"-Infinity", b"-1", b"-0.0", b"0.5",
    b"34", b"1e3", b"9223372036854775808", b"9" * 99, b"9" * 5000, b'"-1"', b'"1_0"', b'"+1"', b'"\\u0663"',
    b'"\\ud800"', b'{"file": "a.png"}', b'"\\u0000"', b'""', b'" "', b'"test:999999999999999999"', b'"0,"', b"[" * 9000,
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_a_row_that_is_no_node_is_refused_in_a_short_line(row: bytes, karate) -> None:
    status, content, _ = karate.send(body=b'{"rows": [' + row + b"]}")
    assert 400 <= status < 500 and list(content) == ["error"] and 0 < len(content["error"]) <= 500


def test_an_error_does_not_repeat_a_long_row(models) -> None:
    with Served(models["karate"], Limits(seconds=5)) as served:
        status, content, _ = served.send(body={"rows": ["9" * 100_000]})
    assert status == 422 and len(content["error"]) <= 400 and content["error"].startswith("row 0: no node '999")


def png(width: int, height: int, pixels: bytes) -> bytes:
    """A grey image that says that it has so many pixels."""
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(pixels)),
        (b"IEND", b""),
    )
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def npy(shape: str, kind: str = "<f4", values: bytes = b"") -> bytes:
    """An array that says that it has such a shape."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values


def bomb() -> bytes:
    """A zip file of 16 KB with an array of 16 MB."""
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x.npy", npy("(16000000,)", "|u1", bytes(16_000_000)))
        return file.getvalue()


FILES = {
    "width and height of 2^31 - 1": ("a.png", lambda: png(2**31 - 1, 2**31 - 1, b"")),
    "no pixels": ("a.png", lambda: png(0, 0, b"")),
    "an array of 10^18 numbers": ("a.npy", lambda: npy("(1000000000, 1000000000)")),
    "more numbers than 64 bits count": ("a.npy", lambda: npy("(4611686018427387904, 8)")),
    "a negative axis": ("a.npy", lambda: npy("(-1, 8)")),
    "objects": ("a.npy", lambda: npy("(8, 8)", "|O", b"cos\nsystem\n")),
    "no numbers": ("a.npy", lambda: npy("(8, 8)", "<f4", struct.pack("<f", float("nan")) * 64)),
    "brackets": ("a.npy", lambda: npy("(" * 5000)),
    "a zip file": ("a.npy", bomb),
    "a zip file by its name": ("a.npz", bomb),
    "a zip file as an image": ("a.png", bomb),
    "nothing": ("a.png", bytes),
}


@pytest.mark.parametrize("what", FILES)
def test_a_file_that_is_not_what_it_says_is_refused_at_once(what: str, digits) -> None:
    name, content = FILES[what]
    started = time.monotonic()
    sent = {"file": name, "content": base64.b64encode(content()).decode()}
    status, answer, _ = digits.send(body={"rows": [sent]})
    assert status == 422 and answer["error"].startswith("row 0") and len(answer["error"]) <= 400
    assert time.monotonic() - started < 5


def test_of_an_image_that_unpacks_to_more_only_its_size_is_unpacked(digits) -> None:
    predictions = []
    for count in (72, 50_000_000):
        sent = {"file": "a.png", "content": base64.b64encode(png(8, 8, bytes(count))).decode()}
        status, content, _ = digits.send(body={"rows": [sent]})
        assert status == 200
        predictions += content["predictions"]
    assert predictions[0] == predictions[1]


@pytest.mark.parametrize(
    ("length", "status", "why"),
    [
        ("-1", 400, "Invalid HTTP request"),
        ("1e3", 400, "Invalid HTTP request"),
        ("9" * 30, 400, "Invalid HTTP request"),
        ("9" * 18, 413, "longer than 20,000 bytes"),
        ("5", 400, "not a JSON object"),
        ("13\r\ncontent-length: 14", 400, "Invalid HTTP request"),
    ],
)
def test_a_length_that_is_wrong_is_refused(length: str, status: int, why: str, karate) -> None:
    head = (
        f"POST /predict HTTP/1.1\r\nhost: {karate.address}\r\ncontent-type: application/json\r\nconnection: close\r\n"
    )
    received = raw(karate, f'{head}content-length: {length}\r\n\r\n{{"rows": [0]}}'.encode()).decode()
    assert received.startswith(f"HTTP/1.1 {status} ") and why in received


def test_what_is_no_http_is_refused(karate) -> None:
    received = raw(karate, b"nonsense\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 400") and received.endswith(b"Invalid HTTP request received.")
    assert raw(karate, b"GET / HTTP/1.1\r\nx: " + b"y" * 200_000)[:12] in (b"HTTP/1.1 400", b"")


def test_a_body_that_does_not_come_is_not_waited_for(models) -> None:
    with Served(models["karate"], Limits(seconds=0.5)) as served:
        head = f"POST /predict HTTP/1.1\r\nhost: {served.address}\r\ncontent-type: application/json\r\n"
        received = raw(served, head.encode() + b"content-length: 100\r\n\r\n{")
    assert received.startswith(b"HTTP/1.1 408") and b"did not come within 0.5 s" in received


def test_a_prediction_that_takes_too_long_is_not_waited_for(models, monkeypatch: pytest.MonkeyPatch) -> None:
    trained, free = models["karate"], threading.Event()
    original = type(trained).predict

    def slow(self, rows, batch=256):
        free.wait(20)
        return original(self, rows, batch)

    monkeypatch.setattr(type(trained), "predict", slow)
    with Served(trained, Limits(seconds=0.2)) as served:
        status, content, headers = served.send(body={"rows": [0]})
        assert (status, headers["retry-after"]) == (503, "1") and "no prediction within 0.2 s" in content["error"]
        free.set()


def test_a_failure_is_the_logs_own(models, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    def failing(self, rows, batch=256):
        raise RuntimeError("secret")

    monkeypatch.setattr(type(models["karate"]), "predict", failing)
    with Served(models["karate"]) as served:
        status, content, _ = served.send(body={"rows": [0]})
    assert (status, content) == (500, {"error": "the service failed: its log says why"})
    assert "RuntimeError: secret" in capfd.readouterr().err


def test_the_page_and_the_document_show_a_request_that_it_answers(karate, digits) -> None:
    for served in (karate, digits):
        (_, page, headers), (_, document, _) = (served.send("GET", path) for path in ("/", "/openapi.json"))
        (shown,) = re.findall(r"<textarea[^>]*>(.*?)</textarea>", page)
        body, asked = json.loads(unescape(shown)), document["components"]["schemas"]["Rows"]["properties"]["rows"]
        sent = document["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]
        assert body in (sent.get("example"), *sent["schema"].get("examples", ()))
        assert asked["maxItems"] == served.limits.rows and asked["description"]
        status, content, _ = served.send(body=body)
        assert status == 200 and len(content["predictions"]) == 1
        assert "<title>karate &lt;0&gt;</title>" in page and "default-src 'none'" in headers["content-security-policy"]
        assert re.findall(r"https?://|//[a-z]|src=|url\(|@import", page) == []


def test_the_rows_are_counted(models) -> None:
    with Served(models["karate"]) as served:
        served.send(body={"rows": [0, 1]})
        served.send(body={"rows": [2]})
        assert served.send("GET", "/health")[1] == {"status": "ready", "rows": 3}
    assert served.rows == 3


def test_a_connection_too_many_is_refused_and_those_before_it_are_not(models, monkeypatch) -> None:
    monkeypatch.setattr(module, "CONNECTIONS", 4)
    with Served(models["karate"]) as served, contextlib.ExitStack() as stack:
        host, port = served.address.split(":")
        first = stack.enter_context(contextlib.closing(http.client.HTTPConnection(host, int(port), timeout=20)))
        statuses = []
        for others in (0, 3):
            for _ in range(others):
                stack.enter_context(socket.create_connection((host, int(port))))
            for connection in (first, http.client.HTTPConnection(host, int(port), timeout=20)):
                connection.request("GET", "/health")
                response = connection.getresponse()
                statuses.append((response.read(), response.status)[1])
            connection.close()
    assert statuses[:2] == [200, 200] and statuses[3] == 503


def test_connections_on_which_no_request_ends_are_dropped(models, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that does not come, a body that trickles after its answer, and a response that nobody reads."""
    monkeypatch.setattr(module, "HEAD", 0.4)
    trained, long = models["karate"], [{"text": "x" * 20_000}]
    with Served(trained, Limits(seconds=0.3)) as served, contextlib.ExitStack() as stack:
        monkeypatch.setattr(type(trained), "predict", lambda self, rows, batch=256: long * len(rows))
        host, port = served.address.split(":")
        head = f"POST /predict HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        body = json.dumps({"rows": [0] * 1000}).encode()
        assert raw(served, head.encode()[:20]) == b""
        unread, trickling = (stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(2))
        unread.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        chunks = head.replace("/predict", "/no") + "transfer-encoding: chunked\r\n\r\n"
        trickling.sendall(chunks.encode())
        waited = time.monotonic() + 20
        while served.server.server_state.connections:
            assert time.monotonic() < waited
            with contextlib.suppress(OSError):
                trickling.sendall(b"1\r\na\r\n")
            time.sleep(0.05)


def test_a_file_travels_in_the_request_and_is_gone_after_it() -> None:
    sent = File(file="three.png", content=base64.b64encode(b"pixels").decode())
    with as_texts(["test:3", sent, sent], PNG) as (texts, folder):
        first, *places = texts
        assert first == "test:3" and len(set(places)) == 2
        assert [Path(place).read_bytes() for place in places] == [b"pixels"] * 2
        prediction = {"image": places[1], "probabilities": {"a": 0.5}, "why": f"{places[0]}: no"}
        named = {"image": "three.png", "probabilities": {"a": 0.5}, "why": "three.png: no"}
        assert without_places(prediction, folder) == named
    assert not Path(folder).exists()


@pytest.mark.parametrize("path", ["/etc/passwd", "three.png", "../three.npy", "~/a.png", "test:7/../a.png", " "])
def test_a_path_in_a_row_is_not_read(path: str) -> None:
    with pytest.raises(HTTPException, match="files of this machine are not read"), as_texts([path], PNG):
        pass


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("../three.png", ""), ("/tmp/three.png", ""), ("..", ""), ("a\\b.png", ""), ("a\0.png", ""),  # noqa: S108
        ("a" * 252 + ".png", ""), ("数" * 84 + ".png", ""), ("three.exe", ""), ("three.png", "no base64!"),
        ("three.png", "é"),
    ],
)  # fmt: skip
def test_a_file_has_a_plain_name_and_a_content(file: str, content: str) -> None:
    with pytest.raises(HTTPException, match="row 0"), as_texts([File(file=file, content=content)], PNG):
        pass


def test_only_tasks_with_files_take_a_request_for_a_path() -> None:
    """A task that opens what a request names says so, or a service would open any file for anyone."""
    tasks = Path(tasks_folder.__file__).parent
    opening = {
        path: text for path in tasks.rglob("*.py") if "Path(request" in (text := path.read_text(encoding="utf-8"))
    }
    assert opening
    assert [
        path.name for path, text in opening.items() if not re.search(r"^    files\b.* = ", text, re.MULTILINE)
    ] == []


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """A service of a model that writes; any weights do."""
    file = tmp_path_factory.mktemp("text") / "tale.txt"
    file.write_text("".join(f"{('good', 'bad')[n % 2]} lines, {n % 7}\n" for n in range(300)), encoding="utf-8")
    task = Choice("text-files", {"file": str(file), "level": "byte", "context": 32})
    small = Choice("transformer", {"width": 8, "depth": 1, "heads": 2, "positions": "rotary"})
    with Served(Trained(*assemble(RunConfig(task, small))[::-1]).eval(), Limits(seconds=1)) as served:
        yield served


def test_a_text_is_written_as_generate_writes_it(writer) -> None:
    options = {"prompt": "good", "steps": 30, "count": 3, "top_p": 0.9, "min_p": 0.01, "stop": ["\n", "q"], "seed": 4}
    expected = writer.trained.generate(**options)
    status, content, _ = writer.send(path="/generate", body=options)
    assert status == 200 and content == json.loads(json.dumps(expected))
    status, content, headers = writer.send(path="/generate", body=options | {"stream": True})
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    events = [json.loads(event.removeprefix("data: ")) for event in content.split("\n\n")[:-1]]
    assert len(events) > 6 and all(event["text"] or "ended" in event for event in events)
    for number in range(3):
        own = [event for event in events if event["number"] == number]
        assert "good" + "".join(event["text"] for event in own) == expected["texts"][number]
        assert [event["ended"] for event in own if "ended" in event] == [expected["ended"][number]]


def test_a_text_that_takes_too_long_is_cut_short_while_others_are_predicted(writer) -> None:
    endless = {"prompt": "good", "steps": 4096, "count": 16}
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(writer.send, path="/generate", body=endless)
        time.sleep(0.2)
        assert writer.send(body={"rows": ["good lines"]})[0] == 200
        assert writer.send(path="/generate", body={"prompt": "bad"})[0] == 503 and not waiting.done()
        status, content, _ = waiting.result()
    assert status == 200 and content["ended"] == ["time"] * 16
    assert writer.send(path="/generate", body={"prompt": "bad", "steps": 3})[0] == 200


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1, not 1.5"),
        ({"min_p": "0.1"}, "min_p: Input should be a valid number"),
        ({"topp": 0.9}, "topp: Extra inputs are not permitted"),
        ({"steps": 5000}, "steps must be at most 4,096 here, not 5,000"),
        ({"count": 17}, "count must be at most 16 here, not 17"),
        ({"stop": [""], "stream": True}, "stop must be a text of at least one character"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": "", "stream": True}, "the prompt is empty"),
    ],
)
def test_options_that_are_wrong_are_named(writer, options, why: str) -> None:
    status, content, _ = writer.send(path="/generate", body=options)
    assert status == 422 and why in content["error"]


def test_only_what_writes_has_a_place_for_it(karate, writer) -> None:
    assert karate.send(path="/generate", body={})[0] == 404
    paths = writer.send("GET", "/openapi.json")[1]["paths"]
    assert {*paths} >= {"/predict", "/generate"}
    assert "/generate" in writer.send("GET", "/nothing")[1]["error"]
