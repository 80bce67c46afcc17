"""How numbers are written for people."""


def shown(metric: str, value: float) -> str:
    """A metric's value: a share in percent, BLEU as it is, a loss with four digits.

    Example:
        >>> shown("accuracy", 0.8154), shown("accuracy toxic", 0.5), shown("loss", 1.87654), shown("bleu", 34.56)
        ('81.5 %', '50.0 %', '1.8765', '34.6')
    """
    if metric == "bleu":
        return f"{value:.1f}"
    return f"{100 * value:.1f} %" if metric.split(" ")[0] == "accuracy" else f"{value:.4f}"
