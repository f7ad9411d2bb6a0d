"""A module as a graph of the engine: exported by torch.export, translated op by op.

    network = trace(model, arguments, keywords, training, trained)
    graph, tensors, memory = network.build(model)

A Network can be pickled: it is the list of calls that build the graph, and the constants of
forward.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from sonde import _sonde

from . import (aten, aten_algebra, aten_layers, aten_losses, aten_places,  # noqa: F401
               aten_windows, ops)  # they register their functions
from .builder import HALVES, Builder, Lacks, Missing, Value, expect, find, short, wide
from .placement import Execution, begun
from .unseen import unseen

_MOST = 64  # inputs, or outputs, of a session
_ALIGNMENT = 64  # of the memory of tensors that the engine reads in place
_TORCH = os.path.dirname(torch.__file__) + os.sep
_HERE = os.path.dirname(__file__) + os.sep


class Network:
    """The calls that build a graph, and what its inputs and outputs are."""

    def __init__(self, training: bool):
        self.training = training
        self.blocks = 0  # stages of a pipeline
        self.ignores = False  # labels may be the negative ignore_index of a loss
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.tensors: list[str] = []  # names of parameters and buffers, in the order of tensor()
        self.aliases: dict[str, str] = {}  # other names of a shared parameter
        self.inputs: list[int] = []  # places of the arguments' leaves that are tensors
        self.leaves: list[Any] = []  # of the output: its place in the session's outputs, or _Is
        self.dtypes: list[Any] = []  # of the leaves; None: no tensor
        self.nesting: Any = None
        self.values: list[int] = []  # that sessions return, the loss last
        self.constants: dict[str, torch.Tensor] = {}

    def build(self, model: torch.nn.Module
              ) -> tuple[Any, list[torch.Tensor], list[torch.Tensor]]:
        """A new graph over the model's tensors, these, and what the engine reads: their memory,
        or float32 copies of those of 16 bits."""
        graph = _sonde.Graph()
        source = {**sources(model), **self.constants}
        found, memory = [], []
        for method, arguments in self.calls:
            if method == "tensor":
                tensor = source[arguments[0]]
                found.append(tensor)
                memory.append(aligned(tensor))
                arguments = (arguments[0], memory[-1], *arguments[1:])
            elif method == "input":
                arguments = (torch.empty(arguments[0], dtype=arguments[1]),)
            getattr(graph, method)(*arguments)
        return graph, found, memory


class Constant:
    """A leaf of the output that is no tensor."""

    def __init__(self, value: Any):
        self.value = value


def sources(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All tensors of a module by name, shared ones under each of their names."""
    found: dict[str, torch.Tensor] = dict(model.named_buffers(remove_duplicate=False))
    found.update(model.named_parameters(remove_duplicate=False))
    return found


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's elements where the engine can use them in place; moves them if need be. Of 16
    bits: a float32 copy."""
    if tensor.dtype in HALVES:
        return tensor.detach().to(torch.float32, memory_format=torch.contiguous_format)
    if not tensor.is_contiguous() or tensor.data_ptr() % _ALIGNMENT:
        moved = torch.empty(tensor.shape, dtype=tensor.dtype)
        tensor.data = moved.copy_(tensor.detach())
    return tensor.detach()


# --- translating ----------------------------------------------------------------------------------


class Translation(Builder):
    """Builds a graph, and writes down how."""

    def __init__(self, model: torch.nn.Module, network: Network, trained: set[int],
                 execution: Execution):
        self.network, self.training = network, network.training
        self.execution, self.stages = execution, set[str]()
        self.graph = _sonde.Graph()
        self.source = sources(model)
        self.names = {id(tensor): name for name, tensor in reversed(self.source.items())}
        self.trained = trained
        self.known: dict[int, Value] = {}
        self.module = ""
        self.dtype = "float32"  # of the products that follow
        self.loss: Value | None = None
        self.made: list[tuple[str, tuple[Any, ...], int]] = []  # values, in order

    def call(self, method: str, *arguments: Any) -> Any:
        given = arguments
        if method == "tensor":
            given = (arguments[0], aligned(self.source[arguments[0]]), *arguments[1:])
            self.network.tensors.append(arguments[0])
        elif method == "input":
            given = (torch.empty(arguments[0], dtype=arguments[1]),)
        self.network.calls.append((method, arguments))
        try:
            made = getattr(self.graph, method)(*given)
        except _sonde.SondeError as problem:
            raise Lacks(str(problem)) from problem
        if method in ("function", "print", "input"):
            self.made.append((method, arguments, made))
        return made

    def compute(self, dtype: torch.dtype) -> None:
        """Products from here on are of 16 bits if PyTorch's are."""
        name = short(dtype) if dtype in HALVES else "float32"
        if name != self.dtype:
            self.call("dtype", name)
            self.dtype = name

    def value(self, number: int, dtype: torch.dtype, trained: bool) -> Value:
        return Value(number, self.graph.shape(number), dtype, trained)

    def add(self, kind: str, values: Sequence[Value], settings: dict[str, Any],
            dtype: torch.dtype = torch.float32) -> Value:
        made = self.call("function", self.module, kind, tuple(value.id for value in values),
                         settings)
        return self.value(made, dtype, any(value.trained for value in values))

    def constant(self, tensor: torch.Tensor) -> Value:
        name = f"constant.{len(self.network.constants)}"
        kept = tensor.detach().to(wide(tensor.dtype), copy=True,
                                  memory_format=torch.contiguous_format)
        self.source[name] = self.network.constants[name] = kept
        self.names[id(kept)] = name
        return self.tensor_named(name)

    def kept(self, x: Value) -> torch.Tensor | None:
        return next((tensor for tensor in self.network.constants.values()
                     if self.known.get(id(tensor)) == x), None)

    def show(self, value: Value, title: str, gradient: bool, layout: tuple[Any, ...]) -> Value:
        number = self.call("print", value.id, title, gradient and value.trained, layout)
        return value._replace(id=number)

    def mark_loss(self, value: Value) -> Value:
        self.loss = value
        return value

    def begin_block(self, name: str, ipu: int | None) -> None:
        stage = self.execution.name_of_stage(name, ipu)
        self.call("block", stage)
        self.stages.add(stage)
        self.network.blocks = len(self.stages)

    def input(self, leaf: torch.Tensor, place: int) -> Value:
        if leaf.dtype not in _INPUTS:
            raise Lacks(f"an input of {leaf.dtype} (expected float32 or int64)")
        if leaf.dim() == 0 or leaf.numel() == 0 or leaf.device.type != "cpu":
            raise Lacks("an input without dimensions or elements, or on a device")
        self.network.inputs.append(place)
        dtype = wide(leaf.dtype)
        return self.value(self.call("input", tuple(leaf.shape), dtype), dtype, False)

    def tensor_named(self, name: str) -> Value:
        """A parameter or buffer, declared when an op first reads it."""
        tensor = self.source[name]
        if id(tensor) not in self.known:
            first = self.names[id(tensor)]
            if tensor.dtype not in _INPUTS or tensor.device.type != "cpu" or not tensor.numel():
                raise Lacks(f"{first} of {tensor.dtype} on {tensor.device} (expected float32 on "
                            "the processor)")
            trained = self.training and tensor.requires_grad
            number = self.call("tensor", first, trained, trained and id(tensor)
                               not in self.trained)
            self.known[id(tensor)] = self.value(number, wide(tensor.dtype), trained)
        self.network.aliases.setdefault(name, self.names[id(tensor)])
        return self.known[id(tensor)]


