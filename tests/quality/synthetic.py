"""A look-alike of the trace, of any size: made up from its statistics, the same for the same seed.

Decided here: nothing of the trace is copied but how common each sort of node and each vector of a pod is (amounts in
whole cpus and GiB). Traits can be stressed as the published variants do: the share of several GPUs, of parts of a GPU,
of pods without one, and of pods that name models.

`python -m tests.quality.synthetic DIR` writes nodes.csv and pods.csv.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

# cpus, GiB, GPUs, model, of 1,213
_NODES = (
    (96, 384, 8, "G2", 549),
    (104, 512, 2, "T4", 387),
    (16, 120, 2, "P100", 107),
    (128, 768, 8, "G3", 39),
    (32, 128, 4, "V100M16", 28),
    (64, 256, 2, "P100", 22),
    (96, 768, 8, "V100M32", 21),
    (8, 32, 1, "V100M16", 19),
    (96, 384, 4, "T4", 17),
    (48, 368, 4, "V100M32", 9),
    (64, 256, 8, "V100M16", 7),
    (8, 60, 1, "P100", 5),
    (128, 1024, 1, "A10", 2),
)
# milli cpu, GiB, GPUs, milli of a GPU, of about 7,800
_PODS = (
    *((12500, 56, 0, 0, 364), (32000, 48, 0, 0, 284), (8000, 30, 0, 0, 163), (15400, 50, 0, 0, 120)),
    *((16500, 50, 0, 0, 95), (3150, 6, 1, 810, 1078), (11900, 46, 1, 470, 388), (8000, 30, 1, 470, 360)),
    *((11900, 46, 1, 650, 249), (4000, 20, 1, 320, 232), (8000, 30, 1, 320, 72), (4000, 26, 1, 230, 140)),
    *((6000, 10, 1, 460, 128), (3150, 6, 1, 590, 75), (4000, 16, 1, 160, 74), (4150, 10, 1, 550, 72)),
    *((4000, 16, 1, 220, 62), (4150, 10, 1, 370, 47), (4000, 20, 1, 110, 24), (4000, 22, 1, 480, 19)),
    *((11300, 48, 1, 1000, 857), (11400, 48, 1, 1000, 599), (3150, 6, 1, 1000, 470), (18700, 64, 1, 1000, 255)),
    *((9800, 42, 1, 1000, 236), (12000, 22, 1, 1000, 352), (15700, 60, 1, 1000, 194), (16000, 40, 1, 1000, 141)),
    *((8000, 20, 1, 1000, 159), (4000, 26, 1, 1000, 144), (14200, 58, 1, 1000, 93), (24200, 92, 1, 1000, 84)),
    *((16400, 124, 1, 1000, 27), (88000, 320, 8, 1000, 18), (64000, 256, 8, 1000, 21), (120000, 680, 8, 1000, 5)),
    *((32000, 130, 4, 1000, 12), (60000, 310, 4, 1000, 3), (16000, 64, 2, 1000, 10), (30000, 150, 2, 1000, 6)),
)
_SPECS = (
    ("T4", 50),
    ("G2", 16),
    ("P100", 15),
    ("V100M16|V100M32", 8),
    ("P100|V100M16|V100M32", 5),
    ("G3", 4),
    ("A10", 1),
)
_MODELS = {model for *_, model, _ in _NODES}


def nodes(size: int, seed: int = 1) -> list[tuple[str, int, int, int, str]]:
    """Return lines of a list of nodes: sn, cpu_milli, memory_mib, gpu, model."""
    random = np.random.default_rng((seed, size))
    often = np.array([one[-1] for one in _NODES], dtype=np.float64)
    exact = often / often.sum() * size
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: size - int(counts.sum())]] += 1
    picked = random.permutation(np.repeat(np.arange(len(_NODES)), counts))
    return [
        (f"node-{place:04}", _NODES[n][0] * 1000, _NODES[n][1] * 1024, _NODES[n][2], _NODES[n][3])
        for place, n in enumerate(picked.tolist())
    ]


def pods(
    size: int,
    seed: int = 1,
    *,
    several: float | None = None,
    part: float | None = None,
    without: float | None = None,
    spec: float = 0.0,
) -> list[tuple[str, int, int, int, int, str]]:
    """Return lines of a list of pods: name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec.

    several, part: the share of what is asked of GPUs that goes to pods with several GPUs, and with a part of one;
    without: pods without GPUs for each one with; None: as in the trace. spec: the share of pods with GPUs that name
    models.
    """
    random = np.random.default_rng((seed, size))
    often = np.array([one[-1] for one in _PODS], dtype=np.float64)
    asked = often * np.array([count * amount for _, _, count, amount, _ in _PODS])
    many = np.array([count > 1 for _, _, count, _, _ in _PODS])
    some = np.array([0 < amount < 1000 for _, _, _, amount, _ in _PODS])
    none = np.array([count == 0 for _, _, count, _, _ in _PODS])
    shares = {"several": (many, several), "part": (some, part)}
    whole = ~(many | some | none)
    rest = 1.0
    for picked, share in shares.values():
        share = asked[picked].sum() / asked.sum() if share is None else share
        rest -= share
        often[picked] *= share * asked.sum() / asked[picked].sum()
    often[whole] *= max(rest, 0.0) * asked.sum() / asked[whole].sum()
    if without is not None:
        often[none] *= without * often[~none].sum() / often[none].sum()
    chosen = random.choice(len(_PODS), size=size, p=often / often.sum())
    weights = np.array([weight for _, weight in _SPECS], dtype=np.float64)
    named = random.choice(len(_SPECS), size=size, p=weights / weights.sum())
    names_one = random.random(size) < spec
    lines = []
    for place, (kind, model, names) in enumerate(zip(chosen.tolist(), named.tolist(), names_one.tolist(), strict=True)):
        cpu, memory, count, amount, _ = _PODS[kind]
        text = _SPECS[model][0] if names and count == 1 else "G2|G3" if names and count > 1 else ""
        lines.append((f"pod-{place:04}", cpu, memory * 1024, count, amount, text))
    return lines


def write(folder: Path, node_lines: Sequence[tuple[object, ...]], pod_lines: Sequence[tuple[object, ...]]) -> None:
    """Write nodes.csv and pods.csv."""
    for name, head, lines in (
        ("nodes.csv", ("sn", "cpu_milli", "memory_mib", "gpu", "model"), node_lines),
        ("pods.csv", ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"), pod_lines),
    ):
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(head)
            writer.writerows(lines)


def main() -> None:
    """Write a look-alike."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality.synthetic", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=1213)
    parser.add_argument("--pods", type=int, default=8152)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--several", type=float, help="share of asked GPUs in pods with several")
    parser.add_argument("--part", type=float, help="share of asked GPUs in pods with a part of one")
    parser.add_argument("--without", type=float, help="pods without GPUs for each one with")
    parser.add_argument("--spec", type=float, default=0.0, help="share of pods with GPUs that name models")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    lines = pods(asked.pods, asked.seed, several=asked.several, part=asked.part, without=asked.without, spec=asked.spec)
    write(asked.folder, nodes(asked.nodes, asked.seed), lines)


if __name__ == "__main__":
    main()
