"""The optimizer's state, between PyTorch's optimizer and the engine's checkpoint (safetensors)."""

from __future__ import annotations

import json
import struct
from typing import Any

import torch

# of each kind: PyTorch's names of a parameter's state, and the engine's prefixes
_NAMES = {
    "sgd": {"momentum_buffer": "Accl1"},
    "adam": {"exp_avg": "Accl1", "exp_avg_sq": "Accl2", "step": "Step"},
    "adamw": {"exp_avg": "Accl1", "exp_avg_sq": "Accl2", "step": "Step"},
    "lamb": {"exp_avg": "Accl1", "exp_avg_sq": "Accl2", "step": "Step"},
    "rmsprop": {"square_avg": "Accl1", "grad_avg": "Accl2", "momentum_buffer": "Accl3"},
    "adagrad": {"sum": "Accl1", "step": "Step"},
}
_DTYPES = {"F32": torch.float32, "I64": torch.int64, "BOOL": torch.bool}


def _tensors(state: bytes) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The header of a checkpoint, and its tensors as views of a copy."""
    size = struct.unpack("<Q", state[:8])[0]
    header = json.loads(state[8:8 + size])
    data, found = bytearray(state[8 + size:]), {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            found[name] = torch.frombuffer(data, dtype=_DTYPES[entry["dtype"]], offset=begin,
                                           count=-1 if end == len(data) else
                                           (end - begin) // _DTYPES[entry["dtype"]].itemsize
                                           ).view(entry["shape"])
    return header, found


def taken(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimizer has taken steps."""
    return any("step" not in state or float(state["step"]) > 0
               for state in optimizer.state.values())


def give(state: bytes, kind: str, optimizer: torch.optim.Optimizer,
         names: dict[int, str]) -> bytes:
    """A checkpoint with the state of PyTorch's optimizer. names: of parameters, by id."""
    header, tensors = _tensors(state)
    steps = 1
    for weight, values in optimizer.state.items():
        for theirs, ours in _NAMES[kind].items():
            target = tensors.get(f"{ours}___{names.get(id(weight))}")
            if target is not None and values.get(theirs) is not None:
                target.copy_(torch.as_tensor(values[theirs]))
        steps = max(steps, int(values.get("step", 1)))
    header["__metadata__"]["sonde.step"] = str(steps)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    blocks = sorted((entry["data_offsets"], name) for name, entry in header.items()
                    if name != "__metadata__")
    data = b"".join(tensors[name].contiguous().numpy().tobytes() for _, name in blocks)
    return struct.pack("<Q", len(text)) + text + data


def take(state: bytes, kind: str, optimizer: torch.optim.Optimizer,
         weights: dict[str, torch.nn.Parameter]) -> None:
    """Writes the state of a checkpoint to PyTorch's optimizer."""
    header, tensors = _tensors(state)
    steps = torch.tensor(float(header["__metadata__"]["sonde.step"]))
    trained = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    for name, weight in weights.items():
        for theirs, ours in _NAMES[kind].items():
            value = tensors.get(f"{ours}___{name}")
            if value is not None and id(weight) in trained:
                optimizer.state[weight][theirs] = value.clone() if theirs == "step" else \
                    value.to(weight.dtype, copy=True)
                if isinstance(optimizer, torch.optim.RMSprop):
                    optimizer.state[weight]["step"] = steps.clone()
