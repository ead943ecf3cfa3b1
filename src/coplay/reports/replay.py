"""An episode to look at: lines for a terminal, an animated GIF, or a player for a web page."""

import hashlib
import html
import io
import json
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

from coplay.files import replace_file
from coplay.reports import board
from coplay.reports.board import Ellipse, Frame, Letter, Line, Point, Polygon, Shape
from coplay.reports.episodes import Episode
from coplay.reports.templating import render

# --- terminal ----------------------------------------------------------------------------------------

SYMBOLS = {"wall": "#", "stag": "S", "hare": "h", "drift": "*"}


def as_text(episode: Episode) -> list[str]:
    """One drawing per board: things, then the players on the same cell by number, then who did what."""
    boards = [_cells_as_text(episode, frame) for frame in board.frames(episode)]
    width = max((len(text) for cells in boards for text in cells.values()), default=1)
    return [
        "\n".join(
            [
                _heading(episode, number),
                *_board_as_text(episode, cells, width),
                *_table_as_text(episode, number),
            ]
        )
        for number, cells in enumerate(boards)
    ]


def _heading(episode: Episode, number: int) -> str:
    return f"{episode.game}  step {number} of {episode.num_moves}"


def _cells_as_text(episode: Episode, frame: Frame) -> dict[tuple[int, int], str]:
    cells: dict[tuple[int, int], str] = {}
    for kind, places in frame.things.items():
        for cell in places:
            cells[cell] = cells.get(cell, "") + _symbol(kind)
    for player, spot in enumerate(frame.players):
        if spot is not None:
            cell = (int(spot.y), int(spot.x))
            cells[cell] = cells.get(cell, "") + board.symbol(player)
    return cells


def _symbol(kind: str) -> str:
    """What somebody owns is shown as the owner's number in brackets."""
    owner = board.owner(kind)
    return SYMBOLS.get(kind, kind[:1].upper()) if owner is None else f"({board.symbol(owner)})"


def _board_as_text(episode: Episode, cells: dict[tuple[int, int], str], width: int) -> list[str]:
    height, columns = episode.grid
    if height * columns == 0:
        return []
    edge = "+" + "-" * (columns * (width + 1) + 1) + "+"
    rows = [
        "| " + " ".join(_filled(cells.get((row, column), "."), width) for column in range(columns)) + " |"
        for row in range(height)
    ]
    return [edge, *rows, edge]


def _filled(text: str, width: int) -> str:
    return text * width if text == "#" else text.ljust(width)


def _table_as_text(episode: Episode, number: int) -> list[str]:
    names = max(map(len, episode.members))
    actions = max(map(len, episode.action_names))
    return [
        f"{board.symbol(player)} {episode.members[player]:<{names}}  {action:<{actions}}  "
        f"{reward:>6}  return {episode.returns[number, player]:g}"
        + _thought(episode, number, player, "  thinks ")
        for player, (action, reward) in enumerate(_last_moves(episode, number))
    ]


def _thought(episode: Episode, number: int, player: int, before: str = "") -> str:
    """What a player believes the others are after as it looks at a board; nothing if it holds no beliefs."""
    told = [
        f"{board.symbol(other)} {goal} {sure:.2f}" for other, goal, sure in episode.thoughts(number, player)
    ]
    return before + ", ".join(told) if told else ""


def _last_moves(episode: Episode, number: int) -> list[tuple[str, str]]:
    """What led to this board, by player: the action's name and what it paid."""
    if number == 0:
        return [("", "")] * len(episode.members)
    move = number - 1
    return [
        (episode.action_names[episode.action[move, player]], _signed(float(episode.reward[move, player])))
        if episode.active[move, player]
        else ("out", "")
        for player in range(len(episode.members))
    ]


def _signed(reward: float) -> str:
    return f"{reward:+.3g}" if reward else "0"


# --- GIF ---------------------------------------------------------------------------------------------

BOARD_PIXELS, LEAST_CELL, LARGEST_CELL = 480, 28, 96
SHARPER = 2  # drawn larger and scaled down, because Pillow's own lines have stairs
MILLISECONDS, LAST_MILLISECONDS = 400, 2000
PAPER, TEXT, FAINT = "#FFFFFF", "#22262B", "#6B737C"
MARGIN, LINE_HEIGHT, LEAST_WIDTH = 14, 24, 400


