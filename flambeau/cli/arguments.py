"""Types of command-line arguments; argparse names the function in its complaint."""


def count(text: str) -> int:
    """A whole number of at least one."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def rate(text: str) -> float:
    """A number above zero."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError
    return number
