"""The autograd graph of a loss: which operations lead to it, over which shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch

# Operations that move values and change none.
MOVES = {"View", "UnsafeView", "Reshape", "ReshapeAlias", "Transpose", "Permute", "T", "Squeeze",
          "Unsqueeze", "Clone", "ToCopy", "Alias", "Select", "Slice", "Index", "Flatten",
          "Contiguous", "Movedim", "Unbind", "Split"}
_LIMIT = 100000  # nodes of a graph that is searched


def kind(node: Any) -> str:
    """The operation of a node: "LogSoftmax" of LogSoftmaxBackward0."""
    return re.sub(r"Backward\d*$", "", type(node).__name__)


def nodes(*roots: torch.Tensor, until: set[Any] | None = None) -> Iterator[Any]:
    """The nodes behind some tensors, nearest first; none behind the nodes in until."""
    level = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen: set[Any] = set(level)
    while level:
        below = []
        for node in level:
            yield node
            if until is not None and node in until:
                continue
            for one, _ in node.next_functions:
                if one is not None and one not in seen and len(seen) < _LIMIT:
                    seen.add(one)
                    below.append(one)
        level = below


def source(node: Any, number: int = 0) -> Any:
    """The node that computed an input of a node, behind operations that only move values;
    None: a leaf without a gradient."""
    if number >= len(node.next_functions):
        return None
    found = node.next_functions[number][0]
    while found is not None and kind(found) in MOVES:
        found = found.next_functions[0][0] if found.next_functions else None
    return found


def leaves_of(root: torch.Tensor) -> list[torch.Tensor]:
    """The tensors to which a backward pass would add gradients."""
    return [node.variable for node in nodes(root) if hasattr(node, "variable")]


def dimension(node: Any) -> int:
    """The dimension of a softmax: negative ones count from the end."""
    dim = int(node._saved_dim)
    return dim - (1 << 64) if dim >= 1 << 63 else dim
