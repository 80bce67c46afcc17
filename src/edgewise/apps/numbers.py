"""How numbers are written for people."""


def shown(metric: str, value: float) -> str:
    """A metric's value: a share in percent, BLEU as it is, a loss with four decimals, four digits if small.

    Example:
        >>> shown("accuracy", 0.8154), shown("accuracy toxic", 0.5), shown("loss", 1.87654), shown("bleu", 34.56)
        ('81.5 %', '50.0 %', '1.8765', '34.6')
        >>> shown("rmse", 3.21e-6), shown("loss", 0.0)
        ('3.21e-06', '0.0000')
    """
    if metric == "bleu":
        return f"{value:.1f}"
    if metric.split(" ")[0] == "accuracy":
        return f"{100 * value:.1f} %"
    return f"{value:.4g}" if 0 < abs(value) < 1e-3 else f"{value:.4f}"
