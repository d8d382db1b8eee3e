"""Hand-made traces with lines."""


def at(line: int) -> str:
    """The range of a line of a program."""
    return f"perfkit:at:/home/u/train.py({line}): main"
