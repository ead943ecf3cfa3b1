"""Replays show every thing and player where it was, who did what, and what it paid."""

import dataclasses
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image, ImageColor

from coplay.reports import board
from coplay.reports.episodes import load_episode, save_episode
from coplay.reports.replay import as_gif, as_html, as_text

# --- layout ----------------------------------------------------------------------------------------


def test_players_who_share_a_cell_stand_side_by_side_inside_it():
    for count in range(1, 9):
        for places in (board._side_by_side(count), board._beside_a_thing(count)):
            for i, one in enumerate(places):
                assert one.radius <= one.x <= 1 - one.radius and one.radius <= one.y <= 1 - one.radius
                for other in places[:i]:
                    assert np.hypot(one.x - other.x, one.y - other.y) >= one.radius + other.radius


def test_players_on_prey_leave_it_in_sight(three_hunters):
    places = np.array([[(0, 0), (0, 1), (-1, -1)]] * 3)
    alone, on_stag, _ = board.frames(dataclasses.replace(three_hunters(), players=places))[0].players
    assert alone == (0.5, 0.5, 0.3)
    assert on_stag.y > 0.7 and on_stag.radius < 0.2


def test_the_departed_have_no_place(three_hunters):
    assert board.frames(three_hunters())[2].players == [None, None, None]


def test_eight_players_have_eight_colours():
    assert len({board.colour(player) for player in range(8)}) == 8


# --- terminal --------------------------------------------------------------------------------------


def test_the_terminal_shows_the_whole_episode(three_hunters):
    first, second, last = as_text(three_hunters())
    assert first.splitlines() == [
        "4h1s_tiny  step 0 of 2",
        "+-------------+",
        "| 1   S   2   |",
        "| .   ### h3  |",
        "+-------------+",
        "1 ppo                              return 0",
        "2 ppo                              return 0",
        "3 nearest_hare                     return 0",
    ]
    assert second.splitlines()[2:4] == ["| .   S12 .   |", "| .   ### h3  |"]
    assert second.splitlines()[5] == "1 ppo           right           0  return 0"
    assert last.splitlines()[2:4] == ["| .   .   .   |", "| .   ### .   |"]
    assert last.splitlines()[5:] == [
        "1 ppo           hunt stag      +5  return 5",
        "2 ppo           hunt stag      +5  return 5",
        "3 nearest_hare  hunt hare      +1  return 1",
    ]


def test_who_has_left_is_out_and_keeps_the_return(three_hunters):
    episode = three_hunters()
    active = episode.active.copy()
    active[1, 2] = False
    last = as_text(dataclasses.replace(episode, active=active))[-1]
    assert last.splitlines()[-1] == "3 nearest_hare  out                return 1"


def test_a_thing_nobody_drew_a_symbol_for_shows_its_first_letter(three_hunters):
    episode = dataclasses.replace(three_hunters(), cells={"mushroom": np.array([[(0, 1)]] * 3)})
    assert "M" in as_text(episode)[0]


def test_a_coin_shows_whose_it_is(three_hunters):
    episode = dataclasses.replace(three_hunters(), cells={"coin of player 2": np.array([[(0, 1)]] * 3)})
    assert as_text(episode)[1].splitlines()[2] == "| .     (2)12 .     |"
    assert board.colour(1) in {getattr(shape, "fill", "") for shape in board.picture("coin of player 2")}


def test_a_game_without_a_board_shows_moves_only(three_hunters):
    episode = dataclasses.replace(
        three_hunters(), grid=(0, 0), cells={}, players=np.full((3, 3, 2), -1, dtype=int)
    )
    assert as_text(episode)[1].splitlines()[1] == "1 ppo           right           0  return 0"
    assert "<svg" not in as_html(episode)


# --- GIF -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gif(tmp_path_factory, three_hunters):
    path = tmp_path_factory.mktemp("gif") / "replays" / "one.gif"
    as_gif(three_hunters(), path)
    return Image.open(path)


def test_the_gif_has_one_frame_per_board_and_rests_on_the_last(gif):
    assert gif.n_frames == 3
    durations = []
    for frame in range(3):
        gif.seek(frame)
        durations.append(gif.info["duration"])
    assert durations == [400, 400, 2000]


def test_players_keep_their_colours_where_they_stand(gif):
    # cells are 96 px; the picture is 428 wide, so the board starts at (428 - 3 * 96) / 2 = 70, and 38 down
    expected = {0: {0: (0.5, 0.5), 1: (2.5, 0.5)}, 1: {0: (1.25, 0.78), 1: (1.75, 0.78)}}
    for number, places in expected.items():
        gif.seek(number)
        image = gif.convert("RGB")
        for player, (x, y) in places.items():
            spot = image.getpixel((round(70 + 96 * x - 11), round(38 + 96 * y)))
            wanted = ImageColor.getrgb(board.colour(player))
            assert np.abs(np.subtract(spot, wanted)).max() < 25, f"board {number}, player {player}: {spot}"


