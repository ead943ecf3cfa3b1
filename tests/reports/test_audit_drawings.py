"""Pictures of an audit's findings: where things lie, worked by hand; and nothing breaks on names or gaps."""

import json
import math
import re
from xml.etree import ElementTree

import jax
import numpy as np
import pyarrow as pa
import pytest

from coplay.audit.environment import seats_apart
from coplay.audit.phenomenon import MOST_POINTS, _curve, _ranks, any_seat, level, order
from coplay.audit.renamed_game import _differences
from coplay.audit.seat_effects import Effects
from coplay.audit.subject import Budget, Subject
from coplay.reports.audit_drawings import KINDS, draw
from coplay.reports.audit_page import write_audit_page
from coplay.reports.audit_shapes import axis_over
from tests.audit.mutants import stag_hunt
from tests.audit.test_phenomenon import SEATS, SEEDS, a_run

NASTY = "<b>\"stag\" & 'hare'</b>"
SAMPLES = {
    "boxes": {"unit": "return", "groups": [{"name": NASTY, "values": [1, 2, 3.5, 4, None]}]},
    "intervals": {
        "unit": NASTY,
        "margin": 0.5,
        "rows": [{"name": NASTY, "value": 1.0, "low": 0.5, "high": 2.0}],
    },
    "lines": {
        "x_name": NASTY,
        "y_name": "return",
        "lines": [{"name": NASTY, "x": [0, 1, 2], "y": [0.0, 1.0, 2.0], "low": [0, 0, 1], "high": [1, 2, 3]}],
    },
    "histograms": {"x_name": "return", "edges": [0, 1, 2], "groups": [{"name": NASTY, "counts": [3, 1]}]},
    "scatter": {"groups": [{"name": NASTY, "x": [0.0, 1.0], "y": [2.0, 3.0]}]},
    "matrix": {"rows": [NASTY, "b"], "columns": ["a", NASTY], "values": [[3, 1], [0, None]]},
    "table": {"rows": [NASTY, "b"], "columns": ["a", NASTY], "values": [[0.5, 1], [None, 20.25]]},
    "boards": {
        "frames": [{"name": NASTY, "values": [[0.0, 1.0]]}, {"name": "difference", "values": [[0.5, -1]]}]
    },
    "ladder": {
        "rungs": [
            {"name": NASTY, "adds": NASTY, "symptoms": {"return": {"value": 1.0, "low": 0.5, "high": 1.5}}}
        ],
        "first": {"return": NASTY},
    },
}
SAMPLES = {kind: {"kind": kind, "title": NASTY, **keys} for kind, keys in SAMPLES.items()}


def parsed(drawing: dict) -> ElementTree.Element:
    return ElementTree.fromstring(draw(drawing))


def words(drawing: dict) -> list[str]:
    return [text.text or "" for text in parsed(drawing).iter("text")]


def number(element: ElementTree.Element, name: str) -> float:
    return float(element.get(name, "nan"))


def path_of(element: ElementTree.Element) -> list[tuple[float, float]]:
    corners = re.findall(r"(-?[\d.]+) (-?[\d.]+)", element.get("d", ""))
    return [(float(x), float(y)) for x, y in corners]


def test_every_kind_has_a_sample():
    assert {*SAMPLES, "several"} == set(KINDS)


@pytest.mark.parametrize("kind", SAMPLES)
def test_every_kind_is_whole_markup_whose_names_are_escaped(kind):
    drawing = SAMPLES[kind]
    svg = parsed(drawing)
    assert svg.tag == "svg" and not list(svg.iter("b"))
    assert NASTY in " ".join(words(drawing)), "the name is there as text"
    assert svg.get("aria-label", "").startswith(NASTY)
    assert "http" not in draw(drawing) and "<script" not in draw(drawing)
    assert draw(drawing) == draw(json.loads(json.dumps(drawing)))


