"""The hint at what somebody may have meant. Decided here: how near a name must be. Imports nothing heavy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(name: str, known: Iterable[str]) -> str:
    """Return a hint at the nearest valid name, or the list of them."""
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f'; did you mean "{close[0]}"?'
    return f"; valid: {', '.join(names)}" if names else "; it takes none"
