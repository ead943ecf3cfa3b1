"""Networks as Equinox modules, so that weights are pytrees. NETWORKS is the catalogue.

Each entry builds one network from a key, its input and output sizes, its hidden widths, the gain of
its output layer, and the shape of the board its input rows begin with (None where there is none).
"""

from collections.abc import Callable
from typing import Any

from coplay.nets.mlp import CNN, MLP
from coplay.nets.recurrent import gru


def _mlp(key, inputs, hidden, outputs, output_gain, planes=None, activation="tanh"):
    return MLP(key, inputs, hidden, outputs, output_gain, activation)


def _gru(key, inputs, hidden, outputs, output_gain, planes=None, activation="tanh"):
    return gru(key, inputs, hidden, outputs, output_gain, None, activation)


NETWORKS: dict[str, Callable[..., Any]] = {"mlp": _mlp, "cnn": CNN, "gru": _gru, "cnn_gru": gru}