@pytest.mark.parametrize("kind", SAMPLES)
def test_nothing_lies_outside_its_picture(kind):
    svg = parsed(SAMPLES[kind])
    wide, high = number(svg, "width"), number(svg, "height")
    for element in svg.iter():
        for name, most in (("x", wide), ("x1", wide), ("x2", wide), ("cx", wide), ("y", high), ("cy", high)):
            assert not number(element, name) > most and not number(element, name) < 0


@pytest.mark.parametrize("kind", SAMPLES)
def test_without_data_a_sentence_stands_in_its_place(kind):
    bare = {"kind": kind, "title": "returns"}
    for drawing in (bare, _missing(SAMPLES[kind]) | bare):
        said = draw(drawing)
        assert said.startswith('<p class="soft">returns: no ') and said.endswith(".</p>")


def _missing(value):
    """Lists of the same length with nothing in them; groups and rows keep their names."""
    if isinstance(value, list):
        return [_missing(item) for item in value]
    if isinstance(value, dict):
        return {key: item if key in ("name", "adds") else _missing(item) for key, item in value.items()}
    return None if isinstance(value, (int, float)) else value


def test_no_drawing_is_no_markup_and_an_unknown_one_says_so():
    assert draw({}) == ""
    assert (
        draw({"kind": "pie", "title": "shares"})
        == '<p class="soft">shares: no picture is known for &#x27;pie&#x27;.</p>'
    )


def test_a_drawing_of_the_wrong_shape_costs_its_own_picture_only():
    wrong = {**SAMPLES["ladder"], "title": "rungs", "first": [{"symptom": "return", "rung": "PPO"}]}
    both = draw({"kind": "several", "drawings": [wrong, SAMPLES["boxes"]]})
    assert both.startswith('<p class="soft">rungs: the picture broke off (AttributeError') and "<svg" in both


def test_several_are_drawn_one_below_the_other():
    both = {"kind": "several", "drawings": [SAMPLES["boxes"], SAMPLES["lines"]]}
    assert draw(both) == draw(SAMPLES["boxes"]) + "\n" + draw(SAMPLES["lines"])


# --- where things lie -----------------------------------------------------------------------------


def test_an_axis_goes_out_to_round_numbers_and_places_values_between():
    # from 0.3 to 4.2 with about 5 ticks: (4.2 - 0.3) / 5 = 0.78, the next round step is 1; so 0 to 5
    axis = axis_over([0.3, 4.2], 200, 100)
    assert (axis.low, axis.high, axis.ticks) == (0, 5, [0, 1, 2, 3, 4, 5])
    assert axis.at(0) == 200 and axis.at(2.5) == 150 and axis.at(5) == 100


def test_values_that_are_all_equal_still_have_an_axis():
    axis = axis_over([2.0, 2.0], 0, 100)
    assert axis.low < 2.0 < axis.high and axis.at(2.0) == pytest.approx(50)
    assert axis_over([0.0], 0, 100).at(0.0) == pytest.approx(50)


def test_a_box_goes_from_quartile_to_quartile_with_the_median_between():
    drawing = {
        "kind": "boxes",
        "title": "t",
        "unit": "u",
        "groups": [{"name": "a", "values": [0, 1, 2, 3, 10]}],
    }
    svg = parsed(drawing)
    box = next(svg.iter("rect"))
    median = next(line for line in svg.iter("line") if line.get("class") == "median")
    # ticks at 0, 2, ... 10 over 200 pixels: 20 a unit. Quartiles 1 and 3, median 2; 0 lies at the foot.
    foot = max(number(point, "cy") for point in svg.iter("circle"))
    assert number(median, "y1") == foot - 40
    assert number(box, "y") == foot - 60 and number(box, "height") == 40
    assert sorted(foot - number(point, "cy") for point in svg.iter("circle")) == [0, 20, 40, 60, 200]


def test_three_values_have_no_quartiles_worth_a_box():
    drawing = {"kind": "boxes", "title": "t", "groups": [{"name": "a", "values": [1.0, 2.0, 3.0]}]}
    svg = parsed(drawing)
    assert not list(svg.iter("rect")) and len(list(svg.iter("circle"))) == 3


