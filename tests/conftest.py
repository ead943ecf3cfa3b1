"""Every test runs with shapes and types checked at each call, and with silent broadcasting off.

Of a family marked `sampled(n)`, n members are tried, others whenever the product changes, and all with
`--whole`."""

import hashlib
import os
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

install_import_hook("coplay", "beartype.beartype")

import jax  # noqa: E402

CACHE = Path(os.environ.get("COPLAY_CACHE", Path(__file__).parent.parent / ".cache"))

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_compilation_cache_dir", str(CACHE / "programs"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


MOST_BYTES = 4 * 2**30  # of a worker, before it lets go of what it has compiled


@pytest.fixture(autouse=True, scope="module")
def programs_are_let_go():
    """Programs of a hundred files are more than two workers have room for."""
    yield
    if resident_bytes() > MOST_BYTES:
        jax.clear_caches()


def resident_bytes() -> int:
    """What this process holds in memory; 0 where the system does not say."""
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if pages.exists() else 0


def pytest_addoption(parser):
    parser.addoption("--whole", action="store_true", help="try every member of a family, not a sample")


def pytest_collection_modifyitems(config, items):
    """Tests of a file share what they compile, so they stay together, and so do all that read the same walks.
    Those that train for long share nothing."""
    if not config.getoption("--whole"):
        left_out = beside_the_sample(items)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        group = item.path.stem
        if item.path.parent.name == "envs" or item.path.name == "test_games.py":
            group = "walks"
        if item.get_closest_marker("optimised"):
            group = item.nodeid
        item.add_marker(pytest.mark.xdist_group(group))


def beside_the_sample(items) -> set:
    """Members of sampled families that are not tried with the product as it is."""
    families = defaultdict(list)
    for item in items:
        if marker := item.get_closest_marker("sampled"):
            families[item.nodeid.split("[")[0], marker.args[0]].append(item)
    product = as_committed() if families else ""

    def place(item) -> bytes:
        return hashlib.sha256(f"{product}{item.nodeid}".encode()).digest()

    return {item for (_, size), family in families.items() for item in sorted(family, key=place)[size:]}


def as_committed() -> str:
    """Git's name for the product's code; nothing where the project is no repository."""
    asked = ["git", "rev-parse", "HEAD:src"]
    return subprocess.run(
        asked, capture_output=True, text=True, cwd=Path(__file__).parent, check=False
    ).stdout.strip()
