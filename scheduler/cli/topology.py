"""`muster get topology` and `muster topology --plot`: how nodes are wired, and how much of it is free.

Decided here: how it reads, and how much of a large cluster is shown without being asked: as many levels as fit on a
screen. The numbers are those of `framework.floorplan`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scheduler.cli.choosing import Refused, resource_of
from scheduler.cli.output import FAILED, NOT_FOUND, OK, USAGE, complain, emit, note, table
from scheduler.cli.picture import Picture as Cluster
from scheduler.cli.picture import Source, with_picture
from scheduler.framework.floorplan import look
from scheduler.framework.session import Session
from scheduler.model.floorplan import Domain, Largest, Picture, Room
from scheduler.model.hints import near
from scheduler.model.quantity import format_amount
from scheduler.observe.heatmap import NoPng, draw, write_png, write_svg

Row = dict[str, Any]
ROWS = 60
"""So many domains are shown without being asked for more."""


def show(name: str | None, level: str | None, resource: str | None, source: Source, output: str) -> int:
    """Print one topology, or all; exit code."""

    def work(cluster: Cluster, _: str) -> int:
        session = cluster.session()
        try:
            chosen = resource_of(session, resource)
            pictures = [look(session, one, chosen) for one in _named(session, name)]
            depths = [_depth(picture, level) for picture in pictures]
        except Refused as refused:
            complain(str(refused))
            return refused.code
        if output == "name":
            for picture in pictures:
                print(picture.name)
        elif output in ("json", "yaml"):
            emit([document(one, depth) for one, depth in zip(pictures, depths, strict=True)], (), output)
        else:
            if not pictures:
                note("no topology found")
            for number, (picture, depth) in enumerate(zip(pictures, depths, strict=True)):
                if number:
                    print()
                _print(picture, depth, asked=level is not None)
        return OK

    return with_picture(source, work)


def plot(name: str | None, level: str | None, resource: str | None, source: Source, file: Path) -> int:
    """Draw one topology into a file, .svg or .png; exit code."""
    if file.suffix not in (".svg", ".png"):
        complain(f"{file}: must end in .svg or .png")
        return USAGE

    def work(cluster: Cluster, _: str) -> int:
        session = cluster.session()
        try:
            chosen = resource_of(session, resource)
            names = _named(session, name)
            if len(names) != 1:
                raise Refused(
                    USAGE if names else NOT_FOUND,
                    f"which topology? There are {', '.join(names)}" if names else "no topology found",
                )
            picture = look(session, names[0], chosen)
            drawing = draw(picture, _depth(picture, level) if level else None)
            (write_svg if file.suffix == ".svg" else write_png)(drawing, file)
        except Refused as refused:
            complain(str(refused))
            return refused.code
        except (NoPng, OSError) as error:
            complain(str(error))
            return FAILED
        print(file)
        return OK

    return with_picture(source, work)


def _named(session: Session, name: str | None) -> list[str]:
    known = sorted(session.topology.trees)
    if name is not None and name not in known:
        raise Refused(NOT_FOUND, f"there is no topology {name}" + (near(name, known) if known else ""))
    return known if name is None else [name]


def _depth(picture: Picture, level: str | None) -> int:
    names = [one for one, _, _ in picture.levels]
    if level is None:
        return picture.depth(ROWS)
    if level not in names:
        raise Refused(NOT_FOUND, f"topology {picture.name} has no level {level}{near(level, names)}")
    return names.index(level) + 1


# -- words --------------------------------------------------------------------------------------------------------


def document(picture: Picture, depth: int) -> Row:
    """Return a topology as plain data, with the domains of its first levels."""
    return {
        "name": picture.name,
        "dialect": picture.dialect,
        "resource": picture.resource,
        **_numbers(picture, picture.everything),
        "levels": [
            {"name": name, "domains": domains, "largest": _best(picture, best)}
            for name, domains, best in picture.levels
        ],
        "domains": [_nested(picture, one, depth) for one in picture.domains if one.level < depth],
        "unlabelled": _numbers(picture, picture.unlabelled),
        "faults": [
            {"kind": one.kind, "name": one.name, "reason": one.reason, "field": one.field, "message": one.message}
            for one in picture.faults
        ],
    }


def _numbers(picture: Picture, room: Room) -> Row:
    return {
        "nodes": room.nodes,
        "whole": room.whole,
        "total": format_amount(picture.resource, room.total),
        "free": format_amount(picture.resource, room.free),
    }


def _best(picture: Picture, best: Largest) -> Row:
    return {
        "nodes": best.nodes,
        "nodesIn": best.nodes_in,
        "units": format_amount(picture.resource, best.units),
        "unitsIn": best.units_in,
    }


def _nested(picture: Picture, one: Domain, depth: int) -> Row:
    inside = [_nested(picture, other, depth) for other in one.inside if other.level < depth]
    said = {"level": picture.levels[one.level][0], "name": one.name, **_numbers(picture, one.room)}
    return {**said, "domains": inside} if inside else said


def _print(picture: Picture, depth: int, *, asked: bool) -> None:
    print(f"topology {picture.name} ({picture.dialect}), by {picture.resource}")
    rows = [
        {"domain": f"{'  ' * one.level}{picture.levels[one.level][0]} {one.name}", **_numbers(picture, one.room)}
        for one in picture.walk(depth)
    ]
    if picture.unlabelled.nodes:
        rows.append({"domain": "unlabelled", **_numbers(picture, picture.unlabelled)})
    rows.append({"domain": "all nodes", **_numbers(picture, picture.everything)})
    table(rows, ("domain", "nodes", "whole", "total", "free"))
    print()
    table(
        [
            {
                "level": name,
                "domains": domains,
                "largest gang": _in(f"{best.nodes} whole node{'' if best.nodes == 1 else 's'}", best.nodes_in),
                f"of {picture.resource}": _in(format_amount(picture.resource, best.units), best.units_in),
            }
            for name, domains, best in picture.levels
        ],
        ("level", "domains", "largest gang", f"of {picture.resource}"),
    )
    hidden = picture.levels[depth:]
    if hidden and not asked:
        print(f"not shown: {', '.join(f'{many} of {name}' for name, many, _ in hidden)}; --level {hidden[0][0]!r}")
    for fault in picture.faults:
        note(f"{fault.kind} {fault.name}: {fault.field}: {fault.message}")


def _in(what: str, where: str) -> str:
    return f"{what} in {where}" if where else what
