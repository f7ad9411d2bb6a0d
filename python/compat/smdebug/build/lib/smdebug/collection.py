"""Collections: sets of tensors that are saved on one schedule."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from .config import ReductionConfig, SaveConfig, SaveConfigMode
from .exceptions import SMDebugTypeError, SMDebugValueError


class CollectionKeys:
    """Names of collections."""

    DEFAULT = "default"
    ALL = "all"
    INPUTS = "inputs"
    OUTPUTS = "outputs"
    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    LOSSES = "losses"
    BIASES = "biases"
    LAYERS = "layers"
    SM_METRICS = "sm_metrics"
    OPTIMIZER_VARIABLES = "optimizer_variables"
    TENSORFLOW_SUMMARIES = "tensorflow_summaries"
    METRICS = "metrics"
    HYPERPARAMETERS = "hyperparameters"
    PREDICTIONS = "predictions"
    LABELS = "labels"
    FEATURE_IMPORTANCE = "feature_importance"
    AVERAGE_SHAP = "average_shap"
    FULL_SHAP = "full_shap"
    TREES = "trees"


# The built-in collections, by the expression that smdebug matches (anywhere in a name).
BUILT_IN = {"weights": r"^(?!gradient).*weight", "biases": r"^(?!gradient).*bias",
            "gradients": r"^gradient", "losses": r"[Ll]oss_(?!input).*output",
            "all": None, "default": None}
# Numbers, whose values are saved even if reductions are asked for.
SCALARS = ("losses", "metrics", "sm_metrics", "feature_importance", "average_shap")
_OTHER_NAMES = {"bias": "biases"}


class Collection:
    """A set of tensors: those whose name an expression matches anywhere, those that are named,
    and the inputs and outputs of modules. With no SaveConfig or ReductionConfig of its own it
    has the hook's."""

    def __init__(self, name: str, include_regex: Iterable[str] | str | None = None,
                 tensor_names: Iterable[str] | None = None,
                 reduction_config: ReductionConfig | None = None,
                 save_config: Any = None, save_histogram: bool = True):
        self.name = name
        self.include_regex: list[str] = []
        self.tensor_names: set[str] = set(tensor_names or ())
        self.modules: list[tuple[Any, bool, bool]] = []  # module, inputs, outputs
        self.save_histogram = save_histogram
        self._reduction_config: ReductionConfig | None = None
        self._save_config: SaveConfig | None = None
        self.include(include_regex or ())
        if reduction_config is not None:
            self.reduction_config = reduction_config
        if save_config is not None:
            self.save_config = save_config

    def include(self, t: str | Iterable[str]) -> None:
        """Adds an expression, or several."""
        for pattern in [t] if isinstance(t, str) else t:
            if not isinstance(pattern, str):
                raise SMDebugTypeError(f"include: {pattern!r} (expected a regular expression)")
            if pattern not in self.include_regex:
                self.include_regex.append(pattern)

    def add_module_tensors(self, module: Any, inputs: bool = False, outputs: bool = True) -> None:
        """Adds the inputs and outputs of a module; it gets its name when it is registered."""
        self.modules.append((module, inputs, outputs))

    def add_tensor_name(self, tname: str) -> None:
        self.tensor_names.add(tname)

    def remove_tensor_name(self, tname: str) -> None:
        self.tensor_names.discard(tname)

    def has_tensor_name(self, tname: str) -> bool:
        return tname in self.tensor_names

    @property
    def save_config(self) -> SaveConfig | None:
        return self._save_config

    @save_config.setter
    def save_config(self, value: Any) -> None:
        if not isinstance(value, (SaveConfig, SaveConfigMode, Mapping)):
            raise SMDebugTypeError(f"save_config: {value!r} (expected a SaveConfig)")
        self._save_config = SaveConfig.parse(value)

    @property
    def reduction_config(self) -> ReductionConfig | None:
        return self._reduction_config

    @reduction_config.setter
    def reduction_config(self, value: Any) -> None:
        if isinstance(value, Mapping):
            value = ReductionConfig.from_dict(value)
        if not isinstance(value, ReductionConfig):
            raise SMDebugTypeError(f"reduction_config: {value!r} (expected a ReductionConfig)")
        self._reduction_config = value

    @property
    def is_empty(self) -> bool:
        return not (self.include_regex or self.tensor_names or self.modules)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Collection) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return (f"Collection({self.name!r}, include_regex={self.include_regex!r}, "
                f"tensor_names={sorted(self.tensor_names)!r})")


class CollectionManager:
    """Collections by name."""

    def __init__(self) -> None:
        self.collections: dict[str, Collection] = {}
        for name, pattern in BUILT_IN.items():
            self.collections[name] = Collection(name, [pattern] if pattern else None)

    def get(self, name: str, create: bool = True) -> Collection:
        name = _OTHER_NAMES.get(name, name)
        if name not in self.collections:
            if not create:
                raise KeyError(name)
            self.collections[name] = Collection(name)
        return self.collections[name]

    def add(self, collection: "Collection | str") -> None:
        if isinstance(collection, str):
            collection = Collection(collection)
        if not isinstance(collection, Collection):
            raise SMDebugTypeError(f"add_collection: {collection!r} (expected a Collection)")
        self.collections[collection.name] = collection

    def get_collections(self) -> dict[str, Collection]:
        return self.collections


# Collections that get_collection makes before there is a hook; the next hook takes them.
_pending = CollectionManager()
_lock = threading.Lock()


def pending() -> CollectionManager:
    return _pending


def take_pending() -> CollectionManager:
    """The collections that were made before this hook."""
    global _pending
    with _lock:
        taken, _pending = _pending, CollectionManager()
    return taken


def check_names(names: Iterable[str]) -> list[str]:
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise SMDebugValueError(f"include_collections: {names!r} (expected a list of names)")
    return [_OTHER_NAMES.get(name, name) for name in names]
