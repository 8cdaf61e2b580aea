"""A topology as a picture: a box for each domain inside the box of the wider one, a square for each node, the darker
the less of the resource is free there.

Decided here: the drawing as a list of boxes and lines of text, in pixels; the two files are two ways of writing that
list down, and say the same. SVG needs nothing; PNG needs Pillow, which is an extra (`muster-scheduler[plot]`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from math import ceil, sqrt
from pathlib import Path
from xml.sax.saxutils import escape

from scheduler.model.floorplan import Domain, Picture
from scheduler.model.quantity import format_amount

CELL, GAP, PAD, LINE, FONT = 12, 2, 6, 16, 11
WIDE = 1.6
"""How much wider than high boxes become."""
_LETTER = 6.2
"""Width of a letter, about."""
_RAMP = ((255, 255, 229), (254, 227, 145), (254, 153, 41), (204, 76, 2), (102, 37, 6))
_BARRED, _NOTHING, _FRAME, _INK = "#b8bcc4", "#f4f5f7", "#8a919e", "#1f2430"
_SHADES = ("#ffffff", "#f3f5f8", "#e6eaf0")
LOADS = 8
"""Tones of a node, beside that of one with everything free."""


class NoPng(Exception):
    """PNG cannot be written here."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle; the title is what is shown when the pointer rests on it.

    tone: what the fill stands for, where colours are chosen elsewhere: "depth-0" to "depth-2" for domains, for nodes
    "load-0" (all free) to "load-8" (nothing free), "barred" and "none".
    """

    x: float
    y: float
    width: float
    height: float
    fill: str
    line: str = ""
    title: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """A line of text, from its left end on its base line."""

    x: float
    y: float
    text: str
    size: int = FONT
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Drawing:
    """What is drawn, in order."""

    width: int
    height: int
    parts: tuple[Box | Text, ...]


@dataclass(frozen=True, slots=True)
class _Block:
    """A domain before it has a place: its size, its name, and what is inside, at places of its own."""

    name: str
    width: float
    height: float
    depth: int
    cells: tuple[tuple[float, float, int], ...] = ()
    blocks: tuple[tuple[float, float, _Block], ...] = ()


@lru_cache(maxsize=4096)
def colour(total: int, free: int, *, barred: bool) -> str:
    """The colour of a node."""
    if total <= 0:
        return _NOTHING
    if barred:
        return _BARRED
    place = (1 - free / total) * (len(_RAMP) - 1)
    low = min(int(place), len(_RAMP) - 2)
    part = place - low
    mixed = (round(a + (b - a) * part) for a, b in zip(_RAMP[low], _RAMP[low + 1], strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


@lru_cache(maxsize=4096)
def tone(total: int, free: int, *, barred: bool) -> str:
    """The tone of a node; see `Box`. Only what is wholly free, or wholly in use, has the first or the last."""
    if total <= 0:
        return "none"
    if barred:
        return "barred"
    used = total - free
    return f"load-{LOADS if free <= 0 else min(LOADS - 1, ceil(LOADS * used / total))}"


def plan(picture: Picture, width: float, depth: int | None = None) -> tuple[int, int, Iterator[Box | Text]]:
    """Return width and height of the boxes without the head, and the boxes one by one: of a large cluster there are
    thousands, and whoever draws them may rest between two. width: of which no row is wider, unless a domain is; depth:
    as in `draw`."""
    placed, width, height = _flow(_outermost(picture, depth), most=width)
    boxes = chain.from_iterable(_put(picture, block, x, y) for x, y, block in placed)
    return max(1, ceil(width)), max(1, ceil(height)), boxes


def draw(picture: Picture, depth: int | None = None) -> Drawing:
    """Return the drawing. depth: how many levels get boxes; None: all but those of single nodes."""
    words = _head(picture)
    wide = max(len(one.text) * _LETTER * one.size / FONT for one in words if isinstance(one, Text))
    placed, width, height = _flow(_outermost(picture, depth), wide)
    head = 3 * LINE + 2 * PAD + LINE * len(picture.levels)
    width = max(width, wide)
    parts: list[Box | Text] = [Box(0, 0, width + 2 * PAD, height + head + 2 * PAD, "#ffffff"), *words]
    for x, y, block in placed:
        parts.extend(_put(picture, block, x + PAD, y + head))
    return Drawing(ceil(width + 2 * PAD), ceil(height + head + 2 * PAD), tuple(parts))


def _outermost(picture: Picture, depth: int | None) -> list[_Block]:
    """Return the widest domains, and the nodes that are in none."""
    if depth is None:
        depth = max((one.level + 1 for one in picture.walk(len(picture.levels)) if one.room.nodes > 1), default=0)
    blocks = [_block(one, depth) for one in picture.domains]
    loose = _loose(picture)
    if loose:
        blocks.append(_grid("unlabelled", loose, 0))
    return blocks


def _loose(picture: Picture) -> tuple[int, ...]:
    """Nodes that are in no domain at all; those that only lack a narrow level are in the boxes of the wider ones."""
    inside = {node for one in picture.domains for node in _members(one)}
    return tuple(node for node in picture.unlabelled_nodes if node not in inside)


def _members(one: Domain) -> tuple[int, ...]:
    return (*one.members, *(node for other in one.inside for node in _members(other)))


def _block(one: Domain, depth: int) -> _Block:
    inside = [other for other in one.inside if other.level < depth]
    if not inside:
        return _grid(one.name, tuple(sorted(_members(one))), one.level)
    blocks = [_block(other, depth) for other in inside]
    if one.members:
        blocks.append(_grid(f"{one.name}, unlabelled", one.members, one.level + 1))
    placed, width, height = _flow(blocks)
    wide = max(width, len(one.name) * _LETTER)
    return _Block(one.name, wide + 2 * PAD, height + LINE + 2 * PAD, one.level, (), placed)


def _grid(name: str, nodes: Sequence[int], depth: int) -> _Block:
    columns = max(1, ceil(sqrt(len(nodes) * WIDE)))
    step = CELL + GAP
    cells = tuple(((i % columns) * step, (i // columns) * step, node) for i, node in enumerate(nodes))
    width = max(min(columns, len(nodes)) * step, len(name) * _LETTER)
    return _Block(name, width + 2 * PAD, ceil(len(nodes) / columns) * step + LINE + 2 * PAD, depth, cells)


def _flow(
    blocks: Sequence[_Block], wide: float = 0.0, *, most: float = 0.0
) -> tuple[tuple[tuple[float, float, _Block], ...], float, float]:
    """Place blocks in rows of at least this width (of at most `most`, where that is given and none is wider); return
    them with their places, and the size of it all."""
    area = sum((one.width + PAD) * (one.height + PAD) for one in blocks)
    most = max([wide, most or sqrt(area * WIDE), *(one.width for one in blocks)], default=0.0)
    placed: list[tuple[float, float, _Block]] = []
    x = y = row = width = 0.0
    for one in blocks:
        if x and x + one.width > most:
            x, y, row = 0.0, y + row + PAD, 0.0
        placed.append((x, y, one))
        x, row = x + one.width + PAD, max(row, one.height)
        width = max(width, x - PAD)
    return tuple(placed), width, y + row


def _put(picture: Picture, block: _Block, x: float, y: float) -> Iterator[Box | Text]:
    depth = min(block.depth, len(_SHADES) - 1)
    yield Box(x, y, block.width, block.height, _SHADES[depth], _FRAME, block.name, f"depth-{depth}")
    yield Text(x + PAD, y + PAD + FONT, block.name)
    for dx, dy, node in block.cells:
        name, total, free, barred = picture.nodes[node]
        said = f"{name}: {_amount(picture, free)} of {_amount(picture, total)} {picture.resource} free"
        fill = colour(total, free, barred=barred)
        title = said + (", cordoned or not ready" if barred else "")
        told = tone(total, free, barred=barred)
        yield Box(x + PAD + dx, y + PAD + LINE + dy, CELL, CELL, fill, _FRAME, title, told)
    for dx, dy, inner in block.blocks:
        yield from _put(picture, inner, x + PAD + dx, y + PAD + LINE + dy)


def _head(picture: Picture) -> list[Box | Text]:
    everything = picture.everything
    said = (
        f"{_amount(picture, everything.free)} of {_amount(picture, everything.total)} {picture.resource} free, "
        f"{everything.whole} of {everything.nodes} nodes whole"
    )
    parts: list[Box | Text] = [Text(PAD, PAD + 13, f"{picture.name}: {said}", 13, bold=True)]
    for number, (name, domains, best) in enumerate(picture.levels):
        where = f" in {best.nodes_in}" if best.nodes_in else ""
        units = f"{_amount(picture, best.units)} {picture.resource}" + (f" in {best.units_in}" if best.units_in else "")
        nodes = f"{best.nodes} whole node{'' if best.nodes == 1 else 's'}"
        line = f"{name} ({domains}): largest gang {nodes}{where}, or {units}"
        parts.append(Text(PAD, PAD + 13 + LINE * (number + 1), line))
    y = PAD + LINE * (len(picture.levels) + 1) + 6
    x = float(PAD)
    for words, fill in (
        ("free", colour(4, 4, barred=False)), ("", colour(4, 3, barred=False)), ("", colour(4, 2, barred=False)),
        ("", colour(4, 1, barred=False)), ("in use", colour(4, 0, barred=False)), ("cordoned or not ready", _BARRED),
        ("has none", _NOTHING),
    ):  # fmt: skip
        parts.append(Box(x, y, CELL, CELL, fill, _FRAME))
        x += CELL + GAP
        if words:
            parts.append(Text(x + GAP, y + FONT - 1, words))
            x += len(words) * _LETTER + 3 * GAP + PAD
    return parts


def _amount(picture: Picture, value: int) -> str:
    return format_amount(picture.resource, value)


def svg(drawing: Drawing) -> str:
    """Return the drawing as SVG."""
    size = f'width="{drawing.width}" height="{drawing.height}" viewBox="0 0 {drawing.width} {drawing.height}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="Helvetica, Arial, sans-serif">']
    for part in drawing.parts:
        if isinstance(part, Text):
            weight = ' font-weight="bold"' if part.bold else ""
            place = f'x="{part.x:g}" y="{part.y:g}" font-size="{part.size}"{weight} fill="{_INK}"'
            lines.append(f"<text {place}>{escape(part.text)}</text>")
            continue
        place = f'x="{part.x:g}" y="{part.y:g}" width="{part.width:g}" height="{part.height:g}"'
        line = f' stroke="{part.line}" stroke-width="0.5"' if part.line else ""
        title = f"<title>{escape(part.title)}</title>" if part.title else ""
        lines.append(f'<rect {place} rx="1.5" fill="{part.fill}"{line}>{title}</rect>')
    return "\n".join([*lines, "</svg>", ""])


def write_svg(drawing: Drawing, file: Path) -> None:
    """Write an SVG file."""
    file.write_text(svg(drawing), encoding="utf-8")


def write_png(drawing: Drawing, file: Path) -> None:
    """Write a PNG file, twice as large, for sharp text. Raises `NoPng` without Pillow."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError as error:
        raise NoPng("PNG needs Pillow (pip install 'muster-scheduler[plot]'); SVG needs nothing") from error
    scale = 2
    image = Image.new("RGB", (drawing.width * scale, drawing.height * scale), "#ffffff")
    pen = ImageDraw.Draw(image)
    sizes = {one.size for one in drawing.parts if isinstance(one, Text)}
    fonts = {size: ImageFont.load_default(size * scale) for size in sizes}
    for part in drawing.parts:
        if isinstance(part, Text):
            pen.text((part.x * scale, part.y * scale), part.text, fill=_INK, font=fonts[part.size], anchor="ls")
        else:
            corners = (
                part.x * scale,
                part.y * scale,
                (part.x + part.width) * scale,
                (part.y + part.height) * scale,
            )
            pen.rectangle(corners, fill=part.fill, outline=part.line or None)
    image.save(file)
