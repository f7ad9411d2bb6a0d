"""A recording of one step: its operations, the modules that called them, its events.

Operations are seen by a mode of torch.overrides, which is on the stack of one thread while the
step lasts. The mode lies at the bottom of that stack, above the default device alone, which expects
to be there: a mode that the program enters and leaves meanwhile comes off the top, as it expects. No tensor is kept: values are known
by the identity of a tensor while a weak reference says that it lives."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from types import MethodType
from typing import Any

import torch
from torch.nn.modules import module as torch_module
from torch.overrides import TorchFunctionMode, _len_torch_function_stack, _pop_mode, _push_mode

from .. import _sonde
from . import compiled, losses, ops
from .facts import Facts, column_of, constant_of, hash_of, rows_of, shift_of
from .known import Known
from .places import Finder, Place
from .text import Files

_NODES = 20000  # operations that are recorded of a step
_MANY = 2000  # operations from which a module's calls beyond the first ones are one each
_CALLS = 16  # these first ones
_EARLY = 256  # operations that are recorded before the first forward pass
_TOKENS = 4  # integer inputs that are compared with labels, and floating ones with targets
_GRAPH = 200000  # functions of the autograd graph that are searched
# Modules that take other, faster ways in evaluation unless a mode is on the stack.
TAKE_OTHER_WAYS = (torch.nn.MultiheadAttention, torch.nn.TransformerEncoderLayer,
                    torch.nn.TransformerEncoder)


class Mode(TorchFunctionMode):
    """Passes on what PyTorch's functions are called with, and shows a taker the calls; not those
    of functions that `known` has with None."""

    def __init__(self, taker: Any, known: dict[Any, Any]):
        super().__init__()
        self.passing = _sonde.Passing(taker, known)
        self.__torch_function__ = MethodType(self.passing, self)  # type: ignore[method-assign]


def push(mode: Any) -> None:
    """Puts a mode under those that are on the stack of this thread, above the default device."""
    others = [_pop_mode() for _ in range(_len_torch_function_stack())]
    default = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
    if others and others[-1] is default:
        _push_mode(others.pop())
    for one in [mode, *reversed(others)]:
        _push_mode(one)


def pull(mode: Any) -> bool:
    """Takes a mode off the stack of this thread. False: it is not there, because a function
    that it was told of has not returned."""
    others = [_pop_mode() for _ in range(_len_torch_function_stack())]
    found = any(one is mode for one in others)
    for one in reversed(others):
        if one is not mode:
            _push_mode(one)
    return found


class Seer:
    """What has a mode on the stack of the thread that makes it."""

    def __init__(self) -> None:
        self.mode: Mode | None = None
        self.thread = threading.get_ident()
        self.off = 0  # backward passes, optimizers and loaders that are at work
        self.away = False  # the mode is off the stack meanwhile

    def pause(self, more: int) -> None:
        """What is called now is not the program's own, and is left without the mode."""
        self.off = max(self.off + more, 0)
        if self.mode is None or threading.get_ident() != self.thread:
            return
        if self.off and not self.away:
            self.away = pull(self.mode)
        elif not self.off and self.away:
            self.away = False
            push(self.mode)

    def pull_out(self) -> Any:
        """Takes the mode off for good; one that cannot be taken off now is returned."""
        mode, self.mode = self.mode, None
        if mode is not None:
            mode.passing.stop()
            if not self.away and (threading.get_ident() != self.thread or not pull(mode)):
                return mode
        return None


class _Ref(weakref.ref):
    __slots__ = ("key",)


def tensors_of(value: Any, depth: int = 3) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if depth == 0:
        return []
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (tuple, list)):
        return []
    return [tensor for part in value for tensor in tensors_of(part, depth - 1)]