def as_gif(episode: Episode, path: Path) -> None:
    """Write an animation: the board, and below it every player's last move and return so far."""
    pictures = [_picture(episode, frame, number) for number, frame in enumerate(board.frames(episode))]
    # One palette for all, taken from the first and last: colours do not flicker.
    sample = _stacked(pictures[0], pictures[-1]).quantize(128, dither=Image.Dither.NONE)
    indexed = [picture.quantize(palette=sample, dither=Image.Dither.NONE) for picture in pictures]
    durations = [MILLISECONDS] * (len(indexed) - 1) + [LAST_MILLISECONDS]
    content = io.BytesIO()
    indexed[0].save(
        content, "GIF", save_all=True, append_images=indexed[1:], duration=durations, loop=0, disposal=1
    )
    replace_file(Path(path), content.getvalue())


def _stacked(upper: Image.Image, lower: Image.Image) -> Image.Image:
    both = Image.new("RGB", (upper.width, upper.height + lower.height))
    both.paste(upper, (0, 0))
    both.paste(lower, (0, upper.height))
    return both


def _picture(episode: Episode, frame: Frame, number: int) -> Image.Image:
    height, columns = episode.grid
    cell = _cell_pixels(episode)
    wide = max(columns * cell, LEAST_WIDTH) + 2 * MARGIN
    tall = height * cell + (_lines(episode) * len(episode.members) + 1) * LINE_HEIGHT + 3 * MARGIN
    image = Image.new("RGB", (wide * SHARPER, tall * SHARPER), PAPER)
    draw = ImageDraw.Draw(image)
    corner = ((wide - columns * cell) / 2, LINE_HEIGHT + MARGIN)
    _draw_text(draw, (MARGIN, MARGIN / 2 + LINE_HEIGHT / 2), episode.game, TEXT, bold=True)
    step = f"step {number} of {episode.num_moves}"
    _draw_text(draw, (wide - MARGIN, MARGIN / 2 + LINE_HEIGHT / 2), step, FAINT, anchor="rm")
    _draw_board(draw, episode, frame, corner, cell)
    _draw_table(draw, episode, number, top=corner[1] + height * cell + MARGIN, wide=wide)
    return image.resize((wide, tall), Image.Resampling.LANCZOS)


