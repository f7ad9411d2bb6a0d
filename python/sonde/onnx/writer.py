"""A network for inference as an ONNX file, opset 21.

It is written from the description of a graph (sonde_nn_model_describe) and the weights, and only
what leads to the outputs. The batch is open where the network works with another one: dimensions
that then differ have the name "batch". Most ops become one node under their values' names,
others several; dropout becomes Identity.

WRITERS[kind](w, attrs) writes the op at hand; it raises Unwritable if ONNX has none like it. It
calls w.step for each node but the last, which makes a value of its own name, and w.end for the
last, which makes the op's first output under its name:

    w.end("Mul", x, w.step("Sigmoid", x))
"""

import json
import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..command import Fault
from .recipes import recipe_of

TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE,
         "float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16,
         "int64": TensorProto.INT64, "int32": TensorProto.INT32, "bool": TensorProto.BOOL,
         "uint8": TensorProto.UINT8}
WRITERS: dict[str, Callable[["Writer", dict[str, Any]], None]] = {}
Attrs = dict[str, Any]


class Unwritable(Exception):
    """ONNX has no op like the one at hand."""


def writes(*kinds: str) -> Callable[[Any], Any]:
    def add(function: Any) -> Any:
        WRITERS.update(dict.fromkeys(kinds, function))
        return function
    return add


def read_weights(path: str) -> dict[str, Any]:
    """The arrays of a safetensors file."""
    types = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1",
             "BOOL": "?"}
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    arrays = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            arrays[name] = numpy.frombuffer(data[begin:end], types[entry["dtype"]]) \
                .reshape(entry["shape"])
    return arrays


