"""What torch.compile was given of a model: the graph that it hands to its backend.

While a compiled root is called in a step that is recorded, the graphs that are compiled are read on
their way to the backend, which gets them unchanged. A later step that is recorded and compiles
nothing has the graphs of before, if its inputs have the same shapes."""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from . import ops
from .places import Place, is_user

if TYPE_CHECKING:
    from .capture import Capture

_SELF = re.compile(r"^L\['\w+'\]")
_ITEM = re.compile(r"\['?(\w+)'?\]")
_LINE = re.compile(r'File "(.+)", line (\d+), in ')


class Operation:
    """A call within a graph. Values are numbers of the graph's own."""

    __slots__ = ("name", "attributes", "inputs", "outputs", "place", "modules")

    def __init__(self, name: str, attributes: dict[str, Any], inputs: list[int],
                 outputs: list[int], place: Place | None, modules: list[int]):
        self.name, self.attributes, self.place = name, attributes, place
        self.inputs, self.outputs, self.modules = inputs, outputs, modules


class Graph:
    """A graph, of which nothing of the compiler's is kept."""

    def __init__(self, module: Any):
        self.rows: list[dict[str, Any]] = []  # of values
        self.given: dict[int, int] = {}  # values, and the id() of the tensor that they are
        # Of parameters: a reference, the id() of the module, its path, its class, the name.
        self.owners: dict[int, tuple[Any, int, str, str, str]] = {}
        self.operations: list[Operation] = []
        self.results: list[int] = []
        self._numbers: dict[int, int] = {}  # values by the id() of what stands for them
        for node in module.graph.nodes:
            self._add(node, module)
        self._numbers.clear()

    def _add(self, node: Any, module: Any) -> None:
        made = node.meta.get("example_value")
        if node.op == "output":
            self.results = [self._numbers[id(one)] for one in _tensors(_values(node.args))]
        elif node.op == "placeholder":
            known = getattr(node.meta.get("grapharg"), "example", None)
            for one in _tensors(made):
                number = self._value(one)
                self.given[number] = id(known) if known is not None else 0
                if isinstance(known, torch.nn.Parameter):
                    self.owners[number] = weakref.ref(known), *_owner(node)
        elif node.op == "get_attr":
            for one in _tensors(made):
                self.given[self._value(one)] = id(getattr(module, node.target, None))
        elif node.op in ("call_function", "call_method"):
            self._call(node, made)
        else:
            raise TypeError(f"a node {node.op}")

    def _value(self, one: Any) -> int:
        shape = [size if isinstance(size, int) else size.node.hint or 0 for size in one.shape]
        self.rows.append({"dtype": ops.dtype_name(one.dtype), "shape": shape[:8],
                          "requires_grad": one.requires_grad})
        self._numbers[id(one)] = len(self.rows) - 1
        return len(self.rows) - 1

    def _call(self, node: Any, result: Any) -> None:
        function = node.target if node.op == "call_function" else \
            getattr(torch.Tensor, node.target, None)
        made = ops.operation(function) if function is not None else None
        arguments, options = _values(node.args), _values(node.kwargs)
        if made is None or (made.name == "index" and not isinstance(arguments[0], torch.Tensor)):
            for one in _tensors(result):
                if id(one) not in self._numbers:
                    self._value(one)
            return  # it chooses one of several results, say
        operands = ops.operands(made, arguments, options)
        inputs = [-1 if one is None else self._numbers.get(id(one), -1) for one in operands]
        results = list(_tensors(result)) or (list(_tensors(arguments[:1])) if made.inplace else [])
        if results:
            self.operations.append(Operation(
                made.name, ops.attributes(made, arguments, options), inputs,
                [self._value(one) for one in results], _place(node.meta.get("stack_trace")),
                [int(key) for key in node.meta.get("nn_module_stack") or () if key.isdigit()]))


def _values(arguments: Any) -> Any:
    """Arguments with what stands for the tensors."""
    return torch.fx.node.map_arg(arguments, lambda node: node.meta.get("example_value"))


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors(part)


def _owner(node: Any) -> tuple[int, str, str, str]:
    """Of the module that a parameter is read of, if it is one of the model's own attributes."""
    stack = list((node.meta.get("nn_module_stack") or {"0": ("", object)}).items())
    key, (path, kind) = stack[-1]
    path = _ITEM.sub(r".\1", _SELF.sub("", path).replace("._modules", ""))
    return int(key) if key.isdigit() else 0, path.strip("."), kind.__name__, \
        node.name.rstrip("_").rpartition("_")[2]


def _place(stack: str | None) -> Place | None:
    """The innermost line of the program's own in a stack as text."""
    lines = _LINE.findall(stack or "")
    own = [line for line in lines if is_user(line[0])]
    return next(((file, int(number)) for file, number in reversed(own or lines)), None)


class Compiled:
    """The graphs of the compiled roots of one watch."""

    def __init__(self) -> None:
        self.kept: dict[tuple[Any, ...], list[Graph]] = {}
        self.found: list[Graph] = []  # in the call that is on
        self.lacks = False  # a graph of it cannot be read
        self.plain: Any = None  # the compiler's method while it is replaced

    def begin(self) -> None:
        """A compiled root is called."""
        owner = getattr(sys.modules.get("torch._dynamo.output_graph"), "OutputGraph", None)
        self.end()
        self.found, self.lacks = [], False
        if owner is None or not hasattr(owner, "call_user_compiler"):
            return
        self.plain = plain = owner.call_user_compiler

        def call_user_compiler(graph: Any, module: Any, *rest: Any, **options: Any) -> Any:
            try:
                self.found.append(Graph(module))
            except Exception:  # of another release of PyTorch's, say
                self.lacks = True
            return plain(graph, module, *rest, **options)

        owner.call_user_compiler = call_user_compiler

    def end(self) -> None:
        """The call is over."""
        if self.plain is not None:
            sys.modules["torch._dynamo.output_graph"].OutputGraph.call_user_compiler = self.plain
            self.plain = None

    def graphs(self, key: tuple[Any, ...]) -> list[Graph]:
        """Of the call that is over: key tells calls apart. []: they are not known."""
        if self.found or self.lacks:
            self.kept[key] = [] if self.lacks else self.found
        return self.kept.get(key, [])


def write(graphs: list[Graph], on: "Capture", given: dict[int, int],
          results: list[Any]) -> bool:
    """Adds the operations of a call to a recording. given: its inputs, by the id() of their
    tensors. False: its results are not those of the graphs."""
    last = [graphs[-1].rows[i] for i in graphs[-1].results]
    if [row["shape"] for row in last] != [list(one.shape)[:8] for one in results]:
        return False
    before: list[int] = []  # results of the graphs before, which the next ones are given
    for graph in graphs:
        for reference, *owner in graph.owners.values():
            parameter = reference()
            if parameter is not None:
                on.known.add_loose(parameter, *owner)
        values = {number: on.given_value(graph.rows[number], key, given, before)
                  for number, key in graph.given.items()}
        for row in graph.operations:
            outputs = [on.add_value(graph.rows[i]) for i in row.outputs]
            values.update(zip(row.outputs, outputs))
            on.add_node(row, [values.get(i, -1) for i in row.inputs], outputs)
        before = [values[i] for i in graph.results if i in values]
    for one, value in zip(results, before):
        on.link(one, value)
    return len(before) == len(results)
