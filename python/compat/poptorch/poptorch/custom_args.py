"""Arguments of a model that are objects of the program's: which tensors they hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree


class ICustomArgParser:
    """What a program says of a type of its own."""

    def yieldTensors(self, struct: Any) -> Iterator[torch.Tensor]:
        """All tensors of an object, always in the same order."""
        raise NotImplementedError

    def reconstruct(self, original_structure: Any, tensor_iterator: Iterator[torch.Tensor]) -> Any:
        """An object like the original one, of other tensors in that order."""
        raise NotImplementedError


def registerCustomArgParser(parsed_type: type, arg_parser: ICustomArgParser) -> None:
    """Lets a model take, and return, objects of a type."""
    if not isinstance(arg_parser, ICustomArgParser):
        raise ValueError(f"arg_parser: {arg_parser!r} (expected a poptorch.ICustomArgParser)")
    def flat(value: Any) -> tuple[list[torch.Tensor], _Like]:
        return list(arg_parser.yieldTensors(value)), _Like(value)

    def flat_with_keys(value: Any) -> Any:
        tensors, like = flat(value)
        return [(pytree.SequenceKey(i), one) for i, one in enumerate(tensors)], like

    pytree.register_pytree_node(
        parsed_type, flat, lambda tensors, like: arg_parser.reconstruct(like.value, iter(tensors)),
        flatten_with_keys_fn=flat_with_keys)


class _Like:
    """The object that others are made like; all of a type are alike."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Like) and type(self.value) is type(other.value)

    def __hash__(self) -> int:
        return hash(type(self.value))
