"""A network of the engine from the messages of an ONNX file.

Names come first: every value of the file is a Slot. One pass from the outputs back finds the
nodes that count; one pass forward translates them. The functions of ops.py either compute a
constant from constants, or emit ops of the engine.

The batch. A network has a leading dimension that a session chooses later. A file may fix it,
name it, and compute with it. So the graph is built twice, in the graph and in a shadow of it,
whose batches differ by one: a Size is the size of a dimension in either, and a constant is a
pair of arrays. Where the two differ, the number depends on the batch.
"""

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import google.protobuf.message
import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from .. import _sonde
from ..command import Fault
from .table import OPS

OLDEST, NEWEST, MOST_FOLDED = 13, 21, 1 << 16
ROLE = {"weight": 0, "bias": 1, "buffer": 2, "input": 7, "output": 8, "activation": 9}
FLOATS = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
DTYPES = {**dict.fromkeys(FLOATS, "float32"), TensorProto.INT64: "int64",
          TensorProto.INT32: "int64", TensorProto.BOOL: "bool"}

# Nodes that are computed at once where their inputs are known.
FOLDED = {"Add", "Sub", "Mul", "Div", "Mod", "Pow", "Max", "Min", "Equal", "Less", "LessOrEqual",
          "Greater", "GreaterOrEqual", "And", "Or", "Xor", "Neg", "Abs", "Sqrt", "Reciprocal",
          "Floor", "Ceil", "Round", "Exp", "Log", "Sin", "Cos", "Not", "Sign", "Cast", "CastLike",
          "Where", "Range", "ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin", "Concat",
          "Slice", "Trilu", "ConstantOfShape", "Squeeze", "Transpose", "Identity", "Reshape",
          "Unsqueeze", "Gather", "Expand"}
# Those that there are of constants and shapes alone.
KNOWN_ONLY = ("Shape", "Size", "Constant", "Range", "ConstantOfShape", "ReduceProd", "Trilu")


class Value(NamedTuple):
    """A value of the graph and of its shadow (0: there is no shadow)."""
    id: int
    shadow: int


class Size(NamedTuple):
    """A size in the graph and in its shadow."""
    n: int
    m: int

    @property
    def fixed(self) -> bool:
        return self.n == self.m


ONE, OPEN = Size(1, 1), Size(-1, -1)


@dataclass
class Slot:
    """A named value of the file."""
    name: str
    number: int                        # in the order of names
    initial: TensorProto | None = None
    producer: int = -1                 # a node's index
    ready: bool = False
    leaves: bool = False               # another module reads it, or it is an output
    known: tuple[Any, Any] | None = None
    value: Any = None                  # a Value; a list of them, of a sequence
    owner: str | None = None           # the module that read it first
    turned: Value | None = None        # an initializer's transpose as a parameter


@dataclass
class Entry:
    """A node of the file, or one in the place of others."""
    proto: onnx.NodeProto
    module: str = ""


@dataclass
class Tensors:
    """Parameters and buffers by name, and the arrays that the graph borrows."""
    values: dict[str, Value] = field(default_factory=dict)
    roles: dict[int, str] = field(default_factory=dict)
    arrays: list[Any] = field(default_factory=list)


def read_file(path: str) -> onnx.ModelProto:
    """The messages of a file, with external data."""
    try:
        return onnx.load(path)
    except google.protobuf.message.DecodeError:
        raise Fault("SONDE_EFORMAT", path, "damaged, cut short, or not an ONNX file",
                    "an ONNX file") from None
    except (onnx.checker.ValidationError, FileNotFoundError) as error:
        if isinstance(error, FileNotFoundError) and error.filename == path:
            raise
        raise Fault("SONDE_EFORMAT", path, _first_line(error),
                    "external data in the folder of the file") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


def is_generated(name: str) -> bool:
    """Whether an exporter made a name up, so that it is not the name of a parameter."""
    return name.isdigit() or name == "" or name.startswith(
        ("onnx::", "/", "val_", "_val_", "_to_copy", "lifted_tensor", "c_lifted_tensor"))


def _is_good_path(path: str) -> bool:
    return len(path) <= 200 and path.isprintable() and "___" not in path


