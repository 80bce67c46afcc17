"""How numbers are written for people."""


def shown(metric: str, value: float) -> str:
    """A metric's value: a share in percent, a loss with four digits.

    Example:
        >>> shown("accuracy", 0.8154), shown("loss", 1.87654)
        ('81.5 %', '1.8765')
    """
    return f"{100 * value:.1f} %" if metric == "accuracy" else f"{value:.4f}"
