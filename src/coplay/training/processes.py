"""Processes beside this one: each starts afresh, and none outlives the one that started it."""

import multiprocessing
import os
import threading

from coplay.training.devices import keep_compiled_programs, prepare

FRESH = multiprocessing.get_context("spawn")  # a fork would share JAX's threads, which do not survive it


def begin(devices: int = 1) -> None:
    """First of all in a new process."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    keep_compiled_programs()
    prepare(devices)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