_INPUTS = (torch.float32, torch.int64, torch.bool, *HALVES)


class Name(str):
    """A parameter or buffer, until an op reads it."""


class Folded:
    """A tensor that depends on no input and no tensor of the module."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor
        self.value: Value | None = None  # once an op reads it


class _Reader:
    """Walks the nodes of an exported program."""

    def __init__(self, program: Any, translation: Translation):
        self.program, self.translation = program, translation
        self.values: dict[Any, Any] = {}  # by node; names of tensors until an op reads them
        self.made: dict[Any, Value] = {}  # by node, as it was before a change in place
        self.calls: dict[str, list[Any]] = {}  # nodes of each call of a module
        self.missing: list[tuple[str, str]] = []

    def read(self, leaves: Sequence[Any]) -> None:
        signature = self.program.graph_signature
        named = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        places = iter(range(len(leaves)))
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = Name(named[node.name]) if node.name in named else \
                    self.constant_or_input(node, leaves, places, signature)
            elif node.op == "call_function":
                self.function(node)
            elif node.op == "get_attr":
                self.missing.append(("a part of forward that torch.export leaves as it is",
                                     line_of(node)))
        if self.missing:
            raise Missing(self.missing)

    def constant_or_input(self, node: Any, leaves: Sequence[Any], places: Any, signature: Any
                          ) -> Any:
        if node.name in signature.inputs_to_lifted_tensor_constants:
            name = signature.inputs_to_lifted_tensor_constants[node.name]
            return Folded(self.program.constants[name])
        place = next(places)
        leaf = leaves[place]
        if not isinstance(leaf, torch.Tensor):
            return leaf
        try:
            return self.translation.input(leaf, place)
        except Lacks as problem:
            self.missing.append((str(problem), ""))
            return Constant(None)

    # --- ops ----------------------------------------------------------------------------------

    def argument(self, given: Any) -> Any:
        if isinstance(given, torch.fx.Node):
            value = self.values[given]
            if isinstance(value, Name):
                return self.translation.tensor_named(value)
            if isinstance(value, Folded):
                value.value = value.value or self.translation.constant(value.tensor)
                return value.value
            if isinstance(value, Constant):
                raise Lacks("a tensor that is made in forward")
            return value
        if isinstance(given, (list, tuple)):
            return [self.argument(one) for one in given]
        return given

    def function(self, node: Any) -> None:
        if counts_batches(node, self.values):
            self.values[node] = self.values[node.args[0]]
            return
        self.values[node] = Constant(None)
        for call in node.meta.get("nn_module_stack") or ():
            self.calls.setdefault(call, []).append(node)
        if not node.users and not has_effect(node.target):
            return
        name = getattr(node.target, "__name__", str(node.target))
        if is_same(node.target) and isinstance(self.values[node.args[0]], Folded):
            self.values[node] = self.values[node.args[0]]
            return
        folded = self.folded(node)
        if folded is not None:
            self.values[node] = folded
            return
        translate = find(node.target)
        if translate is None:
            self.missing.append((name, line_of(node)))
            return
        if self.missing:
            return  # what else is missing is only listed
        try:
            made = self.values[node] = self.translated(node, translate)
            if isinstance(made, Value):
                self.made[node] = made
        except Lacks as problem:
            self.missing.append((f"{name}: {problem}", line_of(node)))
        except ops.Error:
            raise
        except Exception as problem:  # arguments that the translation does not know
            self.missing.append((f"{name} with such arguments: {type(problem).__name__}: "
                                 f"{problem}", line_of(node)))

    def folded(self, node: Any) -> Folded | None:
        """The result of an op that reads constants alone, or shapes."""
        target, value = node.target, node.meta.get("val")
        if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable or \
                torch.Tag.nondeterministic_seeded in target.tags or \
                not isinstance(value, torch.Tensor):
            return None
        if target._schema.name in _OF_SHAPES:
            rest = [self.constant_of(one) for one in node.args[1:]]
            keys = {**node.kwargs, "dtype": value.dtype}
            return Folded(target(torch.empty(node.args[0].meta["val"].shape), *rest, **keys))
        if any(not isinstance(self.values[one], Folded) for one in node.all_input_nodes):
            return None
        return Folded(target(*[self.constant_of(one) for one in node.args],
                             **{key: self.constant_of(one) for key, one in node.kwargs.items()}))

    def constant_of(self, given: Any) -> Any:
        if isinstance(given, torch.fx.Node):
            return self.values[given].tensor
        if isinstance(given, (list, tuple)):
            return [self.constant_of(one) for one in given]
        return given

    def translated(self, node: Any, translate: Any) -> Any:
        translation = self.translation
        stack = node.meta.get("nn_module_stack") or {}
        translation.module = path_of(list(stack.values())[-1]) if stack else ""
        translation.compute(dtype_of(node))
        keys = {key: self.argument(value) for key, value in node.kwargs.items()}
        if node.target is torch.ops.aten.batch_norm.default:
            keys["tracked"] = self.tracked(node.args[3])
        in_place = isinstance(node.target, torch._ops.OpOverload) and \
            node.target._schema.is_mutable
        if in_place:
            self.expect_own(node.args[0])
        given = [None if self.is_first_state(node, i) else self.argument(self.without_empty(
            node, one)) for i, one in enumerate(node.args)]
        made = translate(translation, *given, **keys)
        expected = node.meta.get("val")
        if isinstance(made, Value) and isinstance(expected, torch.Tensor):
            expect(made.shape == tuple(expected.shape) and made.dtype is wide(expected.dtype),
                        f"{tuple(expected.shape)} of {expected.dtype} becomes {made.shape} of "
                        f"{made.dtype}")
        if in_place:
            self.values[node.args[0]] = made
        return made

    def without_empty(self, node: Any, given: Any) -> Any:
        """The tensors that torch.cat joins, without constants that have no elements."""
        if node.target is not torch.ops.aten.cat.default or not isinstance(given, (list, tuple)):
            return given
        return [one for one in given if not (isinstance(self.values[one], Folded) and
                                             self.values[one].tensor.shape == (0,))]

    def is_first_state(self, node: Any, i: int) -> bool:
        """Whether argument i is the state that a recurrent network begins with, zeros."""
        if i != 1 or str(node.target).removeprefix("aten.") not in _RECURRENT:
            return False
        given = node.args[1] if isinstance(node.args[1], (list, tuple)) else [node.args[1]]
        return all(isinstance(self.values[one], Folded) and not self.values[one].tensor.any()
                   for one in given)

    def tracked(self, mean: Any) -> Value | None:
        name = self.values.get(mean)
        counter = name.rpartition("running_mean")[0] + "num_batches_tracked" \
            if isinstance(name, Name) else ""
        return self.translation.tensor_named(counter) \
            if counter in self.translation.source else None

    def expect_own(self, node: Any) -> None:
        """An op in place is one that makes a new value if nothing else shares its memory."""
        shared = node.op != "call_function" or is_view(node.target) or any(
            user in self.values and is_view(user.target) for user in node.users)
        expect(not shared, "an in-place change of a tensor that has views, or is the "
                    "caller's")

    # --- outputs ------------------------------------------------------------------------------

    def name_modules(self) -> None:
        """Values that leave a call of a module are its outputs, in the order they are made; those
        that it passes on as they are, if it makes none."""
        order = {node: i for i, node in enumerate(self.program.graph.nodes)}
        makers: dict[int, Any] = {}  # by value, the node that made it
        for node in order:
            if node in self.made:
                makers.setdefault(self.made[node].id, node)
        leaving = []
        for call, nodes in self.calls.items():
            inside = set(nodes)
            path = path_of(nodes[0].meta["nn_module_stack"][call])
            outputs = [node for node in nodes if node in self.made and
                       not all(user in inside for user in node.users)]
            outputs = [node for node in outputs if makers[self.made[node].id] in inside] or outputs
            if path and outputs:
                leaving.append((order[outputs[-1]], -path.count("."), path, outputs))
        for _, _, path, outputs in sorted(leaving, key=lambda one: one[:2]):
            for node in outputs:
                self.translation.call("module_output", path, self.made[node].id)

    def outputs(self) -> None:
        network, translation = self.translation.network, self.translation
        translation.module = ""
        given = next(iter(reversed(self.program.graph.nodes))).args[0]
        mutated = len(given) - len(self.program.graph_signature.user_outputs)
        leaves = [self.output(leaf) for leaf in given[mutated:]]
        loss = self.find_loss(leaves) if network.training else None
        for leaf in leaves:
            if isinstance(leaf, Value) and leaf.id not in network.values and \
                    (loss is None or leaf.id != loss.id):
                translation.call("output", leaf.id)
                network.values.append(leaf.id)
        if loss is not None:
            translation.call("loss", loss.id)
            network.values.append(loss.id)
        network.leaves = [network.values.index(leaf.id) if isinstance(leaf, Value) else leaf
                          for leaf in leaves]
        network.dtypes = [dtype_of(leaf) if isinstance(leaf, torch.fx.Node) else None
                          for leaf in given[mutated:]]
        network.nesting = self.program.call_spec.out_spec
        self.leave_unread()

    def leave_unread(self) -> None:
        """Sessions take the inputs that lead to an output."""
        network = self.translation.network
        read, numbers = set(network.values), self.translation.made
        for method, arguments, number in reversed(numbers):
            if number in read:
                read.update(arguments[2] if method == "function" else arguments[:1])
        inputs = [number for method, _, number in numbers if method == "input"]
        network.inputs = [place for place, number in zip(network.inputs, inputs)
                          if number in read]

    def output(self, leaf: Any) -> Any:
        """A leaf of the output; what no op makes is copied by one."""
        if not isinstance(leaf, torch.fx.Node):
            return Constant(leaf)
        value = self.argument(leaf)
        if leaf.op != "call_function" or value.id in [
                one.id for one in self.values.values() if isinstance(one, Value)
                and one.id in self.inputs()]:
            return self.translation.add("identity", [value], {}, value.dtype)
        return value

    def inputs(self) -> set[int]:
        return {value.id for node, value in self.values.items()
                if node.op == "placeholder" and isinstance(value, Value)}

    def find_loss(self, leaves: Sequence[Any]) -> Value:
        """What identity_loss marked, or the last number of the output."""
        if self.translation.loss is not None:
            return self.translation.loss
        found = [leaf for leaf in leaves if isinstance(leaf, Value) and leaf.trained
                 and all(n == 1 for n in leaf.shape)]
        if not found:
            raise ops.Error("Couldn't find a loss in graph! (expected that forward returns it, "
                            "a number)")
        return found[-1]


_OF_SHAPES = ("aten::zeros_like", "aten::ones_like", "aten::full_like", "aten::new_zeros",
              "aten::new_ones", "aten::new_full")


_RECURRENT = ("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input")


def has_effect(target: Any) -> bool:
    """Whether an op does something besides its result."""
    schema = getattr(target, "_schema", None)
    return schema is not None and (schema.is_mutable or schema.name.startswith("poptorch::"))


def is_same(target: Any) -> bool:
    """Whether an op returns its argument, but for its gradient."""
    schema = getattr(target, "_schema", None)
    return schema is not None and schema.name in ("aten::detach_", "aten::detach",
                                                  "aten::lift_fresh_copy")


def is_view(target: Any) -> bool:
    """Whether an op's result shares memory with its argument."""
    schema = getattr(target, "_schema", None)
    return schema is not None and any(
        result.alias_info is not None and not result.alias_info.is_write
        for result in schema.returns)


