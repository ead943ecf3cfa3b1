"""What this machine can do at most: float32 matrix products on all cores."""

import os
import platform
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from coplay.bench.item import seconds_of

SIDE, PRODUCTS = 512, 40


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "devices": len(jax.devices()),
        "matmul_peak_gflops": matmul_peak() / 1e9,
    }


def matmul_peak() -> float:
    """FLOP per second of 512 x 512 products: one device with all threads or all devices, if that is more."""
    work = products()
    return best_rate(work, seconds_of(*[call for call, _ in work]))


def products() -> list[tuple[Callable[[], Any], float]]:
    """Calls that multiply on one device and on all of them, each with its FLOP."""
    return [_products_on(count) for count in sorted({1, len(jax.devices())})]


def best_rate(work: list[tuple[Callable[[], Any], float]], seconds: list[float]) -> float:
    return max(flop / second for (_, flop), second in zip(work, seconds, strict=True))


def _products_on(devices: int) -> tuple[Callable[[], Any], float]:
    @jax.jit
    def chain(x):
        return jax.lax.fori_loop(0, PRODUCTS, lambda _, y: (y @ x) * (1.0 / SIDE), x)

    operands = [jax.device_put(jnp.ones((SIDE, SIDE)), device) for device in jax.devices()[:devices]]
    return lambda: [chain(x) for x in operands], devices * PRODUCTS * 2.0 * SIDE**3


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        return names[0] if names else platform.processor()
    except OSError:
        return platform.processor()