class Capture(Seer):
    """One step. known: the modules, parameters, buffers and optimizers of the watch."""

    def __init__(self, known: Known, finder: Finder, facts: Facts, observed: Any,
                 training: bool):
        super().__init__()
        self.known, self.finder, self.facts_of = known, finder, facts
        self.observed, self.training = observed, training
        self.files = Files()
        self.values: list[dict[str, Any]] = []
        self.nodes: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.losses: list[dict[str, Any]] = []
        self.facts: dict[str, Any] = {}
        self.tokens: list[tuple[str, Any]] = []  # names of integer inputs, weak references
        self.hashes: dict[int, str] = {}  # names of floating inputs, by what equal ones share
        self.rows: Any = None  # of the first input
        self.given: list[Any] = []  # inputs of a call that is one operation
        self.gap = ""
        self.makers: dict[int, int] = {}  # nodes, by the value that they make
        self.ids: dict[int, int] = {}  # values by the id() of their tensor, while it lives
        self.refs: dict[int, _Ref] = {}
        self.stack: list[int] = []  # modules whose forward is on
        self.last_output: Any = None  # identity of the tensor that was named last
        self.numbers: dict[int, int] = {}  # outputs of a module, in this pass of a root
        self.early = 0  # the first operations, which are kept if the step uses what they make
        self.begun = True  # False: its first forward pass is to come
        self.again = 1  # how often operations before it may be forgotten
        self.handles: list[Any] = []
        self.calls: dict[int, int] = {}  # of modules
        # A call that is one operation: its module, how often it calls itself, inputs, place.
        self.whole: tuple[torch.nn.Module, int, list[int], Any] | None = None

    # --- on and off -----------------------------------------------------------------------

    def install(self, sees_functions: bool, sees_modules: bool) -> None:
        """PyTorch warns of hooks of all modules at the call of a compiled one."""
        if sees_functions:
            self.mode = Mode(self.take, ops.known)
            push(self.mode)
        if not sees_modules:
            return
        self.handles = [
            torch_module.register_module_forward_pre_hook(self.enter),
            torch_module.register_module_forward_hook(self.leave, always_call=True)]

    def uninstall(self) -> Any:
        """Ends the recording; a mode that cannot be taken off now is returned."""
        for handle in self.handles:
            handle.remove()
        self.handles = []
        self.ids.clear()
        self.refs.clear()
        return self.pull_out()

    def miss(self, why: str) -> None:
        self.gap = self.gap or why

    # --- values -----------------------------------------------------------------------------

    def _enter(self, tensor: torch.Tensor, index: int) -> None:
        key = id(tensor)
        ref = _Ref(tensor, self._gone)
        ref.key = key
        self.ids[key] = index
        self.refs[key] = ref

    def _gone(self, ref: Any) -> None:
        if self.refs.get(ref.key) is ref:
            del self.refs[ref.key], self.ids[ref.key]

    def _row(self, made: torch.Tensor, **more: Any) -> int:
        self.values.append({"dtype": ops.dtype_name(made.dtype), "shape": list(made.shape)[:8],
                            "requires_grad": made.requires_grad, **more})
        return len(self.values) - 1

    def value(self, tensor: torch.Tensor) -> int:
        """The value of an operand."""
        key = id(tensor)
        index = self.ids.get(key)
        if index is not None:
            return index
        parameter = self.known.parameter_ids.get(key)
        if parameter is not None:
            row = self.known.parameters[parameter]
            index = self._row(tensor, kind="parameter", tensor=row["name"], parameter=parameter)
            row["used"] = True
        elif key in self.known.buffers:
            index = self._row(tensor, kind="buffer", tensor=self.known.buffers[key])
        else:
            index = self._row(tensor, kind="input", _hidden=tensor.grad_fn is not None and
                              self.mode is not None)
        self._enter(tensor, index)
        return index

    # --- operations ---------------------------------------------------------------------------

    def take(self, function: Any, arguments: tuple[Any, ...], options: dict[str, Any],
             result: Any) -> None:
        """Records a call of a function of PyTorch's that returned."""
        made = None if self.off else ops.operation(function)
        if made is None or torch._C._get_tracing_state() is not None:
            return
        try:
            with torch._C.DisableTorchFunctionSubclass():
                self._take(made, function, arguments, options, result)
        except Exception as problem:
            self.miss(f"{made.name}: {type(problem).__name__}: {problem}")

    def _take(self, made: ops.Operation, function: Any, arguments: tuple[Any, ...],
              options: dict[str, Any], result: Any) -> None:
        results = tensors_of(result)
        if made.inplace and not results and arguments:
            results = tensors_of(arguments[0])  # x[i] = y
        if not results:
            return
        place = self.finder.here()
        if place is None:
            return
        if len(self.nodes) >= (_NODES if self.begun else _EARLY):
            self._is_full()
            return
        operands = ops.operands(made, arguments, options)
        if made.name in ("to", "contiguous", "detach") and operands and results[0] is operands[0]:
            return
        inputs = [-1 if one is None else self.value(one) for one in operands]
        while inputs and inputs[-1] == -1 and made.name not in ("linear",):
            inputs.pop()
        module = self.stack[-1] if self.stack else -1
        node = {"op": made.name, "attributes": ops.attributes(made, arguments, options),
                "inputs": inputs, "module": module, "place": self.files.place(place),
                "_function": (function, place),
                "_in_loss": module >= 0 and "loss" in self.known.modules[module]["kind"].lower()}
        number = self._node(node, results,
                            {} if any(i >= 0 for i in inputs) else {"kind": "constant"})
        if not self.begun:
            return
        if made.name in ops.LOSSES:
            self._found_loss(number, operands, results[0])
        elif (function, place) in self.observed.losses:  # by hand, found at an earlier step
            self.observed.loss(function, place, operands, None, None, self.training)
        elif made.name in self.observed.activations and module >= 0 and \
                self.known.names_activations(module):
            name = self.observed.activation(function, self.known.modules[module]["name"],
                                            made.name, results[0])
            self.values[node["outputs"][0]].setdefault("tensor", name)

    def _node(self, node: dict[str, Any], results: list[torch.Tensor],
              kind: dict[str, Any]) -> int:
        """Adds an operation; its number."""
        number = len(self.nodes)
        node["outputs"] = []
        for one in results:
            index = self._row(one, **kind)
            node["outputs"].append(index)
            self.makers[index] = number
            if id(one) not in self.known.parameter_ids and id(one) not in self.known.buffers:
                self._enter(one, index)  # a parameter stays one that is changed in place
        self.nodes.append(node)
        return number

    def _is_full(self) -> None:
        if self.begun:
            self.miss(f"the step has more than {_NODES} operations")
        elif self.again:  # what comes last before a step is part of it
            self.again -= 1
            for rows in (self.nodes, self.values, self.makers, self.ids, self.refs, self.losses,
                         self.events):
                rows.clear()
        else:
            self.off = 1 << 30  # until the step begins

    def is_here(self) -> bool:
        """Whether it sees what this thread calls; the number of a thread that ended is used
        again."""
        found = self.mode is None or pull(self.mode)
        if found and self.mode is not None:
            push(self.mode)
        return found and threading.get_ident() == self.thread

    def begin(self, optimizers: list[Any]) -> None:
        """The step begins; what was seen before it is a part of it."""
        self.begun, self.early = True, len(self.nodes)
        self.pause(-self.off)
        self.known.renew(optimizers)

    def break_off(self, why: str) -> None:
        """The step does not end: what it would have used and reached is not known."""
        self.miss(why)
        if not any(row["event"] == "backward" for row in self.events):
            for row in self.known.parameters:
                row["used"] = True
                row["reached"] = row["requires_grad"]

    def finish(self) -> None:
        """Leaves out what neither the losses nor the model use and what nothing of the model
        is in: a loader's work, say. Of what was computed before the step, that is all that the
        step does not use."""
        self.known.mark_built()
        used = {i for row in self.losses for i in (row["predictions"], row["targets"])}
        used |= {row["value"] for row in self.events if "value" in row}
        used |= {i for i, row in enumerate(self.values) if row.get("tensor")}
        keep = [False] * self.early + self._of_model()
        for number in reversed(range(len(self.nodes))):
            node = self.nodes[number]
            keep[number] = keep[number] or any(i in used for i in node["outputs"])
            if keep[number]:
                used |= set(node["inputs"])
        if any(row.get("_hidden") and i in used for i, row in enumerate(self.values)):
            self.miss("operations were not seen that made a value")
        if not all(keep):
            self._leave_out(keep)

    def _of_model(self) -> list[bool]:
        """Of the operations of the step, whether a module calls them or they read what a module
        or a parameter has given."""
        given = {i for i, row in enumerate(self.values) if row.get("kind") in ("parameter", "buffer")}
        found = []
        for node in self.nodes[self.early:]:
            found.append(node["module"] >= 0 or any(i in given for i in node["inputs"]))
            if found[-1]:
                given |= set(node["outputs"])
        return found

    def _leave_out(self, keep: list[bool]) -> None:
        """Takes operations away, and values that are theirs alone."""
        gone = {i for node, kept in zip(self.nodes, keep) if not kept
                for i in node["inputs"] + node["outputs"]}
        gone -= {i for node, kept in zip(self.nodes, keep) if kept
                 for i in node["inputs"] + node["outputs"]}
        rows = [*self.events, *self.losses]
        gone -= {row.get(key, -1) for row in rows for key in ("value", "predictions", "targets")}
        value_of, node_of = {-1: -1}, {-1: -1}
        for i in range(len(self.values)):
            if i not in gone:
                value_of[i] = len(value_of) - 1
        for i, kept in enumerate(keep):
            if kept:
                node_of[i] = len(node_of) - 1
        self.values = [row for i, row in enumerate(self.values) if i not in gone]
        self.nodes = [node for node, kept in zip(self.nodes, keep) if kept]
        for node in self.nodes:
            node["inputs"] = [value_of[i] for i in node["inputs"]]
            node["outputs"] = [value_of[i] for i in node["outputs"]]
        for row in rows:
            row |= {key: value_of[row[key]] for key in ("value", "predictions", "targets")
                    if key in row}
            row |= {"node": node_of.get(row["node"], -1)} if "node" in row else {}

    def _found_loss(self, number: int, operands: list[Any], result: Any) -> None:
        node = self.nodes[number]
        predictions, targets = losses.of_function(node, self.values)
        if predictions >= 0 <= targets:
            inputs = node["inputs"]
            name = self.observed.loss(*node["_function"], operands, (
                inputs.index(predictions), inputs.index(targets)), result, self.training)
            self._name_targets(targets, name)
            constant = constant_of(operands[inputs.index(targets)])
            if constant is not None:
                node["attributes"]["targets_all"] = constant
        self._loss(number, node["outputs"][0], predictions, targets, node["place"])
        if len(self.losses) == 1 and targets >= 0:
            self._facts(operands[node["inputs"].index(targets)])

    def _name_targets(self, targets: int, name: str) -> None:
        if name and not self.values[targets].get("tensor"):
            self.values[targets]["tensor"] = name

    def _facts(self, targets: torch.Tensor) -> None:
        if targets.is_complex() or not targets.numel():
            return
        column = column_of(self.rows, targets) if self.rows is not None else None
        if column is not None:
            self.facts["targets_column"] = column
        if targets.is_floating_point():
            self.facts |= self.facts_of.of_targets(targets)
            name = self.hashes.get(hash_of(targets) or -1)
            if name:
                self.facts["targets_input"] = name
            return
        self.facts |= self.facts_of.of_labels(targets)
        for name, reference in self.tokens:
            tokens = reference()
            shift = shift_of(tokens, targets) if tokens is not None else None
            if shift or (shift == 0 and "labels_shift" not in self.facts):
                self.facts |= {"labels_shift": shift, "labels_equal_input": shift == 0,
                               "labels_input": name}
            if shift:
                break

    def _loss(self, node: int, value: int, predictions: int, targets: int, place: Any) -> None:
        self.losses.append({"node": node, "value": value, "predictions": predictions,
                            "targets": targets, "backward": -1})
        self.events.append({"event": "loss", "place": place, "value": value, "node": node,
                            "grad": torch.is_grad_enabled()})

    # --- modules --------------------------------------------------------------------------------

    def enter(self, module: torch.nn.Module, arguments: Any) -> None:
        """A module is called: a hook of PyTorch's."""
        if threading.get_ident() != self.thread:
            self.miss("modules are called in threads")
            return
        if self.off:
            if self.whole is not None and module is self.whole[0]:
                self.whole = module, self.whole[1] + 1, *self.whole[2:]
            return
        try:
            with torch._C.DisableTorchFunction():
                self._enter_module(module, arguments)
        except Exception as problem:
            self.miss(f"{type(module).__name__}: {type(problem).__name__}: {problem}")

    def _enter_module(self, module: torch.nn.Module, arguments: Any) -> None:
        index = self.known.index_of(module, self.stack[-1] if self.stack else -1)
        row = self.known.modules[index]
        if not row["called"]:
            row["called"] = True
            row["place"] = self.files.place(self.finder.here())
        row["training"] = module.training
        self.stack.append(index)
        self.calls[index] = self.calls.get(index, 0) + 1
        if self.calls[index] > _CALLS and len(self.nodes) > _MANY:
            self._enter_whole(module, arguments)
            return
        self._name_input(index, arguments)
        if isinstance(module, torch.jit.ScriptModule):
            self.miss(f"{row['name'] or 'the model'} is scripted")
        elif self.mode is not None and isinstance(module, TAKE_OTHER_WAYS) and \
                not module.training:
            self.miss(f"{row['name'] or 'the model'} is evaluated in one piece by PyTorch")
            row["away"] = row.get("away", 0) + pull(self.mode)

    def leave(self, module: torch.nn.Module, arguments: Any, result: Any) -> None:
        if threading.get_ident() != self.thread or not self.stack:
            return
        if self.off and (self.whole is None or module is not self.whole[0]):
            return
        try:
            with torch._C.DisableTorchFunction():
                if self.whole is not None and not self._leave_whole(result):
                    return
                self._leave_module(module, result)
        except Exception as problem:
            self.miss(f"{type(module).__name__}: {type(problem).__name__}: {problem}")

    def _enter_whole(self, module: torch.nn.Module, arguments: Any) -> None:
        """One more call of a module in a loop is one operation."""
        self.miss(f"{self.known.modules[self.stack[-1]]['name'] or 'the model'} is called more "
                  f"than {_CALLS} times, in more than {_MANY} operations: further calls are one "
                  "operation each")
        self.begin_whole(module, arguments)
        self.pause(1)

    def begin_whole(self, module: torch.nn.Module, arguments: Any) -> None:
        """A call begins that is one operation."""
        self.given = tensors_of(arguments)
        inputs = [self.value(one) for one in self.given]
        self.whole = module, 0, inputs, self.finder.here()

    def _leave_whole(self, result: Any) -> bool:
        """False: it is a call within the one that is an operation."""
        module, depth, *rest = self.whole  # type: ignore[misc]
        if depth:
            self.whole = module, depth - 1, *rest
            return False
        self.pause(-1)
        self.end_whole(result)
        return True

    def end_compiled(self, result: Any, graphs: list[Any]) -> None:
        """The call of a compiled root is over: the operations of its graphs, if they are known."""
        if self.whole is None:
            return
        module, _, inputs, place = self.whole
        index = self.known.index_of(getattr(module, "_orig_mod", module), -1)
        given = {id(one): i for one, i in zip(self.given, inputs)}
        self.given = []
        count = len(self.nodes), len(self.values)
        if not graphs or sum(len(one.operations) for one in graphs) > _NODES - len(self.nodes) or \
                not compiled.write(graphs, self, given, tensors_of(result)):
            del self.nodes[count[0]:], self.values[count[1]:]
            self.miss("the model is compiled")
            self.end_whole(result)
            return
        self.whole = None
        self._is_called(index, place)
        self._name_outputs(index, result)

    def _is_called(self, index: int, place: Place | None) -> None:
        row, module = self.known.modules[index], self.known.module_refs[index]()
        if not row["called"]:
            row["called"], row["place"] = True, self.files.place(place)
        row["training"] = module.training if module is not None else row["training"]

    def given_value(self, like: dict[str, Any], key: int, given: dict[int, int],
                    before: list[int]) -> int:
        """The value of an operand of a compiled graph. key: the id() of its tensor."""
        if key in given:
            return given[key]
        parameter = self.known.parameter_ids.get(key)
        if parameter is not None:
            row = self.known.parameters[parameter]
            row["used"] = True
            return self.add_value(like, kind="parameter", tensor=row["name"], parameter=parameter)
        if key in self.known.buffers:
            return self.add_value(like, kind="buffer", tensor=self.known.buffers[key])
        fits = (i for i in before if self.values[i]["shape"] == like["shape"] and
                self.values[i]["dtype"] == like["dtype"])
        index = next(fits, None)
        if index is None:
            return self.add_value(like, kind="input", _hidden=like["requires_grad"])
        before.remove(index)
        return index

    def add_value(self, like: dict[str, Any], **more: Any) -> int:
        self.values.append({**like, **more})
        return len(self.values) - 1

    def add_node(self, row: Any, inputs: list[int], outputs: list[int]) -> None:
        """An operation of a compiled graph."""
        modules = [self.known.module_ids[key][0] for key in row.modules
                   if key in self.known.module_ids]
        for index in modules:
            self._is_called(index, row.place)
        for index in outputs:
            self.makers[index] = len(self.nodes)
        self.nodes.append({"op": row.name, "attributes": row.attributes, "inputs": inputs,
                           "outputs": outputs, "module": modules[-1] if modules else 0,
                           "place": self.files.place(row.place), "_function": (None, row.place)})

    def link(self, tensor: torch.Tensor, index: int) -> None:
        """A tensor of the program's has a value that is known."""
        self._enter(tensor, index)

    def end_whole(self, result: Any) -> None:
        if self.whole is None:
            return
        (module, _, inputs, place), self.whole = self.whole, None
        self.given = []
        index = self.known.index_of(getattr(module, "_orig_mod", module), -1)
        outputs = [] if len(self.nodes) >= _NODES else tensors_of(result)
        if outputs:
            self._node({"op": "call", "attributes": {}, "inputs": inputs, "module": index,
                        "place": self.files.place(place)}, outputs, {})
            if not self.handles:  # nothing else tells of calls of modules
                self.known.modules[index]["called"] = True
                self._name_outputs(index, result)

    def _leave_module(self, module: torch.nn.Module, result: Any) -> None:
        index = self.known.index_of(module, -1)
        while self.stack and self.stack.pop() != index:
            pass
        row = self.known.modules[index]
        if row.pop("away", 0) and self.mode is not None:
            push(self.mode)
        if row["registered"] and self.known.is_declared(index):
            self._name_outputs(index, result)

    def _name_input(self, index: int, arguments: Any) -> None:
        """Links what lies between two modules to the name under which it is observed when it is
        not finite (python/extension/python_forward.c)."""
        first = arguments[0] if isinstance(arguments, tuple) and arguments else None
        value = self.ids.get(id(first), -1) if isinstance(first, torch.Tensor) else -1
        name = self.known.modules[index]["name"]
        if value in self.makers and name and self.known.is_declared(index) and \
                first.is_floating_point() and not self.values[value].get("tensor"):
            self.values[value]["tensor"] = f"{name}_input_0"

    def _name_outputs(self, index: int, result: Any) -> None:
        """Links values to the tensors that are observed (python/extension/python_forward.c)."""
        name = self.known.modules[index]["name"]
        for tensor in tensors_of(result):
            if not tensor.is_floating_point() or id(tensor) == self.last_output:
                continue
            self.last_output = id(tensor)
            number = self.numbers.get(index, 0)
            self.numbers[index] = number + 1
            row = self.values[self.value(tensor)]
            if not row.get("tensor"):
                row["tensor"] = f"{name}_output_{number}" if name else f"output_{number}"

    # --- events ---------------------------------------------------------------------------------

    def event(self, kind: str, at: Place | None, **row: Any) -> None:
        self.events.append({"event": kind, "place": self.files.place(at), **row})

    def forward(self, module: Any, inputs: Any, place: Place | None) -> None:
        """A root is called, not within another one."""
        self.numbers.clear()
        self.last_output = None
        self.event("forward", place, module=self.known.index_of(module, -1),
                   training=module.training, grad=torch.is_grad_enabled(),
                   autocast=torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu"))
        counts = {"input": 0, "input_ids": 0}
        for tensor in tensors_of(inputs):
            kind = "input" if tensor.is_floating_point() else "input_ids"
            row = self.values[self.value(tensor)]
            if not row.get("tensor") and (kind == "input" or not tensor.is_complex()):
                row["tensor"] = f"{kind}/{counts[kind]}" if counts[kind] else kind
            counts[kind] += 1
            if "input_dtype" not in self.facts and tensor.numel():
                self.facts |= self.facts_of.of_input(tensor)
                self.rows = rows_of(tensor) if kind == "input" else None
            if kind == "input" and len(self.hashes) < _TOKENS:
                self.hashes.setdefault(hash_of(tensor) or 0, row.get("tensor", ""))
            if kind == "input_ids" and tensor.dim() == 2 and len(self.tokens) < _TOKENS and \
                    tensor.dtype != torch.bool and not tensor.is_complex():
                self.tokens.append((row.get("tensor", ""), weakref.ref(tensor)))

    def backward(self, tensor: torch.Tensor, name: str, place: Place | None,
                 scale: float, left: int | None) -> None:
        """left: optimizers with gradients of before (facts.left)."""
        value = self.value(tensor)
        parts = losses.above(value, self.nodes, self.makers)
        within = [row for row in self.losses if row["node"] in parts]
        if not within and parts:
            self._by_hand(value, parts[0])
            within = [row for row in self.losses if row["value"] == value]
        for row in within:
            if row["backward"] < 0:
                row["backward"] = len(self.events)
        whole = value
        if scale != 1 and parts and self.nodes[parts[0]]["op"] == "mul":
            whole = next((i for i in self.nodes[parts[0]]["inputs"] if i >= 0), value)
        if name and not self.values[whole].get("tensor"):
            self.values[whole]["tensor"] = name
        known = {} if left is None else {"left": left}
        self.event("backward", place, value=whole,
                   attributes=known | ({"scale": scale} if scale != 1 else {}))
        self._reach(tensor)

    def _by_hand(self, value: int, node: int) -> None:
        meeting = losses.by_hand(value, self.nodes, self.values, self.makers)
        if meeting is None:
            return
        row, predictions, targets = meeting
        self._loss(node, value, predictions, targets, self.nodes[node]["place"])
        inputs = row["inputs"]
        alive = {index: self.refs[key]() for key, index in self.ids.items() if index in inputs}
        if len(self.losses) == 1 and alive.get(targets) is not None:
            self._facts(alive[targets])
        if row["_function"] not in self.observed.losses:
            name = self.observed.loss(
                *row["_function"], [alive.get(i) for i in inputs],
                (inputs.index(predictions), inputs.index(targets)), None, True)
            self._name_targets(targets, name)

    def _reach(self, loss: torch.Tensor) -> None:
        """Marks the parameters that the autograd graph of a loss has."""
        seen: set[Any] = set()
        next_ = [loss.grad_fn] if loss.grad_fn is not None else []
        hidden = False
        while next_ and len(seen) < _GRAPH:
            node = next_.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            variable = getattr(node, "variable", None)
            if variable is not None and id(variable) in self.known.parameter_ids:
                self.known.parameters[self.known.parameter_ids[id(variable)]]["reached"] = True
            hidden = hidden or "Checkpoint" in type(node).__name__
            next_ += [function for function, _ in node.next_functions]
        if next_ or hidden:  # what is not seen of it may reach any
            for row in self.known.parameters:
                row["reached"] = row["requires_grad"]