def counts_batches(node: Any, values: dict[Any, Any]) -> bool:
    """A batch norm counts its batches; the engine's does so itself."""
    counter = values.get(node.args[0]) if node.args and \
        isinstance(node.args[0], torch.fx.Node) else None
    return node.target is torch.ops.aten.add_.Tensor and isinstance(counter, Name) and \
        counter.endswith("num_batches_tracked")


def dtype_of(node: Any) -> Any:
    """Of a node's first result in PyTorch; None: it has no tensor."""
    value = node.meta.get("val")
    if isinstance(value, (list, tuple)) and value:
        value = value[0]
    return value.dtype if isinstance(value, torch.Tensor) else None


def path_of(entry: Any) -> str:
    """The dotted path of a module in an entry of nn_module_stack."""
    return str(entry[0]).partition("@")[0]


def line_of(node: Any) -> str:
    """The line of the user's code that made a node: "file.py:12"."""
    found = ""
    for line in str(node.meta.get("stack_trace") or "").splitlines():
        parts = line.strip().split('"')
        if len(parts) == 3 and parts[0] == "File " and not parts[1].startswith((_TORCH, _HERE)):
            found = f"{parts[1]}:{parts[2].removeprefix(', line ').partition(',')[0]}"
    return found


# --- all of it ------------------------------------------------------------------------------------


