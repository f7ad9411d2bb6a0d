"""Traces: all tensors that a program showed, so that changed rules judge them again without
training. A trace replays into a watch (watch.py), a step in three calls of C."""

import json
import os

import numpy as np
import torch

TRAIN, EVAL = 0, 1
ROLES = {"weight": 0, "bias": 1, "buffer": 2, "gradient": 3, "update": 4, "optimizer": 5, "loss": 6,
         "input": 7, "output": 8, "activation": 9, "other": 12}
PASSES = {"none": 0, "forward": 1, "backward": 2, "update": 3}
DTYPES = {"bool": 0, "uint8": 1, "int8": 2, "int32": 6, "int64": 8, "float16": 9, "bfloat16": 10,
          "float32": 11, "float64": 12}
VIEW = np.dtype([("dtype", "<i4"), ("rank", "<i4"), ("shape", "<i8", 8), ("stride", "<i8", 8),
                 ("data", "<u8")])


class Recorder:
    """Keeps what a program shows."""

    def __init__(self, path):
        self.path, self.file, self.offset = path, open(path + ".bin", "wb"), 0
        self.infos, self.slots, self.rows, self.steps, self.replica = [], {}, [], [], 0

    def declare(self, name, value, role="other", op="", module="", step=None):
        if name not in self.slots:
            if step is None:
                step = "forward" if role in ("output", "loss") or module else "none"
            self.slots[name] = len(self.infos)
            self.infos.append({"name": name, "role": role, "op": op, "module": module,
                               "pass": step, "dtype": DTYPES[str(value.dtype).split(".")[1]],
                               "shape": list(value.shape)})
        return self.slots[name]

    def see(self, name, value, **info):
        slot = self.declare(name, value, **info)
        dtype, value = str(value.dtype).split(".")[1], value.detach()
        bits = value.view(torch.int16) if dtype == "bfloat16" else value  # NumPy has no bfloat16
        array = np.ascontiguousarray(bits.numpy())
        self.rows.append((slot, DTYPES[dtype], value.shape, self.offset, self.replica))
        self.file.write(array.tobytes())
        self.offset += (array.nbytes + 15) // 16 * 16
        self.file.seek(self.offset)

    def begin(self, mode):
        self.steps.append((mode, len(self.rows)))

    def end(self):
        pass

    def close(self, **facts):
        self.file.truncate(self.offset)
        self.file.close()
        views = np.zeros(len(self.rows), VIEW)
        for view, (_, dtype, shape, offset, _) in zip(views, self.rows):
            view["dtype"], view["rank"], view["data"] = dtype, len(shape), offset
            stride = 1
            for i in reversed(range(len(shape))):
                view["shape"][i], view["stride"][i] = shape[i], stride
                stride *= shape[i]
        slots = np.array([row[0] for row in self.rows], np.uint32)
        replicas = np.array([row[4] for row in self.rows], np.uint8)
        np.savez(self.path + ".part.npz", views=views, slots=slots, replicas=replicas,
                 steps=np.array(self.steps + [(0, len(self.rows))], np.int64))
        with open(self.path + ".json", "w") as out:
            json.dump({"infos": self.infos, **facts}, out)
        os.replace(self.path + ".part.npz", self.path + ".npz")


class Trace:
    def __init__(self, path):
        with open(path + ".json") as file:
            self.facts = json.load(file)
        parts = np.load(path + ".npz")
        self.infos = self.facts["infos"]
        self.views, self.slots, self.steps = parts["views"], parts["slots"], parts["steps"]
        self.replicas = parts["replicas"] if parts.get("replicas", np.zeros(1)).any() else None
        self.data = np.fromfile(path + ".bin", np.uint8) if self.views.size else np.zeros(1)
        self.views["data"] += self.data.ctypes.data
