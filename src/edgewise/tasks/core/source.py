"""Where data comes from: the user's folder, the data folder, the cache, or, only on request, a verified download."""

import hashlib
import os
import re
import ssl
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from edgewise.errors import ConfigError, DataError
from edgewise.files import cache_path, whole

CHUNK = 1 << 20


@dataclass(frozen=True)
class Remote:
    """A file as its public source publishes it: its name in a data folder, https address, the hash that the download
    must have (64 hexadecimal digits), and the size beyond which it stops with an error."""

    name: str
    url: str
    sha256: str
    max_bytes: int


def find_folder(sub: str, files: Iterable[Remote], folder: str | None = None, download: bool = False) -> Path:
    """As `local_folder`, for files that have a source: with `download`, what is missing is fetched into the last place.

    Errors      DataError: no folder holds the files; a download that fails or has another hash
    """
    by_name, places = {file.name: file for file in files}, _places(sub, folder)
    if download and all(missing(place, by_name) for place in places):
        for name in missing(places[-1], by_name):
            file = by_name[name]
            fetch(file.url, file.sha256, places[-1] / name, file.max_bytes)
        return places[-1]
    return local_folder(sub, by_name, folder, "Give folder=, set EDGEWISE_DATA or say download=true")


def local_folder(
    sub: str, names: Iterable[str], folder: str | None = None, advice: str = "Give folder= or set EDGEWISE_DATA"
) -> Path:
    """The folder that holds all files of those names: `folder` if given, else $EDGEWISE_DATA/sub, else the cache's.

    Edge cases  a file x.gz may also lie there unpacked, as x
    """
    absent = {place: missing(place, names) for place in _places(sub, folder)}
    for place, lacking in absent.items():
        if not lacking:
            return place
    looked = "; ".join(f"{place} lacks {', '.join(lacking)}" for place, lacking in absent.items())
    raise DataError(f"no folder with all files of {sub!r}: {looked}. {advice}")


def _places(sub: str, folder: str | None) -> list[Path]:
    root = os.environ.get("EDGEWISE_DATA")
    given = [Path(folder).expanduser()] if folder else []
    return given or [*([Path(root).expanduser() / sub] if root else []), cache_path(sub)]


def missing(folder: Path, names: Iterable[str]) -> list[str]:
    """Which of the files a folder lacks."""
    return [name for name in names if not unpacked(folder / name).exists()]


def unpacked(path: Path) -> Path:
    """The path itself, or for x.gz the path x where only that exists."""
    plain = path.with_suffix("")
    return plain if path.suffix == ".gz" and not path.exists() and plain.exists() else path


class _StayOnHttps(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if not newurl.lower().startswith("https://"):
            fp.close()
            raise DataError(f"{req.full_url}: redirects to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch(url: str, sha256: str, destination: Path, max_bytes: int, *, context: ssl.SSLContext | None = None) -> Path:
    """Download one file over TLS, keep it only if its hash is the expected one, and leave nothing behind otherwise.

    Symbols     context = the certificates to trust (default: the system's)
    Errors      ConfigError: an address that is not https, a sha256 that is not 64 hexadecimal digits
                DataError: no response, a redirect away from https, more than max_bytes, another hash
    Edge cases  the destination is replaced in one step: a reader sees the old file or the whole new one
    """
    if not url.lower().startswith("https://"):
        raise ConfigError(f"{url}: only https addresses are downloaded")
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise ConfigError(f"{url}: its sha256 must be 64 hexadecimal digits, not {sha256!r}")
    opener = build_opener(HTTPSHandler(context=context), _StayOnHttps())
    made = [folder for folder in destination.parents if not folder.exists()]
    try:
        with whole(destination) as part:
            with opener.open(url, timeout=60) as response, part.open("xb") as file:
                digest = _copy(response, file, url, max_bytes)
            if digest != sha256:
                raise DataError(f"{url}: its sha256 is {digest}, expected {sha256}")
    except (OSError, HTTPException) as error:
        if isinstance(error, HTTPError):
            error.close()
        raise DataError(f"{url}: the download to {destination} failed ({error})") from error
    finally:
        for folder in made:  # innermost first; a folder that now holds the file stays
            with suppress(OSError):
                folder.rmdir()
    return destination


def _copy(response: Any, file: IO[bytes], url: str, max_bytes: int) -> str:
    """Copy a response to a file, at most max_bytes of it, and return its sha256."""
    digest, size = hashlib.sha256(), 0
    while chunk := response.read(CHUNK):
        size += len(chunk)
        if size > max_bytes:
            raise DataError(f"{url}: longer than the {max_bytes:,} bytes that it may have")
        digest.update(chunk)
        file.write(chunk)
    file.flush()
    os.fsync(file.fileno())
    return digest.hexdigest()
