"""Kubernetes quantities ("1500m", "2Gi", "1e3") as exact integers.

Decided here: how a quantity string becomes an integer and which way it rounds (always up, as the API server and the
scheduler of Kubernetes do). Nothing here knows which resource is meant except that cpu counts in thousandths.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_PATTERN = re.compile(r"^([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([eE][+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)$")
_SUFFIX: dict[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
MAX_AMOUNT = 2**56
"""Largest amount that is kept (64 Pi); larger ones are clamped so that the sum of a node's pods stays inside int64."""
MAX_SHOWN = 2**63 - 1
"""Largest number in a verdict; a sum of amounts that reaches it was cut, and is shown as "at least"."""


class BadQuantity(ValueError):
    """A quantity that Kubernetes would not parse; the message names the text."""


def parse_quantity(text: str | int | float) -> Fraction:
    """Return the exact value of a quantity in its base unit.

    Raises `BadQuantity` when the text is not a quantity. Negative values parse; callers decide what they mean.
    """
    raw = str(text).strip()
    match = _PATTERN.match(raw)
    if match is None:
        raise BadQuantity(f"{raw!r} is not a quantity")
    sign, digits, exponent, suffix = match.groups()
    if exponent and abs(int(exponent[1:])) > 30:
        raise BadQuantity(f"{raw!r} is not a quantity: exponent out of range")
    value = Fraction(digits if not digits.endswith(".") else digits[:-1])
    value *= Fraction(10) ** int(exponent[1:]) if exponent else _SUFFIX[suffix or ""]
    return -value if sign == "-" else value


@lru_cache(maxsize=65536)
def _amount(resource: str, text: str) -> int:
    return max(-MAX_AMOUNT, min(MAX_AMOUNT, scaled(resource, parse_quantity(text))))


def amount(resource: str, text: str | int | float) -> int:
    """Return a quantity as the integer in which `resource` is counted: cpu in millicores, all others in base units.

    Rounds up; what exceeds `MAX_AMOUNT` is clamped. Raises `BadQuantity`.
    """
    return _amount(resource, str(text))


def scaled(resource: str, value: Fraction) -> int:
    """Return an exact value, rounded up, in the units in which `resource` is counted; it may exceed `MAX_AMOUNT`."""
    value = value * 1000 if resource == "cpu" else value
    return -((-value.numerator) // value.denominator)


def too_much(resource: str) -> str:
    """Return what is wrong with an amount above `MAX_AMOUNT`: "more than 64Pi, the most that is counted"."""
    most = format_amount(resource, MAX_AMOUNT) if resource == "cpu" else "64Pi"
    return f"more than {most}, the most that is counted"


_BINARY = (("Ei", 2**60), ("Pi", 2**50), ("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def format_amount(resource: str, value: int) -> str:
    """Return an amount as a person writes it: millicores as "1500m" or "2", bytes as "4Gi", counts as "8"."""
    if resource == "cpu":
        return str(value // 1000) if value % 1000 == 0 else f"{value}m"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for suffix, size in _BINARY:
            if value and value % size == 0:
                return f"{value // size}{suffix}"
        for suffix, size in _BINARY:
            if abs(value) >= size:
                return f"{value / size:.1f}{suffix}"
    return str(value)
