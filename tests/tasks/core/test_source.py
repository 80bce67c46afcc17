"""Where data is found, downloads from a TLS server that runs here, and what a task prepares once."""

import hashlib
import http.server
import shutil
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import safetensors.torch
import torch

from edgewise.errors import ConfigError, DataError
from edgewise.files import Tensors, cached, digest
from edgewise.tasks.core.source import Remote, fetch, find_folder

CONTENT = b"real data" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        redirect = {"/away": "http://localhost/data", "/elsewhere": "/data", "/file": "file:///etc/hostname"}
        if self.path in redirect:
            self.send_response(302)
            self.send_header("Location", redirect[self.path])
            self.end_headers()
            return
        self.send_response(200 if self.path != "/absent" else 404)
        self.send_header("Content-Length", str(len(CONTENT) + (10 if self.path == "/cut" else 0)))
        self.end_headers()
        self.wfile.write(CONTENT)

    def handle(self) -> None:
        with suppress(ConnectionError, ssl.SSLError):  # clients here hang up early on purpose
            super().handle()

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ssl.SSLContext]]:
    """The address of a TLS server and the context that trusts its self-signed certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    subprocess.run(
        ["openssl", "req", *kind, *subject, "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    served = http.server.ThreadingHTTPServer(("localhost", 0), Answers)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    served.socket = context.wrap_socket(served.socket, server_side=True)
    thread = threading.Thread(target=served.serve_forever, daemon=True)
    thread.start()
    yield f"https://localhost:{served.server_port}", ssl.create_default_context(cafile=str(certificate))
    served.shutdown()
    thread.join()
    served.server_close()


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.mark.parametrize("path", ["/data", "/elsewhere"])
def test_fetch_keeps_a_file_with_the_right_hash(server, tmp_path: Path, path: str) -> None:
    address, context = server
    destination = tmp_path / "new" / "folder" / "data.bin"
    assert fetch(address + path, SHA256, destination, len(CONTENT), context=context) == destination
    assert destination.read_bytes() == CONTENT
    assert list(destination.parent.iterdir()) == [destination]


@pytest.mark.parametrize(
    ("path", "sha256", "max_bytes", "match"),
    [
        ("/data", "0" * 64, len(CONTENT), f"sha256 is {SHA256}, expected 000"),
        ("/data", SHA256, len(CONTENT) - 1, "longer than the 8,999 bytes"),
        ("/absent", SHA256, len(CONTENT), "404"),
        ("/away", SHA256, len(CONTENT), "redirects to http://localhost/data, which is not https"),
        ("/file", SHA256, len(CONTENT), "file:///etc/hostname.* is not allowed"),
    ],
    ids=["hash", "size", "absent", "http", "file"],
)
def test_fetch_leaves_nothing_behind(
    server, tmp_path: Path, path: str, sha256: str, max_bytes: int, match: str
) -> None:
    address, context = server
    with pytest.raises(DataError, match=match):
        fetch(address + path, sha256, tmp_path / "new" / "folder" / "data.bin", max_bytes, context=context)
    assert list(tmp_path.iterdir()) == []


def test_fetch_never_replaces_a_file_by_a_worse_one(server, tmp_path: Path) -> None:
    address, context = server
    destination = tmp_path / "data.bin"
    destination.write_bytes(b"old")
    with pytest.raises(DataError):
        fetch(address + "/data", "0" * 64, destination, len(CONTENT), context=context)
    assert destination.read_bytes() == b"old"
    fetch(address + "/data", SHA256, destination, len(CONTENT), context=context)
    assert destination.read_bytes() == CONTENT


def test_fetch_does_not_trust_an_unknown_certificate(server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="CERTIFICATE_VERIFY_FAILED"):
        fetch(server[0] + "/data", SHA256, tmp_path / "data.bin", len(CONTENT))
    assert list(tmp_path.iterdir()) == []


def test_fetch_names_a_server_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="https://localhost:1/data: the download"):
        fetch("https://localhost:1/data", SHA256, tmp_path / "data.bin", 10)


def test_fetch_names_a_destination_that_cannot_be_written(server, tmp_path: Path) -> None:
    address, context = server
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match=r"file/data\.bin failed"):
        fetch(address + "/data", SHA256, tmp_path / "file" / "data.bin", len(CONTENT), context=context)


@pytest.mark.parametrize("url", ["http://localhost/data", "file:///etc/hostname", "ftp://localhost/data", "data"])
def test_only_https_is_fetched(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError, match="only https"):
        fetch(url, SHA256, tmp_path / "data.bin", 10)


@pytest.mark.parametrize("sha256", ["", "abc", SHA256.upper(), SHA256[:-1] + "g"])
def test_a_hash_is_required(tmp_path: Path, sha256: str) -> None:
    with pytest.raises(ConfigError, match="64 hexadecimal digits"):
        fetch("https://localhost/data", sha256, tmp_path / "data.bin", 10)


FILES = [Remote(name, f"https://localhost/{name}", SHA256, 10) for name in ("a", "b.gz")]


@pytest.fixture
def places(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, Path]:
    """The given folder, that of the environment, and the cache; all absent."""
    monkeypatch.setenv("EDGEWISE_DATA", str(tmp_path / "environment"))
    return tmp_path / "given", tmp_path / "environment" / "sub", cache / "sub"


def fill(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_bytes(CONTENT)
    return folder


def test_the_given_folder_comes_first_then_the_environment_then_the_cache(places) -> None:
    given, environment, cache = places
    fill(cache, "a", "b.gz")
    assert find_folder("sub", FILES) == cache
    fill(environment, "a", "b")  # unpacked counts as well
    assert find_folder("sub", FILES) == environment
    fill(given, "a", "b.gz")
    assert find_folder("sub", FILES, str(given)) == given


def test_the_given_folder_is_the_only_one_looked_at(places) -> None:
    given, _, cache = places
    fill(cache, "a", "b.gz")
    with pytest.raises(DataError, match=r"given lacks a, b\.gz\. Give folder=, set EDGEWISE_DATA or say download=true"):
        find_folder("sub", FILES, str(given))


def test_all_places_are_named(places, monkeypatch: pytest.MonkeyPatch) -> None:
    _, environment, cache = places
    fill(environment, "a")
    with pytest.raises(DataError) as error:
        find_folder("sub", FILES)
    assert f"{environment} lacks b.gz; {cache} lacks a, b.gz" in str(error.value)
    monkeypatch.delenv("EDGEWISE_DATA")
    with pytest.raises(DataError) as error:
        find_folder("sub", FILES)
    assert "environment" not in str(error.value)


@pytest.mark.parametrize("where", ["given", "cache"])
def test_download_fetches_what_is_missing(places, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    given, _, cache = places
    asked = []
    monkeypatch.setattr("edgewise.tasks.core.source.fetch", lambda *call: asked.append(call))
    folder = fill(given if where == "given" else cache, "a")
    assert find_folder("sub", FILES, str(given) if where == "given" else None, download=True) == folder
    assert asked == [("https://localhost/b.gz", SHA256, folder / "b.gz", 10)]


def test_download_is_idle_where_all_is_there(places, monkeypatch: pytest.MonkeyPatch) -> None:
    _, environment, _ = places
    fill(environment, "a", "b.gz")
    monkeypatch.setattr("edgewise.tasks.core.source.fetch", lambda *call: pytest.fail("fetched"))
    assert find_folder("sub", FILES, download=True) == environment


class Preparation:
    """Counts how often it is done."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> Tensors:
        self.count += 1
        return {"x": torch.arange(6.0).view(3, 2).T, "charges": torch.ones(2)}


