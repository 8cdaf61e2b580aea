"""Muster: a gang scheduler that decides quota, placement and time at once.

Imports nothing, so that `muster --help` starts fast.
"""

__version__ = "0.1.0"
