"""CPU seconds and memory of process trees, and what machine this is: read from /proc.

Decided here: that a process counts with all its living descendants. Knows nothing of Kubernetes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds so far, resident bytes now and at their peak (the sum of the peaks of the processes)."""

    cpu: float = 0.0
    resident: int = 0
    peak: int = 0
    processes: int = 0

    def since(self, before: Usage) -> float:
        """Return the CPU seconds between two readings."""
        return self.cpu - before.cpu


def descendants(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    found, at = [pid], 0
    while at < len(found):
        for task in Path("/proc", str(found[at]), "task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:
                continue  # ended meanwhile
        at += 1
    return found


def of(pids: Iterable[int]) -> Usage:
    """Return what these processes and their descendants have used; those that ended meanwhile count no more."""
    cpu = resident = peak = count = 0
    for pid in dict.fromkeys(pid for root in pids for pid in descendants(root)):
        try:
            fields = Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()
            status = Path("/proc", str(pid), "status").read_text()
        except OSError:
            continue
        cpu += int(fields[11]) + int(fields[12])
        count += 1
        for line in status.splitlines():
            if line.startswith("VmRSS:"):
                resident += int(line.split()[1]) * 1024
            elif line.startswith("VmHWM:"):
                peak += int(line.split()[1]) * 1024
    return Usage(cpu / _TICKS, resident, peak, count)


def machine() -> str:
    """Return one line on this machine and how busy it is with other things."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{os.cpu_count()} x {model}, {memory:.0f} GiB, load {os.getloadavg()[0]:.1f}"
