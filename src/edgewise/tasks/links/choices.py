"""Choices to learn from: of generated users whose tastes are known, and of your own in a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from edgewise.data.columns import dates_of
from edgewise.data.dialect import numbers_of
from edgewise.data.splits import Split
from edgewise.data.table import Called, read_table
from edgewise.errors import ConfigError, DataError, counted
from edgewise.tasks.links.recommendation import Choices, Recommendation, latest

NAMES = {
    "user": ("user", "user_id", "userid", "customer", "customer_id", "session", "session_id"),
    "item": ("item", "item_id", "itemid", "movie_id", "movieid", "product", "product_id", "article_id"),
    "rating": ("rating", "stars", "score"),
    "time": ("time", "timestamp", "date", "datetime", "unix_timestamp"),
}


def tastes(
    users: int = 600,
    items: int = 400,
    genres: int = 8,
    choices: int = 20,
    width: int = 32,
    k: int = 20,
    negatives: int = 4,
    generated: int = 0,
) -> Recommendation:
    """Recommend items to generated users whose tastes are known: what each chooses next, among genres and hits.

    An item has a genre and a popularity, 1 over its rank in a drawn order. A user likes few of the genres: shares that
    are drawn from a Dirichlet distribution of parameter 0.3. `choices` different items are drawn one after the other,
    with probabilities in proportion to the share of their genre times their popularity. Of each user's choices the
    latest tenth tests, the tenth before chooses the weights, and all earlier ones train.

    Args:
        users: How many users.
        items: How many items.
        genres: How many genres, which no model is told.
        choices: How many items each user chooses.
        width: Channels of an embedding.
        k: Length of the lists that are scored.
        negatives: Items to draw beside each choice.
        generated: Seed of the generator.

    Example
        >>> tastes(users=50, items=60).contents
        '50 users, 60 items'
    """
    if min(users, genres) < 1 or choices < 3 or items < 2 * max(choices, genres):
        raise ConfigError("a user, a genre, 3 choices of each user and twice as many items as choices are the least")
    draw = torch.Generator().manual_seed(generated)
    genre = torch.arange(items) % genres
    popularity = 1.0 / (1 + torch.randperm(items, generator=draw))
    gamma = np.random.default_rng(generated).gamma(0.3, size=(users, genres))
    shares = torch.from_numpy(gamma / gamma.sum(1, keepdims=True)).float()
    truth = (shares + 1e-3)[:, genre] * popularity
    chosen = torch.multinomial(truth, choices, generator=draw)
    user = torch.arange(users).repeat_interleave(choices)
    pairs = torch.stack([user, chosen.flatten()], 1)
    splits = _cut(pairs, torch.arange(choices).repeat(users).double(), draw)
    names = tuple(tuple(f"{what} {n}" for n in range(count)) for what, count in (("user", users), ("item", items)))
    task = Recommendation("tastes", Choices(names[0], names[1], splits), width, k, negatives)
    task.truth = truth.double()
    return task


def own_choices(
    file: str = "choices.csv",
    width: int = 64,
    k: int = 20,
    negatives: int = 4,
    least: float = 0.0,
    columns: str = "",
    fold: int = 0,
) -> Recommendation:
    """Recommend items to your own users, from a table of ratings, clicks or purchases.

    Each line is a choice: a user and an item, and where there are such columns a rating and a time. Of each user's
    choices the latest tenth tests, the tenth before chooses the weights, and all earlier ones train; without times the
    order is drawn. An item that a user chose twice counts once, at the first time. Users of fewer than three choices
    only train.

    Args:
        file: The table, .csv, .tsv or .parquet, with columns named user and item, and maybe rating and time, or much
            like that (user_id, movieId, timestamp).
        width: Channels of an embedding.
        k: Length of the lists that are scored.
        negatives: Items to draw beside each choice.
        least: A line with a lower rating is no choice.
        columns: The columns of user, item, rating and time, with commas between them, where they have other names;
            an empty one is not read, as in "who,what,,when".
        fold: Seed of the drawn order.

    Errors      a file that is missing, malformed or longer than 256 MB, columns that are not found, a line of another
                length or without a user or an item, one that is 3 in a line and 3.0 in another, a rating that is no
                number or a time that is none: `DataError`
    """
    path = Path(file).expanduser()
    table = read_table(path)
    found = _columns(path, table.header, columns)
    users, items = (table.names(found[what]) for what in ("user", "item"))
    for what, cells in (("user", users), ("item", items)):
        if "" in cells:
            raise DataError(f"{table.at(cells.index(''))}: there is no {what} in {found[what]!r}")
    time = np.zeros(len(users))
    if "time" in found:
        time = np.array(_times(table.texts(found["time"]), f"{path}: {found['time']}"))
        if bool(np.isnan(time).any()):
            first = int(np.isnan(time).argmax())
            shown = table.texts(found["time"])[first][:40]
            raise DataError(f"{table.at(first)}: {found['time']} is {shown!r}, no number and no date as 2024-12-31")
    rated = table.numbers(found["rating"]) >= least if "rating" in found else np.ones(len(users), dtype=bool)
    if "rating" not in found and least > 0:
        raise DataError(
            f"{path}: task.least={least:g} needs a column of ratings, and none was found: name it in columns"
        )
    order = [row for row in np.argsort(time, kind="stable").tolist() if rated[row]]
    numbers: tuple[dict[str, int], dict[str, int]] = {}, {}
    once = {
        (numbers[0].setdefault(users[row], len(numbers[0])), numbers[1].setdefault(items[row], len(numbers[1]))): row
        for row in reversed(order)
    }
    if not once:
        raise DataError(
            f"{path}: no line has a rating of at least {least:g}" if len(users) else f"{path}: it has no lines"
        )
    for what, known, cells in zip(("user", "item"), numbers, (users, items), strict=True):
        for name in known:
            if name.endswith(".0") and (plain := name.removesuffix(".0")).isdecimal() and plain in known:
                both = f"{found[what]} is {name[:40]!r}, and {plain[:40]!r} elsewhere"
                raise DataError(f"{table.at(cells.index(name))}: {both}: write the same {what} in the same way")
    pairs, when = torch.tensor(list(once)), torch.from_numpy(time[list(once.values())])
    splits = _cut(pairs, when, torch.Generator().manual_seed(fold))
    task = Recommendation(path.stem, Choices(tuple(numbers[0]), tuple(numbers[1]), splits), width, k, negatives)
    left = len(users) - len(once)
    low = f", or rated below {least:g}" if "rating" in found else ""
    said = (f"{counted(left, 'line')} left out: choices that are there already{low}",) if left else ()
    others = [name for name in table.header if name and name not in found.values()]
    unread = (f"not read: the columns {', '.join(others)}",) if others else ()
    task.summary = (task.describe(), *said, *unread, *table.notes)
    return task


def _cut(pairs: Tensor, time: Tensor, draw: torch.Generator) -> dict[Split, Tensor]:
    return {split: pairs[rows] for split, rows in latest(pairs[:, 0], time, draw).items()}


def _columns(path: Path, names: Sequence[str], given: str) -> dict[str, str]:
    """Which column is what: those that are named, or found by their names."""
    if given.strip():
        parts = [part.strip() for part in given.split(",")]
        chosen = {what: name for what, name in zip(NAMES, parts, strict=False) if name}
        if len(parts) > len(NAMES) or any(name not in names for name in chosen.values()):
            right = f"should name user, item, rating and time of {', '.join(names)}"
            raise DataError(f"{path}: --task.columns {given!r} {right}")
    else:
        called = Called(path, names)
        known_as = {what: next(filter(called.__contains__, known), "") for what, known in NAMES.items()}
        chosen = {what: called[name] for what, name in known_as.items() if name}
    for what in ("user", "item"):
        if what not in chosen:
            own = f"its columns are {', '.join(names)}: name them, as --task.columns who,what,stars,when"
            raise DataError(f"{path}: no column of {what}s was found; {own}")
    return chosen


def _times(cells: list[str], where: str) -> list[float]:
    """Numbers, or days since 1970 of dates: what most of them are; NaN for what is none."""
    numbers = numbers_of(cells).tolist()
    return numbers if 2 * sum(number == number for number in numbers) > len(numbers) else dates_of(cells, where)