def _scope(name: str) -> str:
    """/layer1/layer1.0/conv1/Conv: layer1.0.conv1. A part that repeats the one before it and
    continues with a dot replaces it."""
    parts: list[str] = []
    for part in name.split("/")[1:-1]:
        if parts and part.startswith(parts[-1] + "."):
            parts[-1] = part
        else:
            parts.append(part)
    return ".".join(parts)


def aligned(array: Any) -> Any:
    """A copy whose memory the graph can borrow: contiguous, aligned to 64 bytes."""
    block = numpy.empty(array.nbytes + 64, numpy.uint8)
    start = -block.ctypes.data % 64
    copy = block[start:start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class Importer:
    """Builds graph; raises Fault."""

    def __init__(self, proto: onnx.ModelProto, path: str, shape: tuple[int, ...],
                 one_output: bool) -> None:
        self.proto, self.path, self.shape_asked = proto, path, shape
        self.graph: Any = _sonde.Graph()
        self.shadow: Any = _sonde.Graph()
        self.slots: dict[str, Slot] = {}
        self.entries = [Entry(node) for node in proto.graph.node]
        self.outputs = [out.name for out in proto.graph.output][:1 if one_output else None]
        self.tensors = Tensors()
        self.last = 0                   # the last value of the graph
        self.op_values: set[int] = set()
        self.read: set[int] = set()     # values that ops read
        self.calls: dict[str, int] = {}  # outputs of modules so far
        self.batch, self.open_batch = 0, False
        self.inputs: list[tuple[str, Value]] = []
        self.opset = self._find_opset()
        self._name_all()
        self._check_ops()
        self._check()
        from .layer_ops import fuse
        fuse(self)
        self._make_inputs()
        self._translate_all()
        self._mark_outputs()

    @property
    def input_names(self) -> list[str]:
        return [name for name, _ in self.inputs]

    def last_op(self) -> str:
        """The op that makes the first output."""
        slot = self.slots[self.outputs[0]]
        return self.entries[slot.producer].proto.op_type if slot.producer >= 0 else ""

    def refuse(self, code: str, found: str, expected: str = "") -> NoReturn:
        raise Fault(code, self.path, found, expected)

    # --- names ------------------------------------------------------------------------

    def _find_opset(self) -> int:
        for entry in self.proto.opset_import:
            if entry.domain in ("", "ai.onnx"):
                if not OLDEST <= entry.version <= NEWEST:
                    self.refuse("SONDE_EUNSUPPORTED", f"opset {entry.version}",
                                f"opset {OLDEST} to {NEWEST}")
                return int(entry.version)
        self.refuse("SONDE_EFORMAT", "no opset of ai.onnx", "an ONNX model")

    def _slot(self, name: str) -> Slot:
        if name not in self.slots:
            self.slots[name] = Slot(name, len(self.slots))
        return self.slots[name]

    def _name_all(self) -> None:
        graph = self.proto.graph
        for tensor in graph.initializer:
            slot = self._slot(tensor.name)
            slot.initial, slot.ready = tensor, True
        for value in graph.input:
            self._slot(value.name).ready = True
        for index, node in enumerate(graph.node):
            for name in filter(None, node.output):
                self._slot(name).producer = index

    def _check(self) -> None:
        try:
            onnx.checker.check_model(self.proto)
        except Exception as error:  # its own classes, and ValueError of protobuf
            self.refuse("SONDE_EFORMAT", _first_line(error), "a valid ONNX model")
        if not self.outputs:
            self.refuse("SONDE_EFORMAT", "the graph has no outputs", "an output")
        for name in self.outputs:
            if name not in self.slots:
                self.refuse("SONDE_EFORMAT", f"nothing makes the output '{name}'")

    # --- which nodes count ------------------------------------------------------------

    def _find_live(self) -> set[int]:
        """The nodes that lead to an output."""
        live: set[int] = set()
        for name in self.outputs:
            if name in self.slots:
                self.slots[name].leaves = True
                live.add(self.slots[name].producer)
        for index in reversed(range(len(self.entries))):
            if index in live:
                live.update(self.slots[name].producer
                            for name in self.entries[index].proto.input if name in self.slots)
        live.discard(-1)
        return live

    def _check_ops(self) -> None:
        """Raises one error that lists all unsupported ops with their nodes."""
        found: dict[str, list[str]] = {}
        for index in sorted(self._find_live()):
            node = self.entries[index].proto
            known = node.op_type in OPS or node.op_type in KNOWN_ONLY
            if not known or node.domain not in ("", "ai.onnx"):
                found.setdefault(node.op_type, []).append(node_name(node))
        if found:
            count = sum(map(len, found.values()))
            listed = ", ".join(f"{op} ({', '.join(names)})" for op, names in found.items())
            self.refuse("SONDE_EUNSUPPORTED", f"{count} node{'s' * (count > 1)} with "
                        f"unsupported ops: {listed}", "the ops of docs/onnx.md")

    # --- modules ----------------------------------------------------------------------

    def _module_name(self, node: onnx.NodeProto) -> str:
        """The scope that torch's newer exporter writes; else what stands before the last dot of
        a parameter's name; else the scope in the node's name. "": the root."""
        for entry in node.metadata_props:
            if entry.key == "pkg.torch.onnx.name_scopes":
                scopes = re.findall(r"'([^']*)'", entry.value)
                if len(scopes) > 1 and scopes[-2] and _is_good_path(scopes[-2]):
                    return str(scopes[-2])
        for name in node.input:
            slot = self.slots.get(name)
            if slot and slot.initial is not None and "." in name and not is_generated(name):
                path = name.rpartition(".")[0]
                return path if _is_good_path(path) else ""
        path = _scope(node.name) if node.name.startswith("/") else ""
        return path if _is_good_path(path) else ""

    def _find_modules(self) -> None:
        for entry in self.entries:
            entry.module = self._module_name(entry.proto)
        for entry in self.entries:
            for name in entry.proto.input:
                slot = self.slots.get(name)
                if slot and slot.producer >= 0 and \
                        self.entries[slot.producer].module != entry.module:
                    slot.leaves = True

    # --- inputs and outputs -----------------------------------------------------------

    def _read_shape(self, info: onnx.ValueInfoProto, asked: tuple[int, ...]) -> list[int]:
        dims = info.type.tensor_type.shape.dim
        if not info.type.tensor_type.HasField("shape") or not 1 <= len(dims) <= 8:
            self.refuse("SONDE_ESHAPE", f"the input '{info.name}' is none",
                        "a tensor of 1 to 8 dimensions")
        if asked and len(asked) + 1 != len(dims):
            self.refuse("SONDE_ESHAPE", f"the input '{info.name}' has {len(dims)} dimensions",
                        f"{len(asked) + 1}, as the job says")
        for i, dim in enumerate(dims):
            if dim.HasField("dim_value") and dim.dim_value < 1:
                self.refuse("SONDE_ESHAPE", f"dimension {i} of the input '{info.name}' is "
                            f"{dim.dim_value}", "at least 1")
        if self.batch == 0:  # the first input
            self.open_batch = not dims[0].HasField("dim_value")
            self.batch = 2 if self.open_batch else int(dims[0].dim_value)
        shape = [self.batch]
        for i, dim in enumerate(dims[1:], 1):
            if not dim.HasField("dim_value") and not asked:
                self.refuse("SONDE_EINVAL", f"the input '{info.name}' has an open dimension {i}, "
                            f"'{dim.dim_param}'", "its shape, as input: [3, 224, 224] of a job")
            shape.append(int(dim.dim_value) if dim.HasField("dim_value") else asked[i - 1])
            if asked and shape[-1] != asked[i - 1]:
                self.refuse("SONDE_ESHAPE", f"dimension {i} of the input '{info.name}' is "
                            f"{shape[-1]}", f"{asked[i - 1]}, as the job says")
        return shape

    def _make_inputs(self) -> None:
        asked = self.shape_asked
        for info in self.proto.graph.input:
            slot = self.slots[info.name]
            if slot.initial is not None:
                continue  # a default that a caller may replace: not here
            shape = self._read_shape(info, asked)
            dtype = DTYPES.get(info.type.tensor_type.elem_type)
            if dtype is None:
                self.refuse("SONDE_EDTYPE", f"the input '{info.name}' is of "
                            f"{type_name(info.type.tensor_type.elem_type)}",
                            "float32, int64 or bool")
            model = self.graph.input(numpy.empty(shape, dtype))
            shape[0] += 1
            slot.value = Value(model, self.shadow.input(numpy.empty(shape, dtype)))
            self.last = model
            self.graph.name(model, "", self.keep_name(slot.name), ROLE["input"], False)
            self.inputs.append((info.name, slot.value))
            asked = ()
        if not self.inputs:
            self.refuse("SONDE_EFORMAT", "the graph has no inputs", "an input")

    def fit(self, index: int, value: Any) -> Any:
        """An array for an input, of its dtype."""
        dtype = self.graph.dtype_of(self.inputs[index][1].id)
        return numpy.ascontiguousarray(numpy.asarray(value), dtype)

    def _mark_outputs(self) -> None:
        for name in self.outputs:
            value = self.slots[name].value
            if not isinstance(value, Value):
                self.refuse("SONDE_EUNSUPPORTED", f"the output '{name}' is a "
                            f"{'sequence' if value else 'constant'}",
                            "a value that nodes compute")
            self.graph.output(value.id)
            self.read.add(value.id)

    # --- nodes ------------------------------------------------------------------------

    def _translate_all(self) -> None:
        live = self._find_live()  # after fusing
        self._find_modules()
        for index in sorted(live):
            Node(self, self.entries[index]).translate()

    def keep_name(self, name: str) -> str:
        """A name without ___, which separates the parts of names of gradients."""
        kept = re.sub("_{3,}", "__", name)
        return f"{kept}-{self.slots[name].number}" \
            if kept != name and kept in self.slots and name in self.slots else kept

    def is_free(self, name: str) -> bool:
        return name not in self.slots and name not in self.tensors.values

    def lose_shadow(self, node: "Node", error: Any) -> None:
        """The shadow cannot follow: the file is for its batch alone."""
        if self.open_batch:
            node.refuse(error.code, f"not for every batch: {error.found}", error.expected)
        self.shadow = None

    def tensor(self, node: "Node", name: str, array: Any, role: str) -> Value:
        """A new tensor of both graphs."""
        if array.size == 0:
            node.refuse("SONDE_ESHAPE", f"'{name}' is empty", "at least 1 element")
        memory = aligned(array)
        self.tensors.arrays.append(memory)
        trained = role != "buffer"
        try:
            model = self.graph.tensor(name, memory, trained, False)
            self.graph.name(model, node.module, name, ROLE[role], False)
            shadow = self.shadow.tensor(name, memory, trained, False) if self.shadow else 0
        except _sonde.SondeError as error:
            node.refuse(error.code, f"'{name}': {error.found}", error.expected)
        self.last = model
        made = self.tensors.values[name] = Value(model, shadow)
        self.tensors.roles[model] = role
        return made


def node_name(node: onnx.NodeProto) -> str:
    return node.name or (node.output[0] if node.output else "")


def type_name(number: int) -> str:
    """ "FLOAT8E4M3FN" of a type of elements."""
    return TensorProto.DataType.Name(number).lower() if number in TensorProto.DataType.values() \
        else f"type {number}"


class Node:
    """A node that is translated."""

    def __init__(self, importer: Importer, entry: Entry) -> None:
        self.importer, self.proto, self.module = importer, entry.proto, entry.module
        self.op = entry.proto.op_type
        self.first = importer.last + 1  # the first value that it can make
        self.attributes = {a.name: helper.get_attribute_value(a) for a in entry.proto.attribute}

    def refuse(self, code: str, found: str, expected: str = "") -> NoReturn:
        self.importer.refuse(code, f"node '{node_name(self.proto)}' ({self.op}): {found}",
                             expected)

    def unsupported(self, found: str, expected: str = "") -> NoReturn:
        self.refuse("SONDE_EUNSUPPORTED", found, expected)

    def translate(self) -> None:
        if self._fold():
            return
        if self.op in KNOWN_ONLY:
            self.unsupported("it is computed from values",
                             "inputs that are known before the network runs")
        made = OPS[self.op](self)
        for output, value in enumerate(made if isinstance(made, list) else [made]):
            if value is not None:
                self.give(output, value)
        for k, name in enumerate(self.proto.output):
            slot = self.importer.slots.get(name)
            if name and slot and not slot.ready and slot.leaves:
                self.unsupported(f"its output {k} is not computed here")

    # --- attributes and inputs ----------------------------------------------------------

    def get(self, name: str, fallback: Any) -> Any:
        value = self.attributes.get(name, fallback)
        return value.decode() if isinstance(value, bytes) else value

    def word(self, name: str, fallback: str, words: dict[str, str]) -> str:
        """The engine's word for that of an attribute."""
        said = self.get(name, fallback)
        if said not in words:
            self.unsupported(f"{name} is '{said}'", " or ".join(words))
        return words[said]

    def has(self, i: int) -> bool:
        return i < len(self.proto.input) and self.proto.input[i] != ""

    def slot(self, i: int) -> Slot | None:
        return self.importer.slots[self.proto.input[i]] if self.has(i) else None

    def initial(self, i: int) -> TensorProto | None:
        slot = self.slot(i)
        return slot.initial if slot else None

    # --- constants ----------------------------------------------------------------------

    def known(self, i: int) -> tuple[Any, Any] | None:
        """The numbers of input i where they are known: for the graph, for the shadow."""
        slot = self.slot(i)
        if slot is None:
            return None
        if slot.known is None and slot.initial is not None and slot.value is None and \
                _is_constant(slot) and numpy.prod(slot.initial.dims) <= MOST_FOLDED:
            array = to_array(slot.initial)
            slot.known = (array, array)
        return slot.known

    def number(self, i: int, what: str, fallback: float) -> float:
        """One number that input i must be."""
        known = self.known(i)
        if not self.has(i):
            return fallback
        if known is None or known[0].size != 1 or not _same(known):
            self.unsupported(f"{what} is computed from values",
                             "one number that is known before the network runs")
        return float(known[0].reshape(()))

    def sizes(self, i: int, what: str) -> list[Size]:
        """The numbers of input i, which may depend on the batch."""
        known = self.known(i)
        if known is None or known[0].ndim > 1 or known[0].size > 64 * 8:
            self.unsupported(f"{what} is computed from values",
                             "numbers that are known before the network runs")
        return [Size(int(a), int(b)) for a, b in zip(known[0].ravel(), known[1].ravel())]

    def whole(self, i: int, what: str) -> list[int]:
        """Those that do not depend on it."""
        sizes = self.sizes(i, what)
        if self.importer.shadow and not all(size.fixed for size in sizes):
            self.unsupported(f"{what} depends on the batch", "another number")
        return [size.n for size in sizes]

    def _fold(self) -> bool:
        """Computes the node where its inputs are known."""
        inputs = [self.known(i) for i in range(len(self.proto.input))]
        if self.op in ("Shape", "Size"):
            self._give_known(self._fold_shape())
            return True
        if self.op == "Constant":
            array = next(iter(self.attributes.values()), None)
            array = to_array(array) if isinstance(array, TensorProto) else numpy.asarray(array)
            array = array.astype(numpy.float32) if array.dtype == numpy.float64 and \
                not isinstance(self.attributes.get("value"), TensorProto) else array
            if array.dtype.kind not in "fiub":
                self.unsupported("a constant that is no tensor of numbers")
            self._give_known((array, array))
            return True
        if self.op == "CastLike" and inputs[0] is not None:
            self._give_known(inputs[0])
            return True
        if self.op not in FOLDED or not inputs or any(
                known is None and (i == 0 or self.has(i)) for i, known in enumerate(inputs)):
            return False
        if self.op == "Expand" and inputs[1] and not _same(inputs[1]) and inputs[0] and \
                inputs[0][0].size > 1:
            return False  # the network repeats it
        arrays = [known for known in inputs if known is not None]
        first = self._evaluate([known[0] for known in arrays])
        same = all(_same(known) for known in arrays)
        self._give_known((first, first if same else
                          self._evaluate([known[1] for known in arrays])))
        return True

    def _evaluate(self, arrays: list[Any]) -> Any:
        names = [name for name in self.proto.input if name]
        node = onnx.NodeProto()
        node.CopyFrom(self.proto)
        infos = [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names)]
        graph = helper.make_graph([node], "node", infos,
                                  [onnx.ValueInfoProto(name=self.proto.output[0])])
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.importer.opset)])
        try:
            with numpy.errstate(all="ignore"):
                made = ReferenceEvaluator(model).run(None, dict(zip(names, arrays)))[0]
        except Exception as error:
            self.refuse("SONDE_EINVAL", _first_line(error))
        made = numpy.asarray(made)
        if made.size > MOST_FOLDED and not (made == made.reshape(-1)[0]).all():
            self.unsupported("a constant of more elements", "at most 65,536 elements")
        return made

    def _fold_shape(self) -> tuple[Any, Any]:
        slot = self.slot(0)
        assert slot is not None
        if isinstance(slot.value, Value):
            sizes = self.shape(slot.value)
        elif slot.known is not None:
            sizes = [Size(*pair) for pair in zip(slot.known[0].shape, slot.known[1].shape)]
        elif slot.initial is not None:
            sizes = [Size(n, n) for n in slot.initial.dims]
        else:
            self.refuse("SONDE_EINVAL", "its input has no shape")
        if self.op == "Size":
            return tuple(numpy.array(numpy.prod([s[k] for s in sizes]), numpy.int64)
                         for k in (0, 1))  # type: ignore[return-value]
        sizes = sizes[slice(self.get("start", 0), self.get("end", None))]
        return tuple(numpy.array([s[k] for s in sizes], numpy.int64)
                     for k in (0, 1))  # type: ignore[return-value]

    def _give_known(self, known: tuple[Any, Any]) -> None:
        slot = self.importer.slots[self.proto.output[0]]
        slot.known, slot.ready = known, True

    # --- values -------------------------------------------------------------------------

    def take(self, i: int, role: str = "activation") -> Value:
        """Input i as a value: a float initializer becomes a parameter; a constant a tensor that
        is filled with it, or a buffer."""
        slot = self.slot(i)
        if slot is None:
            self.refuse("SONDE_EINVAL", f"it lacks its input {i}")
        if slot.value is None:
            trained = slot.initial is not None and slot.initial.data_type in FLOATS and \
                (role != "activation" or self.known(i) is None)
            if trained:
                slot.value = self._parameter(slot, slot.name, role)
            elif self.known(i) is not None:
                slot.value = self._constant(slot)
        if not isinstance(slot.value, Value):
            self.unsupported(f"its input {i}, '{slot.name}', cannot be one",
                             "a value of the network")
        return slot.value

    def take_own(self, i: int, role: str, suffix: str) -> Value:
        """The same for a vector of a layer of its own. Exporters write equal vectors once for
        all layers; each gets its own again, called <module>.<suffix>."""
        slot = self.slot(i)
        initial = slot.initial if slot else None
        if slot is None or initial is None or len(initial.dims) != 1 or \
                initial.dims[0] > 1024 or self.module == "" or slot.value is None or \
                (slot.owner or "") == self.module:
            made = self.take(i, role)
            if slot is not None and slot.owner is None:
                slot.owner = self.module
            if slot is None or initial is None or role != "buffer" or \
                    self.importer.tensors.roles.get(made.id) == role:
                return made
        name = f"{self.module}.{suffix}"
        return self.importer.tensors.values.get(name) or self._parameter(slot, name, role)

    def _parameter(self, slot: Slot, name: str, role: str) -> Value:
        assert slot.initial is not None
        if slot.initial.data_type not in FLOATS:
            self.refuse("SONDE_EDTYPE", f"'{name}' is of integers", "a tensor of float32")
        if role == "activation":
            role = "bias" if len(slot.initial.dims) <= 1 and name.endswith("bias") else "weight"
        kept = self.tensor_name(name, "bias" if role == "bias" else None)
        return self.importer.tensor(self, kept, to_array(slot.initial).astype(numpy.float32),
                                    role)

    def tensor_name(self, given: str, suffix: str | None) -> str:
        """The name of a parameter: the file's, or, if an exporter made that up, the module's."""
        importer = self.importer
        if suffix is None or not is_generated(given):
            return importer.keep_name(given)
        if self.module == "" and importer.is_free(suffix):
            return importer.keep_name(suffix)
        path, k = f"{self.module}.{suffix}", 1
        while not importer.is_free(path):  # of another call
            k += 1
            path = f"{self.module}.{suffix}-{k}"
        return path

    def arrange(self, i: int, suffix: str, role: str, array: Any) -> Value:
        """A parameter of the numbers of input i in another order."""
        slot = self.slot(i)
        assert slot is not None
        name = self.tensor_name(slot.name if is_generated(slot.name) else "/", suffix)
        return self.importer.tensor(self, name, array.astype(numpy.float32), role)

    def buffer(self, suffix: str, array: Any) -> Value:
        return self.importer.tensor(self, self.tensor_name("/", suffix), array, "buffer")

    def _constant(self, slot: Slot) -> Value:
        assert slot.known is not None
        array, other = slot.known
        if array.dtype.kind not in "iub" and array.size and (array == array.flat[0]).all() and \
                (other == array.flat[0]).all():
            return self._spread(float(array.flat[0]),
                                [Size(*pair) for pair in zip(array.shape, other.shape)])
        if not _same(slot.known):
            self.unsupported(f"'{slot.name}' depends on the batch")
        kind = "bool" if array.dtype.kind == "b" else \
            "int64" if array.dtype.kind in "iu" else "float32"
        return self.importer.tensor(self, self.importer.keep_name(slot.name),
                                    array.astype(kind), "buffer")

    def _spread(self, number: float, sizes: list[Size]) -> Value:
        """A tensor full of a number."""
        moves = [i for i, size in enumerate(sizes) if self.importer.shadow and not size.fixed]
        shape = tuple(1 if i in moves else size.n for i, size in enumerate(sizes)) or (1,)
        made = self.emit("fill", value=number, shape=shape)
        return self.repeat(made, len(sizes), moves) if moves else made

    def repeat(self, x: Value, rank: int, moves: list[int]) -> Value:
        """x repeated along one dimension of 1 to the batch: either side of a choice is x, so
        that it does not matter what the input holds."""
        if len(moves) > 1:
            self.unsupported("two dimensions that depend on the batch", "one")
        first = self.importer.inputs[0][1]
        batch = self.shape(first)[0]
        for i in range(1, len(self.shape(first))):
            first = self.emit("slice", first, dim=i, end=1)
        first = self.reshape(first, [batch if i == moves[0] else ONE for i in range(rank)])
        if self.dtype(first) == "float32":
            first = self.emit("eq", first, first)
        return self.emit("where", first, x, x)

    def fill(self, number: float) -> Value:
        return self.emit("fill", value=number, shape=1)

    def shape(self, value: Value) -> list[Size]:
        sizes = self.importer.graph.shape(value.id)
        others = self.importer.shadow.shape(value.shadow) if self.importer.shadow else sizes
        return [Size(*pair) for pair in zip(sizes, others)]

    def dtype(self, value: Value) -> str:
        return str(self.importer.graph.dtype_of(value.id))

    def axis(self, axis: int, rank: int) -> int:
        if not -rank <= axis < rank:
            self.refuse("SONDE_EINVAL", f"axis {axis} of a value of {rank} dimensions")
        return axis % rank

    def fixed_axis(self, axis: int, sizes: list[Size]) -> int:
        axis = self.axis(axis, len(sizes))
        if not sizes[axis].fixed:
            self.unsupported(f"axis {axis}, which is the batch", "another dimension")
        return axis

    # --- ops ----------------------------------------------------------------------------

    def emit(self, kind: str, *values: Value, **settings: Any) -> Value:
        importer = self.importer
        try:
            made = importer.graph.function(self.module, kind, tuple(v.id for v in values),
                                           settings)
        except _sonde.SondeError as error:
            self.refuse(error.code, error.found, error.expected)
        importer.read.update(value.id for value in values)
        for value in range(importer.last + 1, made + 1):
            importer.op_values.add(value)
            if importer.graph.name_of(value) in importer.slots:  # that of a value of the file
                importer.graph.name(value, self.module, None, ROLE["activation"], False)
        importer.last = max(importer.last, made)
        shadow = 0
        if importer.shadow:
            try:
                shadow = importer.shadow.function("", kind, tuple(v.shadow for v in values),
                                                  settings)
            except _sonde.SondeError as error:
                importer.lose_shadow(self, error)
        return Value(made, shadow)

    def to(self, x: Value, dtype: str) -> Value:
        return x if self.dtype(x) == dtype else self.emit("to", x, dtype=dtype)

    def permute(self, x: Value, order: Any) -> Value:
        order = tuple(order)
        return x if order == tuple(range(len(order))) else self.emit("permute", x, dims=order)

    def cut(self, x: Value, axis: int, begin: int, end: int, step: int = 1) -> Value:
        """Places begin, begin + step ... before end of a dimension; all of it is x."""
        far = 1_000_000_000
        begin, end = max(-far, min(begin, far)), max(-far, min(end, far))
        if begin == 0 and end == far and step == 1:
            return x
        ends = {} if end == far else {"end": end}
        return self.emit("slice", x, dim=axis, start=begin, step=step, **ends)

    def reshape(self, x: Value, want: list[Size]) -> Value:
        """x in other sizes, of which those that depend on the batch are inferred."""
        have = self.shape(x)
        if not want:
            return self.emit("reshape", x)
        if self.importer.shadow and not self.importer.open_batch:
            want = self._open_target(have, list(want))
        if len(want) == len(have) and all(h == w for h, w in zip(have, want)):
            return x
        shape: list[int] = []
        for i, size in enumerate(want):
            moves = bool(self.importer.shadow) and not size.fixed
            kept = i < len(have) and have[i] == size
            open_ = size.n == -1 or moves
            shape.append(size.n if not open_ else 0 if moves and kept else -1)
            if shape.count(-1) > 1:
                self.unsupported("two of a shape", "one dimension that depends on the batch")
        return self.emit("reshape", x, shape=tuple(shape))

    def _open_target(self, have: list[Size], want: list[Size]) -> list[Size]:
        """The sizes of a target that the file fixed, where x depends on the batch: the first one
        is the batch, or a multiple of it."""
        if any(not size.fixed for size in want) or want[0].n == 0 or want[0].n < -1 or \
                want[0].n == -1 or not have or \
                numpy.prod([s.n for s in have]) == numpy.prod([s.m for s in have]):
            return want
        if not have[0].fixed and have[0].n == want[0].n:
            want[0] = have[0]
        elif OPEN not in want:
            want[0] = OPEN
        return want

    # --- results ------------------------------------------------------------------------

    def give(self, output: int, value: Any) -> None:
        """Output `output` of the node is this value, which gets its name."""
        importer = self.importer
        if output >= len(self.proto.output) or self.proto.output[output] == "":
            return
        slot = importer.slots[self.proto.output[output]]
        slot.value, slot.ready = value, True
        if not isinstance(value, Value):
            return  # a sequence
        kept = importer.keep_name(slot.name)
        if value.id < self.first or value.id not in importer.op_values:  # another's value
            importer.graph.name(value.id, "", kept, ROLE["activation"], True)
            return
        leaves = slot.leaves and self.module != ""
        importer.graph.name(value.id, self.module, kept,
                            ROLE["output" if leaves else "activation"], False)
        if leaves:
            k = importer.calls.setdefault(self.module, 0)
            importer.calls[self.module] = k + 1
            name = f"{self.module}_output_{k}"
            if name not in importer.slots:
                importer.graph.name(value.id, self.module, name, ROLE["output"], True)


def to_array(tensor: TensorProto) -> Any:
    """The numbers of a tensor; bfloat16 and float16 as float32."""
    array = numpy_helper.to_array(tensor)
    return array.astype(numpy.float32) \
        if tensor.data_type in FLOATS and tensor.data_type != TensorProto.DOUBLE else array


def _is_constant(slot: Slot) -> bool:
    """Whether an initializer is a number that the network is built with, not a parameter."""
    tensor = slot.initial
    assert tensor is not None
    return tensor.data_type not in FLOATS or is_generated(slot.name) or \
        (all(n == 1 for n in tensor.dims) and "." not in slot.name)


def _same(known: tuple[Any, Any]) -> bool:
    return known[0] is known[1] or numpy.array_equal(known[0], known[1], equal_nan=True)
