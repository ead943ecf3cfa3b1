"""What this machine can do at most: float32 matrix products on all cores."""

import os
import platform
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
    return max(_peak_of(1), _peak_of(len(jax.devices())))


def _peak_of(devices: int) -> float:
    chosen = jax.devices()[:devices]

    @jax.jit
    def chain(x):
        return jax.lax.fori_loop(0, PRODUCTS, lambda _, y: (y @ x) * (1.0 / SIDE), x)

    operands = [jax.device_put(jnp.ones((SIDE, SIDE)), device) for device in chosen]
    seconds = seconds_of(lambda: [chain(x) for x in operands])
    return devices * PRODUCTS * 2 * SIDE**3 / seconds


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        return names[0] if names else platform.processor()
    except OSError:
        return platform.processor()
