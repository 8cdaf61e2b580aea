"""Quantities in canonical form, as the real server stores them ("0.5" becomes "500m", "1024Mi" becomes "1Gi").

Decided here: the canonical text of an amount. It must not know resources. Invariant: the text means the same amount,
rounded up at the ninth decimal.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

from scheduler.model.quantity import BadQuantity, parse_quantity
from scheduler.playground.errors import Undecodable

QUANTITY_TEXT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_EXPONENT = re.compile(r"[eE]([+-]?\d+)$")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_SMALL = ("", "m", "u", "n")
_LARGE = ("", "k", "M", "G", "T", "P", "E")


@lru_cache(maxsize=16384)
def _canonical(text: str) -> str:
    value = parse_quantity(text)
    if value == 0:
        return "0"
    if text.endswith("i") and value.denominator == 1 and abs(value) >= 1024:
        power = 0
        while power < len(_BINARY) - 1 and value.denominator == 1 and value.numerator % 1024 == 0:
            value /= 1024
            power += 1
        return f"{value.numerator}{_BINARY[power]}"
    exponent = bool(_EXPONENT.search(text))
    if value.denominator != 1:
        for power, suffix in enumerate(_SMALL[1:], start=1):
            scaled = value * 1000**power
            if scaled.denominator == 1 or power == len(_SMALL) - 1:
                number = -((-scaled.numerator) // scaled.denominator)
                return f"{number}e-{3 * power}" if exponent else f"{number}{suffix}"
    number, power = value.numerator, 0
    while power < len(_LARGE) - 1 and number % 1000 == 0:
        number //= 1000
        power += 1
    if exponent:
        return f"{number}e{3 * power}" if power else str(number)
    return f"{number}{_LARGE[power]}"


def canonical(text: Any) -> str:
    """Return the canonical text of a quantity; raises `BadQuantity`."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise BadQuantity(str(text))
    return _canonical(str(text))


@lru_cache(maxsize=16384)
def _exact(text: str) -> Fraction:
    return parse_quantity(text)


def exact(text: Any) -> Fraction:
    """Return the exact value of a quantity; raises `BadQuantity`."""
    return _exact(str(text))


def canonicalise(kind: str, version: str, values: Any) -> None:
    """Put a map of quantities into canonical form, in place; 400 as decoding gives it when one is malformed."""
    if values is None:
        return
    if not isinstance(values, dict):
        raise undecodable(kind, version, "json: cannot unmarshal into Go value of type v1.ResourceList")
    for name, value in values.items():
        try:
            values[name] = canonical(value)
        except BadQuantity:
            raise undecodable(kind, version, QUANTITY_TEXT) from None


def undecodable(kind: str, version: str, why: str) -> Exception:
    """Return the 400 of a body that does not decode."""
    return Undecodable(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')
