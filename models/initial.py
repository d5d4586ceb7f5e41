"""The initial model: one flat parameter vector, the same for every policy and engine under one seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.module_workload import ModuleWorkload
from hetsgd.models.streams import stream
from hetsgd.models.workload import Workload


def initial_parameters(workload: Workload, seed: int) -> NDArray[np.floating]:
    """Parameters (P,) at the workload's precision; layer k draws from its own stream, biases are 0.

    A module starts from the parameters it was given with, whatever the seed.
    """
    if isinstance(workload, ModuleWorkload):
        return np.frombuffer(workload.start.data, dtype=workload.precision).copy()
    flat = np.zeros(workload.parameters, dtype=workload.precision)
    for index, layer in enumerate(workload.layers):
        scale = workload.initial_scale
        if workload.initial != "normal":
            scale *= np.sqrt(2.0 / (layer.inputs + layer.outputs))
        size = layer.inputs * layer.outputs
        weights = stream(seed, "initial model", index).normal(0.0, scale, size)
        if workload.initial == "centred" and index:
            matrix = weights.reshape(layer.inputs, layer.outputs)
            weights = (matrix - matrix.mean(axis=0)).ravel()
        flat[layer.weight_offset : layer.weight_offset + size] = weights
    return flat