def test_a_walled_cell_is_dark_and_an_empty_one_light(gif):
    gif.seek(2)
    image = gif.convert("RGB")
    assert sum(image.getpixel((70 + 96 + 20, 38 + 96 + 50))) < 300
    assert sum(image.getpixel((70 + 20, 38 + 96 + 50))) > 650


def test_a_game_without_a_board_and_one_with_a_large_board_are_drawn_too(tmp_path, three_hunters):
    bare = dataclasses.replace(
        three_hunters(), grid=(0, 0), cells={}, players=np.full((3, 3, 2), -1, dtype=int)
    )
    as_gif(bare, tmp_path / "bare.gif")
    as_gif(dataclasses.replace(three_hunters(), grid=(2, 32)), tmp_path / "large.gif")
    assert Image.open(tmp_path / "bare.gif").height < 150
    assert Image.open(tmp_path / "large.gif").width == 32 * 28 + 28


# --- web page --------------------------------------------------------------------------------------


def data_of(page: str) -> dict:
    return json.loads(re.search(r"var data = (\{.*\});", page).group(1))


def test_the_page_carries_the_episode(three_hunters):
    data = data_of(as_html(three_hunters()))
    assert data["things"][0] == [[[1, 1]], [[0, 1]], [[1, 2]]]
    assert data["spots"][0][0] == [0.5, 0.5, 0.3] and data["spots"][2] == [None, None, None]
    assert data["last"] == [["", "", ""], ["right", "left", "stay"], ["hunt stag", "hunt stag", "hunt hare"]]
    assert data["returns"][2] == ["5", "5", "1"]


def test_the_page_needs_nothing_from_elsewhere(three_hunters):
    page = as_html(three_hunters())
    addresses = re.findall(r"https?://[^\s\"']+|src=|@import|url\(", page)
    assert addresses == ["http://www.w3.org/2000/svg"], "the name of SVG itself is all there may be"
    assert page.isascii(), "it reads right whatever encoding the page around it has"


def test_names_cannot_break_out_of_the_page(three_hunters):
    evil = "</script><script>alert(1)</script>"
    episode = dataclasses.replace(
        three_hunters(members=(evil, '"><img src=x onerror=alert(1)>', "学习者 & co")),
        game=evil,
        action_names=(evil, *three_hunters().action_names[1:]),
        cells={evil: np.array([[(0, 1)]] * 3)},
    )
    page = as_html(episode)
    assert page.count("<script>") == 1 and page.count("</script>") == 1
    assert "<img" not in page and "&#23398;" in page
    assert data_of(page)["game"] == evil


def test_two_replays_on_a_page_do_not_share_ids(three_hunters):
    ids = [
        set(re.findall(r'id="([^"]+)"', as_html(three_hunters(tuple(members))))) for members in ("abc", "xyz")
    ]
    assert ids[0] and ids[0].isdisjoint(ids[1])


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser")
def test_a_real_browser_plays_it_to_the_end(tmp_path, three_hunters):
    press = "<script>document.querySelector('.coplay-replay button').click()</script>"
    (tmp_path / "page.html").write_text("<!doctype html>" + as_html(three_hunters()) + press)
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    shown = subprocess.run(
        ["chromium", *options, "--virtual-time-budget=5000", "--dump-dom", (tmp_path / "page.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    assert "step 2 of 2" in shown and ">Play</button>" in shown
    assert "<td>hunt stag</td><td>+5</td><td>5</td>" in shown


# --- what players think ----------------------------------------------------------------------------


@pytest.fixture
def thinking(three_hunters):
    """The first hunter holds beliefs: of the second, who is after the stag, and the third, after a hare."""
    belief = np.full((2, 3, 2, 2), np.nan, np.float32)
    belief[:, 0] = [[[0.6, 0.4], [0.3, 0.7]], [[0.9, 0.1], [0.05, 0.95]]]
    return dataclasses.replace(three_hunters(), goal_names=("stag", "hare"), belief=belief)


def test_beliefs_stand_beside_the_player_who_holds_them(thinking):
    first, second, last = (text.splitlines()[-3:] for text in as_text(thinking))
    assert first[0].endswith("thinks 2 stag 0.60, 3 hare 0.70")
    assert second[0].endswith("thinks 2 stag 0.90, 3 hare 0.95")
    assert all("thinks" not in line for line in [*first[1:], *second[1:], *last])


def test_beliefs_are_kept_in_the_file_and_shown_on_the_page_and_in_the_picture(
    thinking, three_hunters, tmp_path
):
    save_episode(tmp_path / "one.npz", thinking)
    assert_array_equal(load_episode(tmp_path / "one.npz").belief, thinking.belief)
    assert "2 stag 0.60, 3 hare 0.70" in as_html(thinking)
    assert "Thinks" not in as_html(three_hunters())
    as_gif(thinking, tmp_path / "thinking.gif")
    as_gif(three_hunters(), tmp_path / "plain.gif")
    with Image.open(tmp_path / "thinking.gif") as tall, Image.open(tmp_path / "plain.gif") as plain:
        assert tall.height > plain.height
