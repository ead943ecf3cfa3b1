"""An audit as one page: the first line says what to do, then a line per check with its picture; the foot
tells what all rests on. Reads findings.json alone."""

import json
from pathlib import Path
from typing import Any

from markupsafe import Markup

from coplay.reports.audit_drawings import draw
from coplay.reports.templating import render


def write_audit_page(folder: Path) -> Path:
    """`audit.html` beside the findings; the same findings give the same page, byte for byte."""
    told = json.loads((folder / "findings.json").read_text())
    page = folder / "audit.html"
    areas = by_area(told["checks"])
    words = render("audit.html.j2", told=told, areas=areas, bars=bars, picture=picture, foot=foot(told))
    page.write_text(words)
    return page


def by_area(checks: list[dict]) -> dict[str, list[dict]]:
    areas: dict[str, list[dict]] = {}
    for check in checks:
        areas.setdefault(check["area"], []).append(check)
    return areas


def picture(check: dict) -> Markup:
    """Ready markup: `draw` escapes what it is given."""
    return Markup(draw(check.get("drawing") or {}))


def foot(told: dict[str, Any]) -> list[tuple[str, str]]:
    """What the findings rest on, as far as they say it."""
    return [
        (name, _listed(told[name])) for name in ("scale", "versions", "seed") if told.get(name) is not None
    ]


def _listed(value: Any) -> str:
    return (
        ", ".join(f"{name} {one}" for name, one in value.items()) if isinstance(value, dict) else str(value)
    )


def bars(values: list[float]) -> list[tuple[str, float, float]]:
    """Seats as bars: its name, where the bar begins and how wide it is, in percent of the drawing; none where
    all would be empty."""
    if not any(values):
        return []
    low, high = min([0.0, *values]), max([0.0, *values])
    wide = (high - low) or 1.0
    return [
        (f"seat {seat}", 100 * (min(value, 0.0) - low) / wide, 100 * abs(value) / wide)
        for seat, value in enumerate(values)
    ]
