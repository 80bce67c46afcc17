"""How the pictures of these studies look: curves over a size that doubles, with their names beside them."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator, PercentFormatter

from edgewise.apps.report import figures


def over(axes: Axes, sizes: Sequence[int], xlabel: str, title: str, percent: bool = False) -> None:
    """Axes over sizes on a logarithmic scale; what is measured is a share, or on a logarithmic scale too."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel=xlabel, title=title)
    if percent:
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    else:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color=figures.RULE, linewidth=0.6)
    axes.tick_params(length=0)


def names(figure: Figure) -> None:
    """The names of the curves, each once, right of one panel and below several."""
    found = {name: line for axes in figure.axes for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    if len(figure.axes) == 1:
        figure.legend(found.values(), found, loc="outside right center", frameon=False, labelcolor=figures.MUTED)
    else:
        labels, lines, columns = list(found), list(found.values()), min(len(found), 4)
        figure.legend(lines, labels, loc="outside lower center", ncols=columns, frameon=False, labelcolor=figures.MUTED)