def trace(model: torch.nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any],
          training: bool, trained: set[int], execution: Execution, ignores: bool = False
          ) -> Network:
    """The network of a micro-batch of arguments. trained: the ids of parameters that the
    optimizer updates. Missing: the engine lacks something."""
    leaves = pytree.tree_flatten((arguments, keywords))[0]
    try:
        with warnings.catch_warnings(), ops.exporting(), slow_path(), silence(), \
                begun(model), unseen(model, training):
            warnings.simplefilter("ignore")
            program = torch.export.export(model, arguments, keywords, strict=False)
    except Missing:
        raise
    except Lacks as problem:
        raise Missing([(str(problem), line_of_error(problem))]) from problem
    except Exception as problem:
        raise Missing([(f"torch.export: {reason(problem)}", line_of_error(problem))]) from problem
    inline_regions(program.graph_module)
    network = Network(training)
    translation = Translation(model, network, trained, execution)
    network.ignores = translation.ignores = ignores
    reader = _Reader(program, translation)
    reader.read(leaves)
    try:
        reader.name_modules()
        reader.outputs()
    except Lacks as problem:
        raise Missing([(str(problem), "")]) from problem
    if max(len(network.inputs), len(network.values)) > _MOST:
        raise Missing([(f"more than {_MOST} inputs or outputs", "")])
    return network