def test_a_seed_keeps_its_place_in_the_box_and_a_missing_one_leaves_it_empty():
    def picture(values):
        return parsed({"kind": "boxes", "title": "", "groups": [{"name": "a", "values": values}]})

    def places(svg):
        return [number(point, "cx") for point in svg.iter("circle")]

    whole, gap = picture([1.0, 2.0, 3.0]), picture([1.0, None, 3.0])
    assert places(gap) == [places(whole)[0], places(whole)[2]]
    median = next(line for line in whole.iter("line") if line.get("class") == "median")
    assert places(whole)[1] == pytest.approx((number(median, "x1") + number(median, "x2")) / 2)


def test_an_interval_lies_about_zero_and_the_margin_is_a_band_about_it():
    rows = [{"name": "seat 0", "value": 1.0, "low": 0.5, "high": 2.0}, {"name": "seat 1", "value": 0.0}]
    drawing = {"kind": "intervals", "title": "t", "unit": "u", "margin": 0.5, "rows": rows}
    svg = parsed(drawing)
    band = next(svg.iter("rect"))
    zero = next(number(line, "x1") for line in svg.iter("line") if line.get("stroke") == "currentColor")
    unit = number(band, "width")  # from -0.5 to 0.5
    assert number(band, "x") == pytest.approx(zero - unit / 2, abs=0.02)
    bar = next(line for line in svg.iter("line") if line.get("stroke-width") == "2")
    assert number(bar, "x1") == pytest.approx(zero + unit / 2, abs=0.03)
    assert number(bar, "x2") == pytest.approx(zero + 2 * unit, abs=0.03)
    within = list(svg.iter("circle"))
    assert len(within) == 1 and number(within[0], "cx") == zero, "a disc within the margin"
    assert len(list(svg.iter("polygon"))) == 1, "a diamond beyond it"
    assert "+1 [+0.5, +2]" in words(drawing) and "+0" in words(drawing)


def test_a_gap_in_a_curve_breaks_the_line_and_a_lone_point_is_a_mark():
    line = {"name": "a", "x": [0, 1, 2, 3, 4], "y": [0.0, 1.0, None, 2.0, 4.0]}
    svg = parsed({"kind": "lines", "title": "t", "lines": [line]})
    runs = [path_of(path) for path in svg.iter("path")]
    assert [len(run) for run in runs] == [2, 2]
    (x0, y0), (x1, y1) = runs[0]
    (_, y3), (x4, y4) = runs[1]
    assert y0 - y1 == pytest.approx(50) and y3 - y4 == pytest.approx(100)  # 200 pixels for 4
    assert x1 - x0 == pytest.approx((x4 - x0) / 4, abs=0.02)
    lone = parsed({"kind": "lines", "title": "t", "lines": [{"name": "a", "x": [3], "y": [1.0]}]})
    assert not list(lone.iter("path")) and list(lone.iter("circle"))


def test_a_band_runs_along_the_upper_ends_and_back_along_the_lower():
    line = {"name": "a", "x": [0, 1], "y": [1.0, 2.0], "low": [0.0, 1.0], "high": [2.0, 4.0]}
    band = path_of(next(parsed({"kind": "lines", "title": "t", "lines": [line]}).iter("path")))
    left, right, foot = band[0][0], band[1][0], band[3][1]
    assert band == [(left, foot - 100), (right, foot - 200), (right, foot - 50), (left, foot)]  # 50 a unit


def test_curves_are_named_at_their_ends_unless_the_names_would_collide():
    def picture(last):
        lines = [{"name": "a", "x": [0, 1], "y": [0.0, 4.0]}, {"name": "b", "x": [0, 1], "y": [0.0, last]}]
        return parsed({"kind": "lines", "title": "t", "lines": lines})

    def heights(svg):
        return {t.text: number(t, "y") for t in svg.iter("text") if t.text in ("a", "b")}

    apart, close = heights(picture(3.0)), heights(picture(3.9))
    assert apart["b"] - apart["a"] == pytest.approx(50)  # beside their ends
    assert close["a"] == close["b"]  # in a row of the legend