class Writer:
    def __init__(self, graph: dict[str, Any]) -> None:
        self.graph, self.values, self.ops = graph, graph["values"], graph["ops"]
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []
        self.made = 0
        self.op: dict[str, Any] = {}
        self.needed: list[bool] = []
        self.makers = {op["out"][0]: op for op in self.ops}
        names = {value["name"] for value in self.values[1:] if value["name"]}
        stems = ("constant-", "between-", "unread-", "value-")
        self.prefix = next(prefix for prefix in ("", "onnx-", "made-", "sonde-")
                           if prefix == "sonde-" or not any(
                               name.startswith(prefix + stem) for name in names
                               for stem in stems))

    # --- values -------------------------------------------------------------------------

    def new_name(self, what: str) -> str:
        self.made += 1
        return f"{self.prefix}{what}-{self.made - 1}"

    def name(self, value: int) -> str:
        return self.values[value]["name"] or f"{self.prefix}value-{value}"

    def has(self, i: int) -> bool:
        return i < len(self.op["in"]) and self.op["in"][i] != 0

    def operand(self, i: int) -> str:
        """The name of input i of the op; "" for one that is left out."""
        return self.name(self.op["in"][i]) if self.has(i) else ""

    def all(self) -> list[str]:
        return [self.operand(i) for i in range(len(self.op["in"]))]

    def shape(self, i: int) -> list[int]:
        return list(self.values[self.op["in"][i]]["shape"])

    def dtype(self, i: int) -> str:
        return str(self.values[self.op["in"][i]]["dtype"])

    def out(self) -> dict[str, Any]:
        return dict(self.values[self.op["out"][0]])

    def varies(self, value: int, dim: int) -> bool:
        return dim in self.values[value]["batch"]

    # --- constants ----------------------------------------------------------------------

    def constant(self, array: Any) -> str:
        self.constants.append(numpy_helper.from_array(array, self.new_name("constant")))
        return self.constants[-1].name

    def scalar(self, number: float) -> str:
        return self.constant(numpy.array(float(number), numpy.float32))

    def ints(self, *numbers: int) -> str:
        return self.constant(numpy.array(numbers, numpy.int64))

    # --- nodes --------------------------------------------------------------------------

    def put(self, op: str, inputs: Any, name: str, output: int, attributes: Attrs) -> None:
        inputs = list(inputs)
        while inputs and inputs[-1] == "":  # left out at the end
            inputs.pop()
        outputs = [self.new_name("unread") for _ in range(output)] + [name]
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, **attributes))

    def step(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = self.new_name("between")
        self.put(op, inputs, name, 0, attributes)
        return name

    def end(self, op: str, *inputs: str, output: int = 0, **attributes: Any) -> None:
        self.put(op, inputs, self.name(self.op["out"][0]), output, attributes)

    def cut(self, x: str, axis: int, begin: int, end: int) -> str:
        return self.step("Slice", x, self.ints(begin), self.ints(end), self.ints(axis))

    def reshaped(self, x: str, *dims: int) -> str:
        return self.step("Reshape", x, self.ints(*dims))

    def turned(self, x: str, *order: int) -> str:
        return self.step("Transpose", x, perm=order)

    def truth(self, i: int) -> str:
        """Operand i as a bool."""
        return self.operand(i) if self.dtype(i) == "bool" else \
            self.step("Cast", self.operand(i), to=TensorProto.BOOL)

    # --- the whole ----------------------------------------------------------------------

    def find_live(self) -> set[int]:
        """What the outputs, without the loss, are computed from."""
        live = set(self.graph["outputs"])
        for op in reversed(self.ops):
            if live.isdisjoint(op["out"]):
                continue
            inputs = list(op["in"])
            if op["kind"] == "BatchNorm":  # how many batches it has seen: only training reads it
                inputs = inputs[:5 if op["attrs"]["affine"] else 3]
            live.update(inputs)
        return live

    def write_ops(self, live: set[int]) -> None:
        refused: dict[str, list[str]] = {}
        for self.op in self.ops:
            self.needed = [value in live for value in self.op["out"]] + [False] * 4
            kind = self.op["kind"]
            if not any(self.needed):
                continue
            try:
                if kind in WRITERS:
                    WRITERS[kind](self, self.op["attrs"])
                else:
                    self.write_recipe(kind, self.op["attrs"])
            except Unwritable:
                refused.setdefault(kind, []).append(self.values[self.op["out"][0]]["name"] or "")
        if refused:
            count = sum(map(len, refused.values()))
            listed = ", ".join(
                f"{kind} ({first[0]}{f' and {len(first) - 1} more' if first[1:] else ''})"
                for kind, first in refused.items())
            raise Fault("SONDE_EUNSUPPORTED", "ONNX",
                        f"{count} op{'s' * (count > 1)} that cannot be written: {listed}")

    def write_recipe(self, kind: str, attrs: Attrs) -> None:
        recipe = recipe_of(kind, attrs)
        if recipe is None:
            raise Unwritable
        first, second = map(float, attrs.get("number", (0, 0)))  # "Infinity" is a text in JSON
        numbers = {"A": first, "B": second, "-A": -first}
        made: list[str] = []

        def number(word: str) -> float:
            return numbers[word] if word in numbers else float(word)

        def operand(word: str) -> str:
            return self.operand("xyz".index(word)) if word in "xyz" else \
                made[int(word[1:]) - 1] if word[0] == "$" else self.scalar(number(word))

        parts = recipe.split("; ")
        for i, part in enumerate(parts):
            head, _, rest = part.partition("] ") if "[" in part else part.partition(" ")
            op, _, attribute = head.partition("[")
            key, _, value = attribute.partition(" ")
            extra: Attrs = {} if not key else \
                {key: value if value == "tanh" else number(value)}
            inputs = [operand(word) for word in rest.split()]
            if i == len(parts) - 1:
                self.end(op, *inputs, **extra)
            else:
                made.append(self.step(op, *inputs, **extra))

    def info(self, value: int) -> onnx.ValueInfoProto:
        entry = self.values[value]
        dims = ["batch" if i in entry["batch"] else size for i, size in enumerate(entry["shape"])]
        return helper.make_tensor_value_info(self.name(value), TYPES[entry["dtype"]], dims)

    def model(self, weights: dict[str, Any]) -> onnx.ModelProto:
        live = self.find_live()
        self.write_ops(live)
        tensors = [numpy_helper.from_array(weights[self.values[i]["name"]],
                                           self.values[i]["name"])
                   for i in sorted(live) if i and self.values[i]["source"] in
                   ("parameter", "buffer")]
        graph = helper.make_graph(
            self.nodes, "sonde", [self.info(i) for i in self.graph["inputs"] if i in live],
            [self.info(i) for i in self.graph["outputs"]], tensors + self.constants)
        return helper.make_model(graph, producer_name="sonde", ir_version=10,
                                 opset_imports=[helper.make_opsetid("", 21)])


def write(graph: dict[str, Any], weights: dict[str, Any], path: str) -> None:
    """Writes the file, whole or not at all."""
    from . import heads, layers, places  # noqa: F401  they fill WRITERS
    model = Writer(graph).model(weights)
    handle, made = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=".sonde-onnx-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(model.SerializeToString())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(made, 0o666 & ~mask)
        os.replace(made, path)
    except BaseException:
        os.unlink(made)
        raise
