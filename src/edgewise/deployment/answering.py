"""From raw rows to named answers, by an exported file alone: what the script beside it runs, without Edgewise.

Its functions take `call`, which computes arrays by name of arrays by name, and `about`, what the file says of itself.
"""

import csv
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy

from edgewise.data.words import BOOLEAN, ENDS, MISSING, SLASHED, day_of, tfidf
from edgewise.graphs.make.periodic import images_within, unwrapped
from edgewise.tasks.graphs.atoms import atom_features, bond_features
from edgewise.tasks.images.pixels import pixels_of
from edgewise.tasks.particles.films import Film, film_of, films_in

Row = dict[str, Any]
Array = Any
Call = Callable[[dict[str, Array]], dict[str, Array]]

AT_ONCE = 64  # examples of a call


def text_of(cell: Any) -> str:
    """A cell as a table has it: a whole number has no point."""
    if cell is None or cell != cell:
        return ""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell).strip()


def table_of(path: Path) -> list[Row]:
    """The rows of a CSV or TSV file, of a JSON list or of JSON lines, in UTF-8; numbers have decimal points."""
    content = path.read_text(encoding="utf-8-sig")
    lines = content.splitlines(keepends=True)
    if path.suffix.lower() in (".json", ".jsonl"):
        rows: list[Row] = json.loads(content) if path.suffix.lower() == ".json" else [*map(json.loads, lines)]
        return rows
    separator = "\t" if path.suffix.lower() == ".tsv" else max(",;\t|", key=lines[0].count)
    head, *body = (row for row in csv.reader(lines, delimiter=separator) if row)
    return [{name.strip(): cell.strip() for name, cell in zip(head, row, strict=False)} for row in body]


def find(folder: Path, name: str) -> list[Path]:
    """name.csv, name.tsv or name.jsonl, and files whose name begins so, as edges-friends.csv."""
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".csv", ".tsv", ".jsonl"))
    return [
        path for path in files if path.stem.lower() == name or path.stem.lower().startswith((f"{name}-", f"{name}_"))
    ]


def the(folder: Path, name: str) -> Path:
    """The one table of that name."""
    files = find(folder, name)
    if not files:
        raise ValueError(f"{folder}: it has no {name}.csv")
    return files[0]


def check(wrong: Sequence[str]) -> None:
    """Raise a ValueError with all that is wrong."""
    if wrong:
        more = [f"and {len(wrong) - 20:,} more"] if len(wrong) > 20 else []
        raise ValueError("\n".join([*wrong[:20], *more]))


def number_of(text: str, kind: str) -> float:
    """A number, a truth value, or the days from 1970 to a date such as 2024-12-31 or 31.12.2024."""
    if kind == "date":  # of 3/4/2024 nothing says which is the day
        return math.nan if SLASHED.fullmatch(text) else day_of(text, False)
    value = BOOLEAN[text.lower()] if kind == "boolean" and text.lower() in BOOLEAN else float(text)
    return value if kind == "number" or value in (0, 1) else math.nan


def encoded(rows: Sequence[Row], columns: Any) -> Array:
    """The features of rows, [N, C] in float32, each column as the model was trained with it; 1 where there are none."""
    parts, wrong = [numpy.zeros((len(rows), 0)) if columns else numpy.ones((len(rows), 1))], []
    for column in columns:
        name, kind = column["name"], column["kind"]
        if rows and not any(name in row for row in rows):
            raise ValueError(f"there is no column {name!r}: the rows have {', '.join(map(repr, rows[0]))}")
        texts = [text_of(row.get(name)) for row in rows]
        if kind == "category":
            levels = column.get("levels", [])
            parts.append(numpy.array([[text == level for level in levels] for text in texts]).reshape(-1, len(levels)))
            continue
        if kind == "text":
            given = ["" if text.lower() in MISSING else text for text in texts]
            parts.append(tfidf(given, column.get("levels", []), column.get("weights", [])))
            continue
        values, missing = numpy.zeros(len(rows)), numpy.array([text.lower() in MISSING for text in texts], dtype=bool)
        for number, text in enumerate(texts):
            try:
                values[number] = column["fill"] if missing[number] else number_of(text, kind)
            except ValueError:
                values[number] = math.nan
            if not math.isfinite(values[number]):
                wrong.append(f"row {number}: {name} is {text!r}, which is no {kind}")
        scaled = (values - column["shift"]) / column["deviation"]
        parts.append(numpy.stack([scaled, missing] if column["flagged"] else [scaled], 1))
    check(wrong)
    return numpy.concatenate(parts, 1).astype("float32")