def test_a_step_is_as_high_as_its_share():
    groups = [{"name": "real", "counts": [3, 1]}, {"name": "imagined", "counts": [1, 1]}]
    svg = parsed({"kind": "histograms", "title": "t", "x_name": "r", "edges": [0, 1, 3], "groups": groups})
    real = next(path for path in map(path_of, svg.iter("path")) if len(path) == 6)
    # shares 0.75 and 0.25 on an axis from 0 to 0.8 over 200 pixels: 250 a unit
    foot = real[0][1]
    assert [foot - y for _, y in real] == pytest.approx([0, 187.5, 187.5, 62.5, 62.5, 0])
    assert real[3][0] - real[2][0] == 0 and real[4][0] - real[3][0] == pytest.approx(
        2 * (real[2][0] - real[1][0]), abs=0.02
    )


@pytest.mark.parametrize(("edges", "counts"), [([0, 1], [1, 2]), ([0, 1, 2], [0, 0]), ([0, 2, 1], [1, 1])])
def test_counts_that_do_not_fit_their_edges_are_not_drawn(edges, counts):
    groups = [{"name": "real", "counts": counts}]
    assert draw({"kind": "histograms", "title": "t", "edges": edges, "groups": groups}).startswith("<p")


def test_a_cell_is_shaded_by_its_share_of_the_row_and_tells_its_number():
    table = {"rows": ["a", "b"], "columns": ["a", "b"], "values": [[3, 1], [0, 2500]]}
    drawing = {"kind": "matrix", "title": "t", **table}
    shades = [number(cell, "fill-opacity") for cell in parsed(drawing).iter("rect")]
    assert shades == [0.375, 0.125, 0.0, 0.5]  # half of 3/4, 1/4, 0 and 1
    assert [word for word in words(drawing) if word in ("3", "1", "0", "2,500")] == ["3", "1", "0", "2,500"]
    assert "true" in words(drawing) and "predicted" in words(drawing)


def test_a_table_tells_every_figure_under_its_name():
    drawing = {
        "kind": "table",
        "title": "t",
        "rows": ["stay"],
        "columns": ["recall", "F1"],
        "values": [[0.25, None]],
    }
    svg = parsed(drawing)
    places = {text.text: number(text, "x") for text in svg.iter("text")}
    assert places["0.25"] == places["recall"] < places["F1"], "a figure stands in its column"
    assert words(drawing) == ["t", "recall", "F1", "stay", "0.25"], "what is missing leaves its cell empty"
    assert svg.get("aria-label") == "t: stay: 0.25, "


def test_boards_share_a_scale_and_differences_tell_their_sign():
    frames = [
        {"name": "true", "values": [[0.0, 2.0]]},
        {"name": "predicted", "values": [[0.499, 1.0]]},
        {"name": "difference", "values": [[0.499, -1.0]]},
    ]
    drawing = {"kind": "boards", "title": "t", "frames": frames}
    cells = list(parsed(drawing).iter("rect"))
    assert [number(cell, "fill-opacity") for cell in cells] == [0.0, 0.5, 0.125, 0.25, 0.249, 0.5]
    above, below = cells[4].get("fill"), cells[5].get("fill")
    assert above == "var(--series-1)" and below == "var(--series-0)"
    assert [word for word in words(drawing) if "." in word][:6] == [
        "0.00",
        "2.00",
        "0.50",
        "1.00",
        "+0.50",
        "-1.00",
    ]


