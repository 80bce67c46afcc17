"""Small files that ask for much memory or time, and the largest that a reader takes.

Each case is read in a forked process. `python tests/fuzz/hostile.py [case ...]` says how it ended, with the
bytes of the file, the peak memory of that process in MB and its seconds. The cases of LARGE take minutes.
"""

import gzip
import json
import os
import resource
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

import numpy as np  # noqa: E402

from edgewise.errors import EdgewiseError  # noqa: E402
from fuzz import seeds  # noqa: E402
from fuzz.harnesses import HARNESSES  # noqa: E402
from fuzz.seeds import FOLDS, GRAPHS, NODES, npy, npz, parquet  # noqa: E402

LINES = 4096
# A pickled array of bytes, with gaps for its length and, in place of its values, a number: bytes(n) are n zeros.
ARRAY = (
    b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    b"(K\x01%s\x85cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R\x89%stb."
)


def text_lines(size: int, line: Callable[[int], str]) -> bytes:
    """At least `size` bytes of lines that differ."""
    parts: list[bytes] = []
    number = length = 0
    while length < size:
        parts.append("".join(map(line, range(number, number + LINES))).encode())
        number, length = number + LINES, length + len(parts[-1])
    return b"".join(parts)


def pyramid(width: int, height: int, mpp: float) -> bytes:
    from tempfile import TemporaryDirectory

    from edgewise.tasks.slides.simulator import Level, encoded, write_pyramid

    tiles = list(encoded(np.full((256, 256, 3), (150, 60, 160), dtype=np.uint8)))
    with TemporaryDirectory() as name:
        path = Path(name) / "a.tiff"
        write_pyramid(path, [Level(width, height, tiles * (-(-width // 256) * -(-height // 256)), 1)], mpp)
        return path.read_bytes()


def configured(**options: object) -> bytes:
    return json.dumps(json.loads(seeds.hub()["config.json"]) | options).encode()


def archive(promised: bytes) -> bytes:
    """An array whose header promises another shape."""
    return npy(np.zeros(3)).replace(b"(3,), ", promised)


def enormous_picture() -> bytes:
    """A picture whose header, with its sum, promises 30,000 × 30,000 pixels."""
    chunk = b"IHDR" + struct.pack(">II", 30_000, 30_000) + seeds.png()[24:29]
    return seeds.png()[:12] + chunk + struct.pack(">I", zlib.crc32(chunk)) + seeds.png()[33:]


def matlab_bomb() -> bytes:
    packed = zlib.compress(bytes(1 << 28), 9)
    return b"MATLAB 5.0".ljust(124) + b"\x00\x01IM" + struct.pack("<II", 15, len(packed)) + packed


def long_text() -> bytes:
    import pyarrow as pa

    rows = pa.DictionaryArray.from_arrays(np.zeros(1_000_000, np.int32), ["a" * 1_000_000])
    return parquet("snappy", size=rows, node=rows)


def shared_prefixes() -> bytes:
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    made = io.BytesIO()
    table = pa.table({"size": [1.0] * 300, "node": [f"{'a' * 1_000_000}{n}" for n in range(300)]})
    pq.write_table(table, made, use_dictionary=False, column_encoding={"node": "DELTA_BYTE_ARRAY"})
    return made.getvalue()


def header(length: int, written: int) -> bytes:
    entry = b'"a%07d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},'
    entries = b"".join(entry % number for number in range(written // len(entry % 0)))
    return struct.pack("<Q", length or len(entries) + 1) + b"{" + entries[:-1] + b"}"


# case: the harness, and its hostile bytes. Those of QUICK are small; the others take seconds.
QUICK: dict[str, tuple[str, Callable[[], bytes]]] = {
    "slide: 90,000 microns per pixel": ("slide", lambda: pyramid(1024, 1024, 9e4)),
    "slide: 0.01 microns per pixel": ("slide", lambda: pyramid(4096, 4096, 0.01)),
    "slide: tiles of a pixel": ("slide", lambda: pyramid(256, 256, 31.0)),
    "slide: more tiles than pixels": ("slide", lambda: pyramid(256, 256, 99.0)),
    "slide: four gigapixels, most absent": ("slide", lambda: pyramid(256, 256, 0.5).replace(
        struct.pack("<HHIHH", 256, 4, 1, 256, 0), struct.pack("<HHII", 256, 4, 1, 1 << 31))),
    "slide: enormous tiles": ("slide", lambda: pyramid(256, 256, 0.5).replace(
        struct.pack("<HHIHH", 322, 4, 1, 256, 0), struct.pack("<HHII", 322, 4, 1, 1 << 20))),
    "hub: a billion layers": ("hub-config", lambda: configured(n_layer=10**9)),
    "hub: a vocabulary of 1e12": ("hub-config", lambda: configured(vocab_size=10**12)),
    "hub: a width of 1e9": ("hub-config", lambda: configured(n_embd=10**9)),
    "hub: 1e12 positions": ("hub-config", lambda: configured(n_positions=10**12)),
    "hub: a vocabulary of 5e8": ("hub-config", lambda: configured(vocab_size=5 * 10**8)),
    "hub: numbers beyond 64 bits": ("hub-config", lambda: configured(n_embd=10**30)),
    "hub: a deep index": ("hub-index", lambda: b"[" * 1_000_000),
    "hub: a header of 90 MB": ("hub-weights", lambda: header(90 << 20, 1 << 10)),
    "npz: a promise of terabytes": ("array", lambda: archive(b"(9999999999999,), ")),
    "npy: a promise of terabytes": ("npy", lambda: archive(b"(3,9999999999999), ")),
    "png: thirty thousand rows": ("png", enormous_picture),
    "parquet: texts of a terabyte": ("parquet", long_text),
    "pickle: bytes(1 << 31)": ("pickle", lambda: ARRAY % (b"J\xff\xff\xff\x7f", b"J\xff\xff\xff\x7f")),
    "folds: deep": ("tudataset", lambda: GRAPHS + b"~\n" + b"[" * 1_000_000),
    "tudataset: as many labels as nodes": ("tudataset", lambda: b"~\n".join([
        b"1,1\n", b"".join(b"%d\n" % (1 + n // 1000) for n in range(60_000)), b"1\n2\n" * 30,
        b"".join(b"%d\n" % n for n in range(60_000))])),
    "smiles: a million atoms": ("smiles", lambda: b"C" * 1_000_000),
    "smiles: deep": ("smiles", lambda: b"C(" * 2000 + b"C" + b")" * 2000),
    "yaml: deep": ("yaml", lambda: b"[" * 100_000),
    "yaml: many keys": ("yaml", lambda: text_lines(90_000, "k{}: 1\n".format)),
    "yaml: many values": ("yaml", lambda: b"[" + b"a," * 65_000 + b"]"),
    "yaml: a long number": ("yaml", lambda: b"a: " + b"1:" * 65_000 + b"1"),
}  # fmt: skip
LARGE: dict[str, tuple[str, Callable[[], bytes]]] = {
    "hub: an index of 100 MB": ("hub-index", lambda: b'{"weight_map":{' + b'"a":"b",' * 13_000_000 + b'"a":"b"}}'),
    "hub: an index of the largest size": ("hub-index", lambda: b"[" + b"{}," * 2_790_000 + b"1]"),
    "hub: many empty tensors": ("hub-weights", lambda: header(0, (1 << 22) - 100)),
    "npz: a bomb": ("npz", lambda: npz(edge_index=np.zeros((2, 3), int), x=np.zeros((1 << 26, 1)), labels=[0])),
    "npz: the largest": ("npz", lambda: npz(
        edge_index=np.zeros((2, 3), int), x=np.zeros((1 << 17, 1 << 9), np.uint8), labels=np.zeros(1 << 17, int))),
    "idx: a bomb": ("idx", lambda: gzip.compress(bytes(1 << 28))),
    "idx: the largest": ("idx", lambda: b"\0\0\x08\x03" + struct.pack(">3I", 1 << 13, 127, 127) + bytes(127**2 << 13)),
    "lines: a bomb": ("lines", lambda: gzip.compress(bytes(1 << 28))),
    "lines: the most": ("lines", lambda: gzip.compress(b"\n" * (1 << 25))),
    "csv: a line without end": ("csv", lambda: b"node,size\n" + b"a" * (200 << 20)),
    "csv: commas without end": ("csv", lambda: b"," * (200 << 20)),
    "csv: texts that differ": ("csv", lambda: b"node,size\n" + text_lines(100 << 20, "{},1\n".format)),
    "csv: wide texts": ("csv", lambda: b"node,size\n" + ("a" * 100_000 + "\N{GRINNING FACE},1\n").encode() * 2500),
    "csv: the most numbers": ("nodes", lambda: b"label,x,y\n" + b"a,1,2\n" * (1 << 21) + b"~\nsender,receiver\n0,1\n"),
    "csv: the most edges": ("nodes", lambda: NODES.replace(b"a,b\n", b"a,b\n" * (1 << 23))),
    "parquet: more rows than it may have": ("parquet", lambda: parquet("zstd", size=np.zeros(40_000_000, np.int8))),
    "parquet: the most rows": ("parquet", lambda: parquet("zstd", size=np.zeros(1 << 23), node=np.zeros(1 << 23))),
    "parquet: shared prefixes": ("parquet", shared_prefixes),
    "pickle: dictionaries": ("pickle", lambda: b"\x80\x02" + b"}" * (1 << 24) + b"."),
    "pickle: the most dictionaries": ("pickle", lambda: b"\x80\x02" + b"}" * ((1 << 22) - 3) + b"."),
    "tudataset: the most numbers": ("tudataset", lambda: b"~\n".join([b"1,1\n" * ((1 << 23) - 2), b"1\n", b"1\n"])),
    "tudataset: more numbers": ("tudataset", lambda: b"~\n".join([b"1,1\n" * (1 << 24), b"1\n", b"1\n"])),
    "musk: a bomb": ("musk", matlab_bomb),
    "webkb: the most words": ("webkb", lambda: b"a\n0\t" + b"999," * ((1 << 21) - 9) + b"1\t1\n~\n\n0\t0\n"),
    "molecules: the most": ("molecules", lambda: b"smiles,value\n" + b"C,1\n" * (1 << 24)),
    "text: wide": ("text", lambda: "\N{GRINNING FACE}".encode() + b"a" * ((100 << 20) - 4)),
    "labels: the most": ("labels", lambda: b"slide,label\n" + b"a.tiff,u\n" * 116_000),
    "tokenizer: the most": ("tokenizer", lambda: b'{"level":"bpe","merges":[' + b"{}," * 2_790_000 + b"1]}"),
    "folds: the most": ("tudataset", lambda: GRAPHS + b"~\n[" + b"{}," * 2_790_000 + FOLDS[1:]),
}  # fmt: skip


def attempt(harness: str, content: bytes) -> tuple[str, float, float]:
    """How a reader ends on some bytes in a forked process, its peak memory in MB and its seconds of processor time."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            HARNESSES[harness](content)
            said = "read"
        except EdgewiseError as error:
            said = f"{type(error).__name__}: {error}"
        except BaseException as error:  # a finding
            said = f"RAW {type(error).__name__}: {error}"
        os.write(write, said.encode()[:300])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as said_there:
        _, status, usage = os.wait4(child, 0)
        said = said_there.read().decode("utf-8", "replace")
    return said or f"SIGNAL {status}", usage.ru_maxrss / 1000, usage.ru_utime + usage.ru_stime


def main(cases: list[str]) -> None:
    known = QUICK | LARGE
    for case in cases or known:
        harness, content = known[case]
        made = content()
        said, memory, seconds = attempt(harness, made)
        print(json.dumps([case, said, len(made), round(memory), round(seconds, 1)]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