def test_tensors_are_prepared_once_for_each_key(cache):
    prepare = Preparation()
    first, again = cached("mine", ("a", 1), prepare), cached("mine", ("a", 1), prepare)
    assert prepare.count == 1
    assert first.keys() == again.keys() and all(torch.equal(first[name], again[name]) for name in first)
    assert [path.name for path in (cache / "mine").iterdir()] == [f"{digest(('a', 1))}.safetensors"]
    cached("mine", ("a", 2), prepare)
    cached("yours", ("a", 1), prepare)
    assert prepare.count == 3


@pytest.mark.parametrize("damage", [lambda content: content[:-3], lambda content: b"", lambda content: b"{}" * 50])
def test_a_damaged_file_is_written_anew(cache, damage):
    prepare = Preparation()
    cached("mine", 1, prepare)
    (path,) = (cache / "mine").iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert torch.equal(cached("mine", 1, prepare)["charges"], torch.ones(2)) and prepare.count == 2
    assert cached("mine", 1, prepare)["x"].shape == (2, 3) and prepare.count == 2


@pytest.mark.parametrize("other", [{"x": torch.zeros(3, 3)}, {"y": torch.zeros(2, 3)}])
def test_a_file_with_other_tensors_is_written_anew(cache, other):
    prepare = Preparation()
    cached("mine", 1, prepare)
    (path,) = (cache / "mine").iterdir()
    safetensors.torch.save_file(other, path)
    assert cached("mine", 1, prepare, {"x": (2, 3)})["x"].shape == (2, 3)
    assert prepare.count == 2


def test_a_cache_that_cannot_be_written_costs_time_only(cache, monkeypatch):
    cache.parent.mkdir(parents=True)
    cache.touch()  # a file in the place of the folder, and of the temporary one
    monkeypatch.setattr(tempfile, "tempdir", str(cache))
    prepare = Preparation()
    for count in (1, 2):
        assert cached("mine", 1, prepare)["x"].shape == (2, 3)
        assert prepare.count == count