def test_the_rung_where_a_symptom_first_appears_is_marked_in_its_panel_alone():
    rungs = [
        {"name": name, "adds": "", "symptoms": {"return": {"value": 1.0}, "order": {"value": float(i)}}}
        for i, name in enumerate(("PPO", "opponents", "full"))
    ]
    svg = parsed({"kind": "ladder", "title": "t", "rungs": rungs, "first": {"order": "opponents"}})
    (band,) = svg.iter("rect")
    (diamond,) = svg.iter("polygon")
    middle = np.mean([float(point.split(",")[0]) for point in diamond.get("points", "").split()])
    assert number(band, "x") + number(band, "width") / 2 == pytest.approx(middle, abs=0.02)
    top = next(number(text, "y") for text in svg.iter("text") if text.text == "order")
    assert number(band, "y") > top, "the second panel"
    assert "order first at opponents" in svg.get("aria-label", "")


# --- the page -------------------------------------------------------------------------------------


def a_check(name: str, verdict: str, drawing: dict) -> dict:
    figures = {
        "figure": 1.0,
        "threshold": None,
        "unit": "",
        "n": 1,
        "p": None,
        "p_adjusted": None,
        "effect": None,
    }
    said = {"asks": "?", "kind": "exact", "statistic": "s", "next": "", "room": "envs", "area": "environment"}
    rest = {"by_seat": [], "explained_by": [], "seconds": 1.0, "drawing": drawing}
    return {"name": name, "verdict": verdict, **figures, **said, **rest}


def page_of(folder, checks: list[dict], **more) -> str:
    told = {"verdict": "fail", "headline": "h", "subject": "s", "game": "g", "checks": checks, **more}
    (folder / "findings.json").write_text(json.dumps(told))
    return write_audit_page(folder).read_text()


def test_pictures_of_failures_are_open_and_those_of_passes_closed(tmp_path):
    verdicts = ("fail", "warn", "pass", "not_run")
    page = page_of(tmp_path, [a_check(verdict, verdict, SAMPLES["boxes"]) for verdict in verdicts])
    opened = dict(re.findall(r"<details( open)?><summary>picture of (\w+)", page)[i][::-1] for i in range(4))
    assert opened == {"fail": " open", "warn": " open", "pass": "", "not_run": ""}
    assert page.count("<svg") == 4 and "http" not in page and "<script" not in page


def test_a_check_without_a_drawing_has_no_picture(tmp_path):
    assert "<details" not in page_of(tmp_path, [a_check("a", "fail", {})])


def test_the_foot_tells_what_the_findings_rest_on_as_far_as_they_say(tmp_path):
    checks = [a_check("a", "pass", {})]
    page = page_of(tmp_path, checks, scale={"games": 16}, versions={"jax": "0.8", "numpy": "2.3"}, seed=0)
    assert "scale: games 16" in page and "versions: jax 0.8, numpy 2.3" in page and "seed: 0" in page
    assert "versions:" not in page_of(tmp_path, checks)


def test_every_colour_a_picture_names_is_defined_for_light_and_dark(tmp_path):
    page = page_of(tmp_path, [a_check(kind, "fail", drawing) for kind, drawing in SAMPLES.items()])
    used = set(re.findall(r"var\((--[\w-]+)\)", page))
    light, dark = page.split("prefers-color-scheme: dark")
    assert used and all(f"{name}:" in light and f"{name}:" in dark.split("</style>")[0] for name in used)
    for number_of_colour in range(8):
        assert f"--series-{number_of_colour}:" in light


def test_infinite_values_leave_gaps_like_missing_ones():
    rows = [{"name": "a", "value": math.inf}, {"name": "b", "value": 1.0, "low": -math.inf, "high": 2.0}]
    told = words({"kind": "intervals", "title": "t", "rows": rows})
    assert "a" not in told and "+1" in told


# --- what checks leave to be drawn ----------------------------------------------------------------