def joined(edges: Array, e: Array, nodes: int, rows: Row) -> tuple[Array, Array]:
    """The edges that a model reads of those that are given, and their features; of none each pair of nodes is once."""
    both, codes = rows["both_ways"], edges[0] * nodes + edges[1]
    if e is not None and rows["parallel"] == "keep":
        alone = ~numpy.isin(edges[1] * nodes + edges[0], codes) if both else numpy.zeros(len(codes), dtype=bool)
        return numpy.concatenate([edges, edges[::-1, alone]], 1), numpy.concatenate([e, e[alone]])
    if e is None and not both:
        return edges, None
    if both:
        edges, e = numpy.concatenate([edges, edges[::-1]], 1), e if e is None else numpy.tile(e, (2, 1))
    keys, of = numpy.unique(edges[0] * nodes + edges[1], return_inverse=True)
    pairs = numpy.stack([keys // max(1, nodes), keys % max(1, nodes)])
    if e is None:
        return pairs, None
    sums = numpy.zeros((len(keys), e.shape[1]))
    numpy.add.at(sums, of.reshape(-1), e)
    return pairs, (sums / numpy.bincount(of.reshape(-1), minlength=len(keys))[:, None]).astype("float32")


def graphs_of(given: Path, rows: Row) -> Iterator[Row]:
    """The graphs of a folder of tables, or of a JSON file: {"name", "nodes": [row, ...], "edges": [row, ...]}, each
    edge with the numbers of its "ends"."""
    found, unit = rows["found"], rows["unit"]
    node, group = found.get("node", ""), found.get("group", "")
    if given.is_file() and given.suffix.lower() == ".json":
        content = json.loads(given.read_text(encoding="utf-8"))
        made = [
            {"name": str(number), "edges": [], **graph, "nodes": graph.get("nodes", graph.get("points"))}
            for number, graph in enumerate([content] if isinstance(content, dict) else content)
        ]
        placed = {
            (number, text_of(row.get(node, own))): own
            for number, graph in enumerate(made)
            for own, row in enumerate(graph["nodes"])
        }
        names = [column["name"] for column in rows.get("edge_columns") or ()]
        for number, graph in enumerate(made):
            edges = []
            for edge in graph["edges"]:  # an object, or both ends and then features
                row = edge if isinstance(edge, dict) else dict(zip(["sender", "receiver", *names], edge, strict=False))
                ends = [text_of(row[end]) for end in ends_in(row, found if row is edge else {})]
                if lacking := [end for end in ends if (number, end) not in placed]:
                    raise ValueError(f"graph {graph['name']}: there is no node {lacking[0]!r}")
                edges.append({**row, "ends": [placed[number, end] for end in ends]})
            yield {**graph, "edges": edges}
        return
    folder = given if given.is_dir() else given.parent
    own_name, members = found.get("id", ""), "nodes" if unit != "cloud" else "points"
    examples = table_of(the(folder, f"{unit}s")) if unit != "node" else [{}]
    graphs: dict[str, Row] = {
        row[own_name] if own_name else str(number): {"nodes": [], "edges": []} for number, row in enumerate(examples)
    }
    place: dict[Any, Any] = {}  # of a node's name, with that of its graph or alone
    for number, row in enumerate(table_of(the(folder, members))):
        name = row[group] if group else "0"
        own, graph = len(graphs[name]["nodes"]), graphs[name]
        if (name, row[node] if node else own) in place:
            continue  # the same row again
        place[name, row[node] if node else str(own)] = place[row[node] if node else str(number)] = graph, own
        graph["nodes"].append(row)
    for path in find(folder, "edges"):
        for row in table_of(path):
            ends = [row[end] for end in ends_in(row, found)]
            keys = [(row[group], end) if group in row else end for end in ends]
            if lacking := [end for key, end in zip(keys, ends, strict=True) if key not in place]:
                raise ValueError(f"{path}: there is no node {lacking[0]!r}")
            graph = place[keys[0]][0]
            graph["edges"].append({"relation": path.stem, **row, "ends": [place[key][1] for key in keys]})
    for name, graph in graphs.items():
        yield {"name": name, **graph}


def ends_in(row: Row, found: Row) -> list[str]:
    """The columns of an edge that name its two nodes."""
    lower = {name.lower(): name for name in row}
    pairs: list[list[Any]] = [
        [found.get("sender"), found.get("receiver")],
        *map(list, ENDS),
    ]
    for pair in pairs:
        if all(end and end.lower() in lower for end in pair):
            return [lower[end.lower()] for end in pair]
    raise ValueError(
        f"an edge has {', '.join(row)}: expected {' and '.join(filter(None, pairs[0])) or 'sender and receiver'}"
    )


def graph_arrays(graph: Row, rows: Row) -> dict[str, Array]:
    """The inputs of a model of one graph."""
    nodes, edges = len(graph["nodes"]), numpy.array([one["ends"] for one in graph["edges"]], "int64").reshape(-1, 2).T
    degree = {"log(1 + degree)": numpy.log1p(numpy.bincount(edges.reshape(-1), minlength=nodes))}
    known = [{**row, **{name: values[n] for name, values in degree.items()}} for n, row in enumerate(graph["nodes"])]
    x, e = encoded(known, rows["columns"]), None
    if rows["edge_columns"]:
        e = encoded(graph["edges"], rows["edge_columns"])
    edges, e = joined(edges, e, nodes, rows)
    return {"x": x, "edge_index": edges, **({} if e is None else {"edge_attr": e})}


def nearest(points: Array, count: int) -> Array:
    """Edges [2, N k] to each point from the k nearest others; of equally near ones the first."""
    k, made = min(count, len(points) - 1), []
    for first in range(0, len(points), 256):
        some = points[first : first + 256]
        distance = numpy.square(some[:, None] - points).sum(-1)
        distance[numpy.arange(len(some)), numpy.arange(first, first + len(some))] = numpy.inf
        made.append(distance.argsort(1, kind="stable")[:, :k])
    senders = numpy.concatenate(made)
    return numpy.stack([senders.reshape(-1), numpy.repeat(numpy.arange(len(points)), k)]).astype("int64")


def clouds_of(given: Path, rows: Row) -> Iterator[tuple[Row, dict[str, Array]]]:
    """The clouds of a place, each with the inputs of a model."""
    if given.is_dir() and not find(given, "clouds"):
        files = sorted(path for path in given.rglob("*") if path.suffix.lower() in (".csv", ".tsv"))
        clouds: Iterable[Row] = (
            {"name": path.relative_to(given).as_posix(), "nodes": table_of(path)} for path in files
        )
    elif given.suffix.lower() in (".csv", ".tsv"):
        clouds = [{"name": given.name, "nodes": table_of(given)}]
    else:
        clouds = graphs_of(given, rows)
    axes = [column["name"] for column in rows["columns"][: int(rows["found"]["axes"])]]
    for cloud in clouds:
        position = numpy.array([[float(row[axis]) for axis in axes] for row in cloud["nodes"]])
        position = position - position.mean(0)
        placed = [dict(zip(axes, own, strict=True)) for own in position.tolist()]
        points = [{**row, **own} for row, own in zip(cloud["nodes"], placed, strict=True)]
        x, edges = encoded(points, rows["columns"]), nearest(position, rows["neighbors"])
        yield {"cloud": cloud["name"]}, {"x": x, "edge_index": edges}


def molecules_of(given: Path, rows: Row) -> Iterator[tuple[Row, dict[str, Array]]]:
    """Molecules of a table of SMILES, by RDKit."""
    from rdkit import Chem

    wrong = []
    for number, row in enumerate(requests_in(given, rows["found"]["smiles"])):
        smiles = row[rows["found"]["smiles"]].strip()
        read = Chem.MolFromSmiles(smiles)
        if read is None or not read.GetNumAtoms():
            wrong.append(f"row {number}: {smiles!r} is no molecule in SMILES")
            continue
        ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in read.GetBonds()]
        edges = numpy.array(ends, "int64").reshape(-1, 2).T
        arrays = {"x": numpy.array([atom_features(atom) for atom in read.GetAtoms()], "float32")}
        arrays["edge_index"] = numpy.concatenate([edges, edges[::-1]], 1)
        if rows["edge_columns"]:
            bonds = numpy.array([bond_features(bond) for bond in read.GetBonds()], "float32")
            arrays["edge_attr"] = numpy.concatenate([bonds, bonds]).reshape(-1, len(rows["edge_columns"]))
        yield {"molecule": row.get(rows["found"].get("id"), str(number)), "smiles": smiles}, arrays
    check(wrong)


def texts_of(given: Path, rows: Row, tokenizer: Any) -> Iterator[tuple[Row, dict[str, Array]]]:
    """Texts of a table, by the library tokenizers."""
    wrong = []
    for number, row in enumerate(requests_in(given, rows["found"]["text"])):
        text = row[rows["found"]["text"]].strip()
        tokens = tokenizer.encode(text.lower() if rows["lowercase"] else text).ids
        if len(tokens) > rows["length"]:
            if not rows["truncate"]:
                wrong.append(f"row {number}: a text of {len(tokens):,} tokens, of at most {rows['length']:,}")
                continue
            tokens = [*tokens[: rows["length"] - 1], tokens[-1]]
        name = row.get(rows["found"].get("id"), str(number))
        yield {"text": name, "input": text}, {"tokens": numpy.array(tokens, "int64")}
    check(wrong)


def images_of(given: Path, rows: Row, name: str) -> Iterator[tuple[Row, dict[str, Array]]]:
    """Pictures of a folder, by Pillow, which are read as the input `name`."""
    from PIL import Image

    files = [given] if given.is_file() else sorted(given.rglob("*"))
    for path in (path for path in files if path.suffix.lower() in rows["endings"]):
        with Image.open(path) as opened:
            pixels = pixels_of(opened, rows["colour"], rows["size"])
        called = path.relative_to(given).as_posix() if given.is_dir() else path.name
        yield {"image": called}, {name: pixels.astype("float32")[None]}


def requests_in(given: Path, column: str = "input") -> list[Row]:
    """The rows of a table, or the lines of a text, each as a row with one column."""
    if given.suffix.lower() == ".txt":
        lines = given.read_text(encoding="utf-8-sig").splitlines()
        return [{column: line} for line in lines]
    rows = table_of(given)
    return [{column: next(iter(row.values()))} if len(row) == 1 else row for row in rows]


def together(parts: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """The inputs of several graphs as one, side by side."""
    sizes = numpy.array([len(part["tokens" if "tokens" in part else "x"]) for part in parts], "int64")
    first = numpy.cumsum(sizes) - sizes
    joined = {name: numpy.concatenate([part[name] for part in parts]) for name in parts[0] if name != "edge_index"}
    if "edge_index" in parts[0]:
        joined["edge_index"] = numpy.concatenate(
            [part["edge_index"] + n for part, n in zip(parts, first, strict=True)], 1
        )
    return {**joined, "sizes": sizes}


def softmax(scores: Array) -> Array:
    """Probabilities of scores along the last axis, in float64."""
    powers = numpy.exp(scores.astype("float64") - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def named(y: Array, targets: Sequence[Row]) -> Row:
    """What the outputs of one example say, of several targets each by its name."""
    made, first = {}, 0
    for target in targets:
        classes = target.get("classes") or []
        part = y[first : first + max(1, len(classes))]
        first += max(1, len(classes))
        if classes:
            p = softmax(part)
            best = int(p[1] > target["threshold"]) if "threshold" in target else int(p.argmax())
            own = {"class": classes[best], "probabilities": dict(zip(classes, p.tolist(), strict=True))}
        else:
            value, half = float(part[0]), target.get("half")
            own = {"value": value} if half is None else {"value": value, "low": value - half, "high": value + half}
        made[target["name"]] = own
    return made if len(made) > 1 else own


def examples(call: Call, about: Row, given: Path, completed: Any) -> Iterator[Row]:
    """Answers for graphs, molecules, texts, images and clouds, some at a time."""
    rows, targets = about["preprocessing"]["rows"], about["preprocessing"]["targets"]
    read: dict[str, Any] = {
        "graphs": lambda: (({"graph": graph["name"]}, graph_arrays(graph, rows)) for graph in graphs_of(given, rows)),
        "clouds": lambda: clouds_of(given, rows),
        "molecules": lambda: molecules_of(given, rows),
        "texts": lambda: texts_of(given, rows, tokenizer_of(about)),
        "images": lambda: images_of(given, rows, "pixels" if "pixels" in about["inputs"] else "colours"),
    }
    stream: Iterator[tuple[Row, dict[str, Array]]] = iter(read[rows["kind"]]())
    images = rows["kind"] == "images"
    count = AT_ONCE if images or "sizes" in about["inputs"] else 1
    while part := [*islice(stream, count)]:
        arrays = [one for _, one in part]
        joined = {n: numpy.concatenate([one[n] for one in arrays]) for n in arrays[0]} if images else together(arrays)
        y = call(completed(joined))["y"].reshape(len(part), -1)
        yield from ({**known, **named(own, targets)} for (known, _), own in zip(part, y, strict=True))


def nodes(call: Call, about: Row, given: Path, completed: Any) -> Iterator[Row]:
    """Answers for all nodes of a graph."""
    rows = about["preprocessing"]["rows"]
    arrays = given / "graph.npz" if given.is_dir() else given
    if arrays.suffix == ".npz" and arrays.is_file():
        content = numpy.load(arrays)
        x, edges, e = content["x"].astype("float32"), content["edge_index"], content.get("edge_attr")
        edges, e = joined(edges, e if e is None else e.astype("float32"), len(x), rows)
        names: Any = range(len(x))
        inputs = {"x": x, "edge_index": edges, **({} if e is None else {"edge_attr": e})}
    else:
        (graph,) = graphs_of(given, rows)
        node = rows["found"].get("node")
        names = [row[node] if node else n for n, row in enumerate(graph["nodes"])]
        inputs = graph_arrays(graph, rows)
    for name, y in zip(names, call(completed(inputs))["y"], strict=True):
        yield {"node": name, **named(y, about["preprocessing"]["targets"])}


def atoms_of(given: Path) -> Iterator[tuple[str, Any]]:
    """The frames of extended XYZ, of a folder of such files, or of JSON's objects, by name, as ASE's `Atoms`."""
    from ase import Atoms
    from ase.io import iread

    if given.suffix.lower() in (".json", ".jsonl"):
        content = table_of(given)
        for number, row in enumerate([content] if isinstance(content, dict) else content):
            known = ("symbols", "numbers", "positions", "cell", "pbc")
            yield str(number), Atoms(**{name: row[name] for name in known if name in row})
        return
    inside = sorted(given.iterdir()) if given.is_dir() else [given]
    files = [path for path in inside if path.suffix.lower() in (".xyz", ".extxyz")]
    if not files:
        raise ValueError("it has no frames in files that end with .xyz or .extxyz")
    for path in files:
        for number, atoms in enumerate(iread(path, format="extxyz")):
            yield f"{path.name} {number}" if len(files) > 1 else str(number), atoms


def frames(call: Call, about: Row, given: Path, completed: Any) -> Iterator[Row]:
    """The energy (eV) of each frame and the forces (eV/Å) on its atoms, whose neighbours ASE finds."""
    from ase.neighborlist import neighbor_list

    rows = about["preprocessing"]["rows"]
    for name, atoms in atoms_of(given):
        if strange := sorted({*atoms.symbols} - {*rows["elements"]}):
            known = ", ".join(rows["elements"])
            raise ValueError(f"frame {name}: {', '.join(strange)}: the frames that trained have {known}")
        cell, periodic = numpy.asarray(atoms.cell), atoms.pbc
        if not (numpy.isfinite(atoms.positions).all() and numpy.isfinite(cell).all()):
            raise ValueError(f"frame {name}: positions and the cell must be finite numbers")
        i, j, n = neighbor_list("ijS", atoms, rows["radius"])
        x = atoms.positions - atoms.positions.mean(0)
        arrays = {"x": atoms.numbers[:, None].astype("int64"), "positions": x.astype("float32")}
        edges = numpy.stack([j, i]).astype("int64")
        if "edge_attr" in about["inputs"]:  # the images of atoms, each by itself
            arrays |= {"edge_index": edges, "edge_attr": (n @ cell).astype("float32")}
        else:  # the nearest image, in a box along the axes
            box, least = numpy.where(periodic, cell.diagonal(), 0.0), 2 * rows["radius"]
            right = (
                f"in a box along the axes, above {least:g} Å wide," if "cell" in about["inputs"] else "in open space"
            )
            along = numpy.allclose(cell[periodic], numpy.diag(box)[periodic]) and (box[periodic] > least).all()
            if periodic.any() and not ("cell" in about["inputs"] and along):
                raise ValueError(f"frame {name}: this file reads atoms {right} not in the cell {cell.tolist()}")
            arrays |= {"edge_index": edges, "cell": numpy.tile(box, (len(x), 1)).astype("float32")}
        made = call(completed(arrays))
        energy = float(made["y"].sum(dtype="float64"))
        yield {"frame": name, "energy": energy, "forces": made["forces"].tolist()}


FILMS = (".npz", ".xyz", ".extxyz", ".csv", ".tsv", ".json", ".jsonl")


def films_of(given: Path, rows: Row) -> Iterator[Film]:
    """The films of a file, or of a folder of files."""
    inside = sorted(given.iterdir()) if given.is_dir() else [given]
    if not (files := [path for path in inside if path.suffix.lower() in FILMS]):
        raise ValueError(f"it has no films in files that end with {', '.join(FILMS)}")
    for path in files:
        yield from (film_of(known, name, rows["box"], rows["periodic"]) for name, known in known_films(path))


def known_films(path: Path) -> Iterator[tuple[str, Row]]:
    """By name what a file says of its films."""
    if path.suffix.lower() == ".npz":
        yield path.stem, dict(numpy.load(path))
        return
    if path.suffix.lower() in (".xyz", ".extxyz"):
        frames = [atoms for _, atoms in atoms_of(path)]
        cells, kinds = [numpy.asarray(one.cell) * one.pbc[:, None] for one in frames], [*frames[0].symbols]
        if not all(numpy.allclose(cell, numpy.diag(cells[0].diagonal())) for cell in cells):
            raise ValueError("a periodic cell must be a box along the axes, the same in each frame")
        if any([*one.symbols] != kinds for one in frames):
            raise ValueError("all frames must have the same atoms")
        edges, along = cells[0].diagonal(), frames[0].pbc
        box = {"box": numpy.where(along, edges, math.inf), "periodic": along} if along.any() else {}
        yield path.stem, {"positions": [one.positions for one in frames], "kinds": kinds, **box}
        return
    table: Any = table_of(path)
    table = [table] if isinstance(table, dict) else table
    if "positions" in table[0]:
        yield from ((str(number), one) for number, one in enumerate(table))
        return
    names = {called.lower(): called for called in table[0]}
    step, particle, kind, film = (
        next((names[one] for one in some.split() if one in names), "")
        for some in ("step frame time t", "particle particle_id id", "kind type", "trajectory")
    )
    if not (step and particle and {"x", "y"} <= {*names}):
        raise ValueError(f"its columns are {', '.join(table[0])}; expected step, particle, x, y")
    when, *x = (
        numpy.array([float(row[names.get(one, one)]) for row in table])
        for one in (step, *(a for a in "xyz" if a in names))
    )
    who, group, what = (numpy.array([text_of(row.get(one)) for row in table]) for one in (particle, film, kind))
    found = films_in(when, who, group, what, numpy.stack(x, 1))
    yield from ((name or path.stem, known) for name, known in found)


def films(call: Call, about: Row, given: Path, completed: Any) -> Iterator[Row]:
    """Where each particle is in the frames that a simulator reads, and will be in those after them."""
    rows, axes = about["preprocessing"]["rows"], about["inputs"]["positions"][-1]
    reach, start, kinds = rows["radius"], rows["history"] + 1, rows["kinds"]
    for film in films_of(given, rows):
        fits = film.positions.shape[2] == axes and (kinds == [""] or {*film.kinds} <= {*kinds})
        if not fits or (film.periodic.any() and not rows["edge_columns"]):
            right = f"{axes} axes, kinds {kinds}, and a periodic box if those that trained had one"
            raise ValueError(f"{film.name}: it is not as those that trained, with {right}")
        if faults := "; ".join(film.faults(start)):
            raise ValueError(f"{film.name}: {faults}")
        levels = [[kind == level for level in kinds if len(kinds) > 1] for kind in film.kinds]
        (low, high), cell = film.walls, numpy.diag(film.period / reach)[film.periodic]
        frames = [*unwrapped(film.positions, film.period)[-start:]]
        for _ in range(rows["steps"]):
            now, moves = frames[-1], numpy.diff(frames[-start:], axis=0)
            i, j, s = images_within(now / reach, 1.0, cell)
            measured = numpy.concatenate([*moves[:-1], now - low, high - now, levels], 1)
            arrays = {"positions": now, "velocities": moves[-1], "x": measured, "edge_attr": reach * s}
            new = call(completed({**arrays, "edge_index": numpy.stack([j, i]).astype("int64")}))["y"]
            frames.append(numpy.where(numpy.isfinite(new), new, now))
        yield from film.rows(numpy.array(frames).tolist())


Ask = Callable[[str], Row]


def numbers_of(names: Sequence[Any], what: str) -> Callable[[str], int]:
    """The number of each name; a ValueError for any other."""
    place = {str(name): number for number, name in enumerate(names)}

    def number_of(name: str) -> int:
        if name not in place:
            raise ValueError(f"there is no {what} {name!r}, such as {names[0]!r}")
        return place[name]

    return number_of


def facts(call: Call, about: Row) -> Ask:
    """The likeliest entities of a query "HEAD, RELATION, ?" or "?, RELATION, TAIL"."""
    rows, known = about["preprocessing"]["rows"], dict[tuple[int, int], set[int]]()
    entity, relation = numbers_of(rows["entities"], "entity"), numbers_of(rows["relations"], "relation")
    for head, kind, tail in rows["known"]:
        known.setdefault((head, kind), set()).add(tail)
        known.setdefault((tail, kind + len(rows["relations"])), set()).add(head)

    def ask(text: str) -> Row:
        parts = [part.strip() for part in text.split("\t" if "\t" in text else ",")]
        if len(parts) != 3 or (parts[0] == "?") == (parts[2] == "?"):
            raise ValueError(f"{text!r} is no query: expected HEAD, RELATION, ? or ?, RELATION, TAIL")
        back = parts[0] == "?"
        query = entity(parts[2 if back else 0]), relation(parts[1]) + len(rows["relations"]) * back
        scores = call({"queries": numpy.array([query], "int64")})["y"][0]
        p, told = softmax(scores), known.get(query, set())
        best = (-scores).argsort(kind="stable")[: rows["shown"]].tolist()
        found = [{"entity": rows["entities"][n], "probability": float(p[n]), "known": n in told} for n in best]
        return {"query": text.strip(), "entities": found}

    return ask


def links(call: Call, about: Row) -> Ask:
    """How likely two nodes are linked, or the likeliest new links of one."""
    rows = about["preprocessing"]["rows"]
    names, known = [str(name) for name in rows["nodes"]], {frozenset(pair) for pair in rows["known"]}
    node = numbers_of(rows["nodes"], "node")

    def ask(text: str) -> Row:
        first, *others = [node(part.strip()) for part in ([text] if text in names else text.split(","))]
        p = 1 / (1 + numpy.exp(-call({"queries": numpy.array([[first]], "int64")})["y"][0].astype("float64")))
        if others:
            told, pair = frozenset((first, others[0])) in known, [rows["nodes"][first], rows["nodes"][others[0]]]
            return {"nodes": pair, "probability": float(p[others[0]]), "training link": told}
        order = (-p).argsort(kind="stable").tolist()
        new = [n for n in order if n != first and frozenset((first, n)) not in known][: rows["shown"]]
        return {
            "node": rows["nodes"][first],
            "links": [{"node": rows["nodes"][n], "probability": float(p[n])} for n in new],
        }

    return ask


def choices(call: Call, about: Row) -> Ask:
    """The items that a user would choose next; of one who is unknown those that most users chose, where it is said."""
    rows = about["preprocessing"]["rows"]
    user, names = numbers_of(rows["users"], "user"), {*rows["users"]}

    def ask(text: str) -> Row:
        if text.strip() not in names and "popular" in rows:
            often = [{"item": rows["items"][n]} for n in rows["popular"]]
            return {"user": text.strip(), "known": False, "items": often}
        number, known = user(text.strip()), {*rows["known"][user(text.strip())]}
        scores = call({"queries": numpy.array([[number]], "int64")})["y"][0]
        best = [n for n in (-scores).argsort(kind="stable").tolist() if n not in known][: rows["shown"]]
        return {"user": text.strip(), "items": [{"item": rows["items"][n], "score": float(scores[n])} for n in best]}

    return ask


def pairs(call: Call, about: Row) -> Ask:
    """The best translation that a search finds: the likeliest targets by log p / ((5 + length) / 6)^penalty."""
    rows, special = about["preprocessing"]["rows"], about["preprocessing"]["special"]
    tokenizer, beam = tokenizer_of(about), rows["beam"]
    spaced = about["preprocessing"]["tokenizer"]["pre_tokenizer"].get("add_prefix_space")

    def ask(text: str) -> Row:
        sentence = text.strip().lower() if rows["lowercase"] else text.strip()
        source = numpy.array([tokenizer.encode(sentence).ids], "int64")
        limit = 2 * source.shape[1] + 10
        beams, done = [(0.0, [special["begin"]])], (-math.inf, [special["end"]])
        for length in range(1, limit + 1):
            target = numpy.array([tokens for _, tokens in beams], "int64")
            logits = call({"source": source.repeat(len(target), 0), "target": target})["y"][:, -1].astype("float64")
            logits -= logits.max(-1, keepdims=True)
            if length == limit:
                logits[:, [n for n in range(logits.shape[1]) if n != special["end"]]] = -math.inf
            sums = numpy.log(numpy.exp(logits).sum(-1, keepdims=True))
            scores = numpy.array([score for score, _ in beams])[:, None] + logits - sums
            order = (-scores.reshape(-1)).argsort(kind="stable")[: 2 * beam].tolist()
            found = [(float(scores.flat[n]), *divmod(n, logits.shape[1])) for n in order]
            ended = [(score, beams[n][1]) for score, n, token in found[:beam] if token == special["end"]]
            done = max([done, *((score / lp(length, rows), [*own, special["end"]]) for score, own in ended)])
            grown = [(score, [*beams[n][1], token]) for score, n, token in found if token != special["end"]]
            beams = [one for one in grown[:beam] if one[0] > -math.inf]
            if not beams or beams[0][0] / lp(limit, rows) <= done[0]:
                break
        written = tokenizer.decode([token for token in done[1] if token not in special.values()])
        return {"source": text, "translation": written.removeprefix(" ") if spaced else written, "score": done[0]}

    return ask


def continued(call: Call, about: Row) -> Ask:
    """The five likeliest tokens after a text, and the text's own mean loss."""
    rows, special = about["preprocessing"]["rows"], {*about["preprocessing"]["special"].values()}
    tokenizer = tokenizer_of(about)

    def ask(text: str) -> Row:
        tokens = tokenizer.encode(text).ids[-rows["length"] :]
        logits = call({"tokens": numpy.array([tokens], "int64")})["y"][0].astype("float64")
        p = numpy.array([softmax(row) for row in logits])
        loss = [-math.log(row[token]) for row, token in zip(p, tokens[1:], strict=False)]
        best = (-p[-1]).argsort(kind="stable")[:5].tolist()
        following = [
            {"token": "" if n in special else tokenizer.decode([n]), "probability": float(p[-1][n])} for n in best
        ]
        mean = sum(loss) / len(loss) if loss else None
        return {"prompt": text, "read": len(tokens), "loss": mean, "next": following}

    return ask


def lp(length: int, rows: Row) -> float:
    """The length penalty of a search."""
    return float(((5 + length) / 6) ** rows["penalty"])


def tokenizer_of(about: Row) -> Any:
    """The file's tokenizer."""
    from tokenizers import Tokenizer

    return Tokenizer.from_str(json.dumps(about["preprocessing"]["tokenizer"]))


def flat(row: Row, prefix: str = "") -> Row:
    """An answer as a row of a table: what is named below a name gets both, and lists are JSON.

    >>> flat({"class": "a", "probabilities": {"a": 0.9, "b": 0.1}, "links": [1, 2]})
    {'class': 'a', 'probabilities.a': 0.9, 'probabilities.b': 0.1, 'links': '[1, 2]'}
    """
    made: Row = {}
    for name, value in row.items():
        if isinstance(value, dict):
            made |= flat(value, f"{prefix}{name}.")
        else:
            listed = isinstance(value, list | tuple)
            made[f"{prefix}{name}"] = json.dumps(value, ensure_ascii=False) if listed else value
    return made


ASKED: dict[str, Callable[[Call, Row], Ask]] = {
    "facts": facts,
    "links": links,
    "choices": choices,
    "pairs": pairs,
    "continued": continued,
}


def answers(call: Call, about: Row, given: Path | str, completed: Any = lambda arrays: arrays) -> Iterator[Row]:
    """What the file says of the rows at a place, one after the other; a ValueError names what cannot be read."""
    kind = about["preprocessing"]["rows"]["kind"]
    if kind not in ASKED:
        yield from {"nodes": nodes, "frames": frames, "films": films}.get(kind, examples)(
            call, about, Path(given), completed
        )
        return
    ask = ASKED[kind](call, about)
    for row in requests_in(Path(given)):  # an empty one keeps its place
        yield {"input": row["input"], **(ask(row["input"]) if row["input"] else {})}


def answer(call: Call, about: Row, arguments: Sequence[str], completed: Any = lambda arrays: arrays) -> None:
    """Print the answers for the rows at a place as JSON, one a line, or write them into a CSV file."""
    rows = []
    try:
        for row in answers(call, about, arguments[0], completed):
            rows.append(flat(row))
            if len(arguments) < 2:
                print(json.dumps(row, ensure_ascii=False))
    except (ValueError, OSError, KeyError, IndexError) as error:
        sys.exit(f"{arguments[0]}: {error}")
    if len(arguments) < 2:
        return
    with Path(arguments[1]).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, dict.fromkeys(name for row in rows for name in row), restval="")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{arguments[1]}: {len(rows)} answers", file=sys.stderr)
