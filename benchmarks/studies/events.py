"""Does a memory of events read what they were and when? The next choice of many users, whose choices depend on both.

python -m benchmarks.studies.events

Each of 200 users chooses one of 40 items at each step, after one unit of time or after ten. By nine chances in ten the
next item is one that follows from the last: from one table where the last wait was short, from another where it was
long. `EventMemory` reads each choice (the item's vector, and the time since the one before); a linear map of the memory
says which item is next. Steps 0 to 299 train it, six times over; 300 to 399 test it. Beside it: the same without
times; no memory, a vector for each user; and the item that followed most often in training. Three seeds.
"""

from collections.abc import Iterator
from statistics import mean, stdev

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise import Graph
from edgewise.layers import EventMemory

USERS, ITEMS, TRAINED, TESTED, PASSES, WIDTH, SURE = 200, 40, 300, 100, 6, 32, 0.9


def stream(steps: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Items and times [steps, USERS] of all choices."""
    tables = torch.stack([torch.randperm(ITEMS, generator=draw) for _ in range(2)])
    long = torch.randint(2, (steps, USERS), generator=draw)
    items = [torch.randint(ITEMS, (USERS,), generator=draw)]
    for step in range(1, steps):
        follows, other = tables[long[step - 1], items[-1]], torch.randint(ITEMS, (USERS,), generator=draw)
        items.append(torch.where(torch.rand(USERS, generator=draw) < SURE, follows, other))
    return torch.stack(items), (1 + 9 * long).cumsum(0).float()


class NextItem(nn.Module):
    """What each user chooses next, by a memory of choices, or by a vector of the user's own."""

    def __init__(self, remembers: bool, timed: bool) -> None:
        super().__init__()
        self.remembers, self.timed = remembers, timed
        self.items, self.users = nn.Embedding(ITEMS, WIDTH), nn.Embedding(USERS, WIDTH)
        self.memory, self.say = EventMemory(WIDTH, edges=WIDTH), nn.Linear(WIDTH, ITEMS)
        itself = torch.arange(USERS)  # a choice is an event between a user and nobody else
        self.graph = Graph.from_edge_index(torch.stack([itself, itself]), USERS)

    def forward(self, s: Tensor, written: Tensor, items: Tensor, time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits after a choice of each user, and the memory."""
        if not self.remembers:
            return self.say(self.users.weight), s, written
        time = time if self.timed else torch.zeros_like(time)
        s, written = self.memory(self.graph, s, written, time.unsqueeze(-1), self.items(items))
        return self.say(s), s, written


def trained(model: NextItem, items: Tensor, times: Tensor, passes: int) -> float:
    """The share of right answers on the last steps."""
    optimizer, right = torch.optim.Adam(model.parameters(), 0.003), []
    for number in range(passes):
        s, written = torch.zeros(USERS, WIDTH), torch.zeros(USERS, 1)
        for step in range(len(items) - 1):
            logits, s, written = model(s.detach(), written, items[step], times[step])
            if step < len(items) - TESTED:
                optimizer.zero_grad()
                functional.cross_entropy(logits, items[step + 1]).backward()
                optimizer.step()
            elif number == passes - 1:
                right.append((logits.argmax(-1) == items[step + 1]).float().mean())
    return float(torch.stack(right).mean())


def most_frequent(items: Tensor) -> float:
    """That share by the item that followed most often."""
    train = items[: len(items) - TESTED]
    pairs = torch.bincount((train[:-1] * ITEMS + train[1:]).flatten(), minlength=ITEMS**2).view(ITEMS, ITEMS)
    return float((pairs.argmax(-1)[items[-TESTED - 1 : -1]] == items[-TESTED:]).float().mean())


def measure(seeds: int, steps: int, passes: int) -> Iterator[tuple[str, list[float]]]:
    ways = {"memory": (True, True), "memory without times": (True, False), "no memory": (False, False)}
    found: dict[str, list[float]] = {name: [] for name in (*ways, "most frequent follower")}
    for seed in range(seeds):
        items, times = stream(steps + TESTED, torch.Generator().manual_seed(seed))
        for name, way in ways.items():
            torch.manual_seed(seed)
            found[name].append(trained(NextItem(*way), items, times, passes))
        found["most frequent follower"].append(most_frequent(items))
    yield from found.items()


def main(seeds: int = 3, steps: int = TRAINED, passes: int = PASSES) -> None:
    torch.set_num_threads(1)
    print("| method | next items right |\n|---|---|")
    for name, each in measure(seeds, steps, passes):
        print(f"| {name} | {100 * mean(each):.1f} %{f' ± {100 * stdev(each):.1f} %' if len(each) > 1 else ''} |")


if __name__ == "__main__":
    main()