def test_a_runs_seats_are_drawn_as_boxes_curves_ranks_and_effects(tmp_path):
    subject = Subject(stag_hunt(), "a run", ("ppo",) * SEATS, a_run(tmp_path / "run", shift=0.2))
    checks = {"level": level, "order": order, "any_seat": any_seat}
    told = {name: check(subject, Budget(), jax.random.key(0)) for name, check in checks.items()}
    boxes, curves = told["level"].drawing["drawings"]
    assert [len(group["values"]) for group in boxes["groups"]] == [SEEDS] * SEATS
    last = [line["y"][-1] for line in curves["lines"]]
    assert last == pytest.approx(
        [2.5, 2.7, 2.9, 3.1], abs=0.06
    )  # the end, and 0.2 more a seat; mean of eight
    assert all(low <= y <= high for line in curves["lines"] for low, y, high in _bands(line))
    assert np.mean(told["order"].drawing["values"], axis=0) == pytest.approx([1, 2, 3, 4], abs=0.3)
    apart = [row["value"] for row in told["any_seat"].drawing["rows"]]
    # a seat less the mean of the others: 0 - (0.2 + 0.4 + 0.6) / 3 = -0.4, then -0.4 / 3, 0.4 / 3, 0.4
    assert apart == pytest.approx([-0.4, -0.133, 0.133, 0.4], abs=0.05)
    for outcome in told.values():
        drawn = draw(outcome.drawing)
        assert "<svg" in drawn and 'class="soft"' not in drawn, "a picture and no sentence"


def _bands(line: dict) -> list[tuple[float, float, float]]:
    return list(zip(line["low"], line["y"], line["high"], strict=True))


def test_equal_returns_share_their_middle_rank():
    table = np.array([[1.0, 3.0, 3.0, 0.5], [2.0, 2.0, 2.0, 2.0]])
    assert _ranks(table, 0.1)["values"] == [[2.0, 3.5, 3.5, 1.0], [2.5] * 4]


def test_long_curves_are_thinned_by_averaging_neighbours():
    steps = np.arange(2 * MOST_POINTS)
    seeds = [pa.table({"step": steps, "seat": 0 * steps, "value": steps + 10.0 * seed}) for seed in (0, 1)]
    thin = _curve(pa.concat_tables(seeds), 0)
    assert len(thin["x"]) == MOST_POINTS and thin["x"][:2] == [0.5, 2.5]
    assert (thin["y"][0], thin["low"][0], thin["high"][0]) == (5.5, 0.5, 10.5)


def test_seats_are_drawn_in_the_one_feature_that_is_least_likely_by_chance():
    mean, error = np.array([[0.1, 0.3], [-0.2, 0.1]]), np.array([[0.01, 0.1], [0.1, 0.1]])
    drawing = seats_apart("t", [Effects([2, 0], mean, error)], 0.05)
    # the first feature: 0.1 is ten errors from 0; in the second nothing is more than three
    assert [(row["name"], row["value"]) for row in drawing["rows"]] == [("seat 0", -0.2), ("seat 2", 0.1)]
    assert drawing["rows"][1]["low"] == pytest.approx(0.1 - 3.8 * 0.01)
    assert "<svg" in draw(drawing)


def test_what_is_seen_in_another_order_by_each_is_not_drawn_as_equal_effects():
    turned = np.array([[0.3, -0.1, -0.2], [-0.1, -0.2, 0.3], [-0.2, 0.3, -0.1]])
    drawing = seats_apart("t", [Effects([0, 1, 2], turned, np.full((3, 3), 0.01))], 0.05)
    assert [row["value"] for row in drawing["rows"]] == [0.3, -0.1, -0.2]


def test_where_nothing_varies_there_is_no_effect_to_draw():
    nothing = Effects([0, 1], np.zeros((2, 0)), np.zeros((2, 0)))
    assert draw(seats_apart("starts", [nothing], 0.05)) == '<p class="soft">starts: no effects.</p>'


def test_differences_are_counted_by_field_and_seat():
    reward = np.zeros((2, 3, 2), bool)
    reward[:, 0, 1] = True
    state = np.zeros((2, 3, 1), bool)
    state[0, :2, 0] = True
    drawing = _differences({"state": state, "reward": reward}, 2)
    assert drawing["rows"] == ["state", "reward"]
    assert drawing["values"] == [[None, None, 2], [0, 2, None]]
    assert "<svg" in draw(drawing)