def inline_regions(module: torch.fx.GraphModule) -> None:
    """Puts the nodes of regions under torch.autocast and torch.no_grad, which torch.export makes
    modules of, in their place. They know the dtypes of their results; what leaves a region without
    gradients is detached."""
    graph = module.graph
    for node in list(graph.nodes):
        kind = getattr(node.target, "__name__", "")
        if kind not in ("wrap_with_autocast", "wrap_with_set_grad_enabled"):
            continue
        at = 4 if kind == "wrap_with_autocast" else 1  # the body; its arguments follow
        ends = kind == "wrap_with_set_grad_enabled" and not node.args[0]
        body = node.args[at]
        region = getattr(module, body.target)
        inline_regions(region)
        inputs = [one for one in region.graph.nodes if one.op == "placeholder"]
        with graph.inserting_before(node):
            made = graph.graph_copy(region.graph, dict(zip(inputs, node.args[at + 1:])))
            if ends:
                made = [detached(graph, one) for one in made]
        for user in list(node.users):
            user.replace_all_uses_with(made[user.args[1]])
            graph.erase_node(user)
        graph.erase_node(node)
        if not body.users:
            graph.erase_node(body)


def detached(graph: torch.fx.Graph, node: Any) -> Any:
    """A node of a region's results without its gradient."""
    if not isinstance(node, torch.fx.Node):
        return node
    end = graph.call_function(torch.ops.aten.detach.default, (node,))
    end.meta.update(node.meta)
    return end


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Without what torch.export logs, and prints, of a module that it cannot export. What forward
    prints comes afterwards."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    said, complained = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
            yield
    finally:
        logging.disable(before)
    print(said.getvalue(), end="")
    print(complained.getvalue(), end="", file=sys.stderr)


@contextlib.contextmanager
def slow_path() -> Iterator[None]:
    """Transformers as the ops that training has, in inference too; masks are as they are given, and
    not looked at to see whether they are causal."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    place = torch.nn.modules.transformer
    look = getattr(place, "_detect_is_causal_mask", None)
    if look is not None:
        place._detect_is_causal_mask = lambda mask, is_causal=None, size=None: bool(is_causal)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
        if look is not None:
            place._detect_is_causal_mask = look


def reason(problem: BaseException) -> str:
    lines = [line for line in str(problem).splitlines() if line.strip()]
    return f"{type(problem).__name__}: {lines[0].strip()}" if lines else type(problem).__name__


def line_of_error(problem: BaseException) -> str:
    """The last line of the user's code in an error's traceback."""
    found, at = "", problem.__traceback__
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        if not file.startswith((_TORCH, _HERE, "<")) and os.sep + "torch" + os.sep not in file:
            found = f"{file}:{at.tb_lineno}"
        at = at.tb_next
    return found
