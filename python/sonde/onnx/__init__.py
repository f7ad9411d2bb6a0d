"""Networks from ONNX files, and into them.

    from sonde import onnx
    y, = onnx.run("net.onnx", {"input": x})     # NumPy arrays
    network = onnx.load("net.onnx")
    onnx.save(network, "copy.onnx")

The command reads and writes ONNX with the same modules: sonde train net.onnx. The package onnx
parses and checks the files: pip install sonde[onnx].
"""

import os
from typing import Any

from ..command import Fault, needs

try:
    import numpy
    import onnx as _  # noqa: F401
except ImportError as error:
    needs(error.name or "onnx", "onnx")

from . import layer_ops, move_ops, plain_ops  # noqa: F401  they fill the table
from .reader import Importer, read_file

__all__ = ["Fault", "Network", "load", "run", "save"]


class Network:
    """A network of a file: graph (sonde._sonde.Graph), inputs and outputs, in the file's order."""

    def __init__(self, importer: Importer) -> None:
        self.graph = importer.graph
        self.inputs: list[str] = importer.input_names
        self.outputs: list[str] = importer.outputs
        self.batch = importer.batch if importer.shadow is None else 0  # the only one; 0: any
        self.opset = importer.opset
        self.last_op: str = importer.last_op()
        self._importer = importer  # keeps the memory of the weights

    def run(self, arrays: Any) -> list[Any]:
        """The outputs for arrays of the inputs: a dict by name, or a list in their order."""
        given = [arrays[name] for name in self.inputs] if isinstance(arrays, dict) else \
            list(arrays)
        tensors = tuple(self._importer.fit(i, value) for i, value in enumerate(given))
        batch = tensors[0].shape[0] if self.batch == 0 else self.batch
        tensors = tuple(tensor for tensor, (_, value) in zip(tensors, self._importer.inputs)
                        if value.id in self._importer.read)
        session = self.graph.session(
            False, (1, 1, 1, False, 0, 1, 0, 0, None, 0, False, batch), None, ())
        session.run(tensors, ())
        results = []
        for i in range(len(self.outputs)):
            dtype, shape = session.output(i)
            results.append(numpy.empty(shape, dtype))
            session.fetch(i, results[-1])
        return results

    def save_plan(self, path: str) -> None:
        """A plan for the command."""
        self.graph.plan(path, self._importer.batch,
                        f"{self.batch} {self.opset} {self.last_op or '-'}")


def load(path: str | os.PathLike[str], *, shape: tuple[int, ...] = (),
         one_output: bool = False) -> Network:
    """The network of a file of opset 13 to 21. shape: that of a sample of the first input,
    where the file leaves dimensions open; one_output: the first output alone."""
    name = os.fspath(path)
    return Network(Importer(read_file(name), name, tuple(shape), one_output))


def run(path: str | os.PathLike[str], arrays: Any) -> list[Any]:
    """The outputs of a file for arrays of its inputs: a dict by name, or a list."""
    values = list(arrays.values()) if isinstance(arrays, dict) else list(arrays)
    first = numpy.asarray(values[0]) if values else numpy.zeros(())
    proto = read_file(os.fspath(path))
    if isinstance(arrays, dict) and proto.graph.input and proto.graph.input[0].name in arrays:
        first = numpy.asarray(arrays[proto.graph.input[0].name])
    return Network(Importer(proto, os.fspath(path), first.shape[1:], False)).run(arrays)


def save(network: Network, path: str | os.PathLike[str]) -> None:
    """Writes a network for inference as ONNX of opset 21."""
    import json
    import tempfile

    from .writer import read_weights, write
    with tempfile.TemporaryDirectory() as folder:
        weights = os.path.join(folder, "weights.safetensors")
        network.graph.weights(weights)
        write(json.loads(network.graph.describe()), read_weights(weights), os.fspath(path))