def _cell_pixels(episode: Episode) -> int:
    return int(min(LARGEST_CELL, max(LEAST_CELL, BOARD_PIXELS // max(*episode.grid, 1))))


def _draw_board(draw, episode: Episode, frame: Frame, corner: Point, cell: int) -> None:
    height, columns = episode.grid
    for row in range(height):
        for column in range(columns):
            fill = board.LIGHT_CELL if (row + column) % 2 == 0 else board.DARK_CELL
            square = Polygon(((0, 0), (1, 0), (1, 1), (0, 1)), fill)
            _draw_shape(draw, square, corner, cell, row, column)
    for kind, places in frame.things.items():
        for row, column in places:
            for shape in board.picture(kind):
                _draw_shape(draw, shape, corner, cell, row, column)
    for player, spot in enumerate(frame.players):
        if spot is not None:
            for shape in _player_shapes(player, spot):
                _draw_shape(draw, shape, corner, cell, 0, 0)


def _player_shapes(player: int, spot: board.Spot) -> tuple[Shape, ...]:
    x, y, radius = spot
    return (
        Ellipse(x, y, radius, radius, PAPER),
        Ellipse(x, y, radius * 0.9, radius * 0.9, board.colour(player)),
        Letter(x, y, radius * 1.2, board.symbol(player), PAPER),
    )


def _draw_shape(draw, shape: Shape, corner: Point, cell: int, row: int, column: int) -> None:
    def place(x: float | int, y: float | int) -> Point:
        return ((corner[0] + (column + x) * cell) * SHARPER, (corner[1] + (row + y) * cell) * SHARPER)

    match shape:
        case Ellipse(x, y, radius_x, radius_y, fill):
            draw.ellipse([place(x - radius_x, y - radius_y), place(x + radius_x, y + radius_y)], fill=fill)
        case Polygon(points, fill):
            draw.polygon([place(x, y) for x, y in points], fill=fill)
        case Line(points, width, colour):
            pixels = round(width * cell * SHARPER)
            draw.line([place(x, y) for x, y in points], fill=colour, width=pixels, joint="curve")
        case Letter(x, y, height, text, colour):
            font = _font(height * cell * SHARPER, bold=True)
            draw.text(place(x, y), text, fill=colour, font=font, anchor="mm")


def _lines(episode: Episode) -> int:
    """Of text for each player: what it did, and what it thinks if anybody thinks."""
    return 1 if episode.belief is None else 2


def _draw_table(draw, episode: Episode, number: int, top: float | int, wide: int) -> None:
    for player, (action, reward) in enumerate(_last_moves(episode, number)):
        middle = top + (_lines(episode) * player + 0.5) * LINE_HEIGHT
        thought = _thought(episode, number, player, "thinks ")
        _draw_text(draw, (MARGIN + 28, middle + 0.8 * LINE_HEIGHT), thought, FAINT)
        dot = board.Spot(MARGIN / LINE_HEIGHT + 0.4, middle / LINE_HEIGHT, 0.42)
        for shape in _player_shapes(player, dot):
            _draw_shape(draw, shape, (0, 0), LINE_HEIGHT, 0, 0)
        name, total = episode.members[player], f"return {episode.returns[number, player]:g}"
        _draw_text(draw, (MARGIN + 28, middle), name[:18], TEXT)
        _draw_text(draw, (wide * 0.47, middle), action, FAINT)
        _draw_text(
            draw, (wide * 0.77, middle), reward, TEXT if reward not in ("", "0") else FAINT, "rm", True
        )
        _draw_text(draw, (wide - MARGIN, middle), total, TEXT, "rm")


def _draw_text(draw, place: Point, text: str, colour: str, anchor: str = "lm", bold: bool = False) -> None:
    x, y = place
    font = _font(13 * SHARPER, bold)
    draw.text((x * SHARPER, y * SHARPER), text, fill=colour, font=font, anchor=anchor)


def _font(pixels: float | int, bold: bool = False) -> ImageFont.FreeTypeFont:
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(
        Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name, max(1, round(pixels))
    )


# --- web page ----------------------------------------------------------------------------------------


def as_html(episode: Episode) -> str:
    """A player with its own style and script, to be put into a page or saved as one; ASCII only."""
    data = _data(episode)
    name = "replay-" + hashlib.sha256(f"{episode.members}{data}".encode()).hexdigest()[:8]
    height, columns = episode.grid
    page = render(
        "replay.html.j2",
        name=name,
        episode=episode,
        data=data,
        height=height,
        columns=columns,
        light=board.LIGHT_CELL,
        dark=board.DARK_CELL,
        symbols={kind: "".join(map(_as_svg, board.picture(kind))) for kind in episode.cells},
        players=[(board.symbol(i), board.colour(i), member) for i, member in enumerate(episode.members)],
    )
    return page.encode("ascii", "xmlcharrefreplace").decode()


def _data(episode: Episode) -> str:
    """What the script needs, as JSON that cannot end the script element it sits in."""
    frames = board.frames(episode)
    moves = [_last_moves(episode, number) for number in range(len(frames))]
    data = {
        "game": episode.game,
        "actions": list(episode.action_names),
        "things": [[list(frame.things[kind]) for kind in episode.cells] for frame in frames],
        "spots": [[spot and [round(part, 3) for part in spot] for spot in frame.players] for frame in frames],
        "last": [[action for action, _ in row] for row in moves],
        "reward": [[reward for _, reward in row] for row in moves],
        "returns": [[f"{total:g}" for total in row] for row in episode.returns.tolist()],
        "policy": episode.policy.round(3).tolist(),
        "chosen": episode.action.tolist(),
        "active": episode.active.astype(int).tolist(),
    }
    if episode.belief is not None:
        players = range(len(episode.members))
        data["thoughts"] = [[_thought(episode, n, p) for p in players] for n in range(len(frames))]
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")


def _as_svg(shape: Shape) -> str:
    match shape:
        case Ellipse(x, y, radius_x, radius_y, fill):
            return f'<ellipse cx="{x:g}" cy="{y:g}" rx="{radius_x:g}" ry="{radius_y:g}" fill="{fill}"/>'
        case Polygon(points, fill):
            return f'<polygon points="{_points(points)}" fill="{fill}"/>'
        case Line(points, width, colour):
            return (
                f'<polyline points="{_points(points)}" fill="none" stroke="{colour}" '
                f'stroke-width="{width:g}" stroke-linecap="round" stroke-linejoin="round"/>'
            )
        case Letter(x, y, height, text, colour):
            return (
                f'<text x="{x:g}" y="{y:g}" font-size="{height:g}" fill="{colour}" text-anchor="middle" '
                f'dominant-baseline="central" font-weight="700">{html.escape(text)}</text>'
            )


def _points(points: tuple[Point, ...]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)
