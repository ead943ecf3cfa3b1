"""Every test runs with shapes and types checked at each call, and with silent broadcasting off."""

import os
from pathlib import Path

from jaxtyping import install_import_hook

install_import_hook("coplay", "beartype.beartype")

import jax  # noqa: E402

CACHE = Path(os.environ.get("COPLAY_CACHE", Path(__file__).parent.parent / ".cache"))

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_compilation_cache_dir", str(CACHE / "programs"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
