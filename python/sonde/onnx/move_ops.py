"""ONNX ops that move elements: shapes, parts, sequences, gather and scatter, borders, sizes."""

import math
from typing import Any

import numpy

from .reader import ONE, OPEN, Node, Size, Value
from .table import data, op

# --- shapes -----------------------------------------------------------------------------

@op("Reshape")
def reshape(n: Node) -> Value:
    x, have = data(n)
    want = n.sizes(1, "its shape")
    if len(want) > 8:
        n.unsupported(f"a shape of {len(want)} dimensions", "at most 8")
    for i, size in enumerate(want):
        if size == Size(0, 0):
            if i >= len(have) or n.get("allowzero", 0):
                n.refuse("SONDE_ESHAPE", f"dimension {i} of its shape is 0")
            want[i] = have[i]
        if size.fixed and size.n < -1:
            n.refuse("SONDE_ESHAPE", f"dimension {i} of its shape is {size.n}", "-1 or more")
    return n.reshape(x, want)


@op("Flatten")
def flatten(n: Node) -> Value:
    x, have = data(n)
    axis = n.get("axis", 1)
    axis = axis if axis == len(have) else n.axis(axis, len(have))
    want = []
    for part in (have[:axis], have[axis:]):
        moves = [size for size in part if not size.fixed]
        one = math.prod(size.n for size in part)
        want.append(part[0] if moves and axis == 1 and len(part) == 1 else
                    OPEN if moves else Size(one, one))
    return n.reshape(x, want)


@op("Squeeze")
def squeeze(n: Node) -> Value:
    x, have = data(n)
    axes = {n.axis(axis, len(have)) for axis in n.whole(1, "axes")} if n.has(1) else \
        {i for i, size in enumerate(have) if size == ONE}
    for axis in axes:
        if have[axis] != ONE:
            n.refuse("SONDE_ESHAPE", f"dimension {axis} is not 1", "1")
    return n.reshape(x, [size for i, size in enumerate(have) if i not in axes])


@op("Unsqueeze")
def unsqueeze(n: Node) -> Value:
    x, have = data(n)
    axes = n.whole(1, "axes")
    rank = len(have) + len(axes)
    if rank > 8:
        n.refuse("SONDE_ESHAPE", f"{rank} dimensions", "at most 8")
    places = {n.axis(axis, rank) for axis in axes}
    rest = iter(have)
    return n.reshape(x, [ONE if i in places else next(rest) for i in range(rank)])


@op("Transpose")
def transpose(n: Node) -> Value:
    x, sizes = data(n)
    order = n.get("perm", None) or tuple(reversed(range(len(sizes))))
    if len(order) != len(sizes):
        n.refuse("SONDE_ESHAPE", f"perm of {len(order)} numbers for {len(sizes)} dimensions")
    return n.permute(x, order)


@op("Slice")
def cut(n: Node) -> Value:
    x, sizes = data(n)
    begin, end = n.whole(1, "starts"), n.sizes(2, "ends")
    axes = n.whole(3, "axes") if n.has(3) else list(range(len(begin)))
    steps = n.whole(4, "steps") if n.has(4) else [1] * len(begin)
    if not len(begin) == len(end) == len(axes) == len(steps):
        n.refuse("SONDE_EINVAL", f"{len(begin)} starts, {len(end)} ends, {len(axes)} axes, "
                 f"{len(steps)} steps")
    for start, stop, axis, step in zip(begin, end, axes, steps):
        axis = n.axis(axis, len(sizes))
        size = sizes[axis]
        if step < 1:
            if not size.fixed:
                n.unsupported(f"a step of {step} along the batch", "1 or more")
            x = _backward(n, x, axis, range(size.n)[start:max(stop.n, -2 ** 40):step])
            continue
        whole = stop == size or (size.fixed and stop.n >= size.n)
        if not whole and not stop.fixed and n.importer.shadow:
            n.unsupported("ends depends on the batch", "another number")
        x = n.cut(x, axis, start, 2 ** 62 if whole else stop.n, step)
    return x


def _backward(n: Node, x: Value, axis: int, places: range) -> Value:
    """Places that go down: turned, then cut."""
    if len(places) == 0:
        n.refuse("SONDE_ESHAPE", "no places", "at least 1")
    x = n.cut(x, axis, places[-1], places[0] + 1, -places.step)
    return n.emit("flip", x, dims=axis)


@op("Concat")
def concat(n: Node) -> Value:
    return _joined(n, [n.take(i) for i in range(len(n.proto.input))], n.get("axis", 0))


def _joined(n: Node, values: list[Value], axis: int) -> Value:
    made = values[0]
    for value in values[1:]:
        made = n.emit("cat", made, value, dim=axis)
    return made


def _parts(n: Node, x: Value, axis: int, sizes: list[int]) -> list[Value]:
    made, begin, all_of_it = [], 0, n.shape(x)[axis].n
    for size in sizes:
        if not 1 <= size <= all_of_it:
            n.refuse("SONDE_ESHAPE", f"a part of {size}", "1 or more")
        made.append(n.cut(x, axis, begin, begin + size))
        begin += size
    return made


@op("Split")
def split(n: Node) -> Any:
    x, sizes = data(n)
    axis, count = n.axis(n.get("axis", 0), len(sizes)), len(n.proto.output)
    each = -(-sizes[axis].n // max(count, 1))
    parts = n.whole(1, "split") if n.has(1) else \
        [min(each, sizes[axis].n - each * k) for k in range(count)]
    if len(parts) != count or not sizes[axis].fixed:
        n.unsupported(f"{len(parts)} parts for {count} outputs", "one part for each output")
    begin = 0
    for output, size in enumerate(parts):  # each gets its name before the next is made
        if not 1 <= size <= sizes[axis].n:
            n.refuse("SONDE_ESHAPE", f"a part of {size}", "1 or more")
        n.give(output, n.cut(x, axis, begin, begin + size))
        begin += size
    return None


# --- sequences --------------------------------------------------------------------------

def _sequence(n: Node, i: int) -> list[Value]:
    slot = n.slot(i)
    if slot is None or not isinstance(slot.value, list):
        n.unsupported(f"its input {i} is no list that nodes make", "a sequence")
    return slot.value


@op("SplitToSequence")
def split_to_sequence(n: Node) -> list[list[Value]]:
    x, sizes = data(n)
    axis = n.fixed_axis(n.get("axis", 0), sizes)
    known, size = n.known(1), sizes[axis].n
    if n.has(1) and known is not None and known[0].ndim == 0:
        each = max(n.whole(1, "split")[0], 1)
        parts = [min(each, size - k) for k in range(0, size, each)]
    else:
        parts = n.whole(1, "split") if n.has(1) else [1] * size
    values = _parts(n, x, axis, parts)
    if not n.has(1) and not n.get("keepdims", 1):
        values = [n.reshape(v, [s for i, s in enumerate(n.shape(v)) if i != axis])
                  for v in values]
    return [values]


@op("SequenceConstruct")
def sequence_construct(n: Node) -> list[list[Value]]:
    return [[n.take(i) for i in range(len(n.proto.input))]]


@op("SequenceAt")
def sequence_at(n: Node) -> Value:
    values, place = _sequence(n, 0), n.whole(1, "position")[0]
    if not -len(values) <= place < len(values):
        n.refuse("SONDE_ERANGE", f"place {place} of {len(values)}", "a place of the sequence")
    return values[place]


@op("ConcatFromSequence")
def concat_from_sequence(n: Node) -> Value:
    values, axis = _sequence(n, 0), n.get("axis", 0)
    if n.get("new_axis", 0):
        rank = len(n.shape(values[0])) + 1
        axis = n.axis(axis, rank)
        values = [n.reshape(v, [*n.shape(v)[:axis], ONE, *n.shape(v)[axis:]]) for v in values]
    return _joined(n, values, axis)


# --- expand, gather ---------------------------------------------------------------------

@op("Expand")
def expand(n: Node) -> Value:
    x, have = data(n)
    target = n.sizes(1, "its shape")
    rank = max(len(have), len(target))
    if rank > 8:
        n.unsupported(f"a shape of {rank} dimensions", "at most 8")
    have = [ONE] * (rank - len(have)) + have
    target = [ONE] * (rank - len(target)) + target
    size, moves = [], []
    for i in range(rank):
        if have[i] != ONE:
            size.append(-1)
        elif not target[i].fixed and n.importer.shadow:
            moves.append(i)
            size.append(1)
        else:
            size.append(target[i].n)
    if rank == 0:
        return x
    dtype = n.dtype(x)
    x = n.emit("expand", n.to(x, "float32"), size=tuple(size))
    x = n.repeat(x, rank, moves) if moves else x
    return n.to(x, dtype)


def places(n: Node, i: int, size: int) -> Value:
    """Places of a dimension; known negative ones count from the end."""
    slot, known = n.slot(i), n.known(i)
    if slot is not None and known is not None and slot.value is None:
        wrapped = [numpy.where(k < 0, k + size, k) for k in known]
        for array in wrapped:
            if array.size and not (0 <= array.min() and array.max() < size):
                bad = known[0].reshape(-1)[numpy.argmax((wrapped[0] < 0).ravel() |
                                                        (wrapped[0] >= size).ravel())]
                n.refuse("SONDE_ERANGE", f"place {bad} of {size}", "places of the dimension")
        slot.known = (wrapped[0], wrapped[1])
    return n.take(i)


@op("Gather")
def gather(n: Node) -> Value:
    axis, known = n.get("axis", 0), n.known(1)
    if known is None or known[0].size > 64 or known[0].ndim > 1:
        return _gather_computed(n, axis)
    x, sizes = data(n)
    axis = n.axis(axis, len(sizes))
    picked = n.whole(1, "indices")
    if not picked or not sizes[axis].fixed:
        n.unsupported(f"{len(picked)} places of dimension {axis}", "some, of another dimension")
    size = sizes[axis].n
    picked = [place + size if place < 0 else place for place in picked]
    for place in picked:
        if not 0 <= place < size:
            n.refuse("SONDE_ERANGE", f"place {place} of {size}")
    step = picked[1] - picked[0] if len(picked) > 1 else 1
    if step >= 1 and picked == [picked[0] + i * step for i in range(len(picked))]:
        x = n.cut(x, axis, picked[0], picked[-1] + 1, step)
    else:
        made = n.cut(x, axis, picked[0], picked[0] + 1)
        for place in picked[1:]:
            made = n.emit("cat", made, n.cut(x, axis, place, place + 1), dim=axis)
        x = made
    count = Size(len(picked), len(picked))
    return n.reshape(x, sizes[:axis] + [count] * known[0].ndim + sizes[axis + 1:])


def _gather_computed(n: Node, axis: int) -> Value:
    """Places that are computed, or many: rows of a parameter are an embedding."""
    initial = n.initial(0)
    table = initial is not None and len(initial.dims) == 2 and axis in (0, -2)
    x = n.take(0, "weight" if table else "activation")
    sizes = n.shape(x)
    axis = n.axis(axis, len(sizes))
    index = places(n, 1, sizes[axis].n)
    if table:
        return n.emit("embedding", index, x, num_embeddings=sizes[0].n,
                      embedding_dim=sizes[1].n)
    at = n.shape(index)
    if not sizes[axis].fixed or len(sizes) + len(at) - 1 > 8 or \
            (at and not at[0].fixed and axis != 0):
        n.unsupported(f"places of dimension {axis} that are computed",
                      "places of a dimension that is not the batch")
    made = n.emit("index_select", x, n.reshape(index, [OPEN]), dim=axis)
    return n.reshape(made, sizes[:axis] + at + sizes[axis + 1:])


@op("GatherElements", "ScatterElements")
def elements(n: Node) -> Value:
    puts = n.op == "ScatterElements"
    kind = n.word("reduction", "none", {"none": "scatter", "add": "scatter_add"}) if puts \
        else "gather"
    x, sizes = data(n)
    axis = n.fixed_axis(n.get("axis", 0), sizes)
    index = places(n, 1, sizes[axis].n)
    values = [x, index] + ([n.take(2)] if puts else [])
    if len(n.shape(index)) != len(sizes):
        n.refuse("SONDE_ESHAPE", f"indices of {len(n.shape(index))} dimensions for data of "
                 f"{len(sizes)}", "as many dimensions as the data")
    return n.emit(kind, *values, dim=axis)


def product(sizes: list[Size]) -> Size:
    return Size(math.prod(s.n for s in sizes), math.prod(s.m for s in sizes))


class Blocks:
    """data (B ..., D1 ... Dk, R ...) and indices (B ..., m ..., k): the first dimensions that
    indices name become one, and the k numbers of an index one place in it; B are batch_dims."""

    def __init__(self, n: Node) -> None:
        self.n, self.batch = n, n.get("batch_dims", 0)
        self.data, self.sizes = data(n)
        known = n.known(1)
        named = known[0].shape[-1] if known is not None and known[0].ndim else 0
        slot = n.slot(1)
        if known is not None and slot is not None and slot.value is None and \
                0 < named <= len(self.sizes) - self.batch:
            extents = [s.n for s in self.sizes[self.batch:self.batch + named]]
            slot.known = tuple(numpy.where(k < 0, k + extents, k)  # type: ignore[assignment]
                               for k in known)
        self.index, self.own = data(n, 1)
        self.named = self.own[-1].n if self.own else 0
        if self.batch not in (0, 1) or len(self.own) < self.batch + 1 or self.named < 1 or \
                self.named > len(self.sizes) - self.batch or not self.own[-1].fixed:
            n.refuse("SONDE_ESHAPE", f"indices of {self.named} numbers for {len(self.sizes)} "
                     f"dimensions, batch_dims {self.batch}",
                     "indices that name dimensions of the data, batch_dims 0 or 1")
        self.last = self.batch + self.named
        for i in range(self.batch + 1, self.last):
            if not self.sizes[i].fixed:
                n.unsupported(f"dimension {i} of those that indices name is the batch",
                              "the first")
        self.flat = [self.own[0], product(self.own[1:-1])] if self.batch else \
            [product(self.own[:-1])]

    def places(self) -> Value:
        """One place of each index, (B, m) or (m)."""
        n, numbers = self.n, self.n.to(self.index, "float32")
        total: Value | None = None
        for k in range(self.named):
            stride = product(self.sizes[self.batch + k + 1:self.last]).n
            part = n.emit("slice", numbers, dim=len(self.own) - 1, start=k, end=k + 1)
            part = part if stride == 1 else n.emit("scale", part, value=stride)
            total = part if total is None else n.emit("add", total, part)
        assert total is not None
        return n.to(n.reshape(total, self.flat), "int64")

    def in_blocks(self) -> Value:
        """data as (B, D1 ... Dk, R) or (D1 ... Dk, R)."""
        count = product(self.sizes[self.batch:self.last])
        if count.n > 1 << 24:  # whole numbers that a float32 holds
            self.n.unsupported(f"indices of {count.n} places", "at most 16,777,216")
        return self.n.reshape(self.data, [*self.sizes[:self.batch], count,
                                          product(self.sizes[self.last:])])


@op("GatherND")
def gather_nd(n: Node) -> Value:
    b = Blocks(n)
    x, index = b.in_blocks(), b.places()
    if b.batch:  # for each of R elements: (B, m, R)
        rest = product(b.sizes[b.last:]).n
        wide = n.reshape(n.to(index, "float32"), [*b.flat, ONE])
        index = n.to(n.emit("expand", wide, size=(-1, -1, rest)), "int64")
    made = n.emit("gather" if b.batch else "index_select", x, index, dim=b.batch)
    return n.reshape(made, b.own[:-1] + b.sizes[b.last:])


@op("ScatterND")
def scatter_nd(n: Node) -> Value:
    kind = n.word("reduction", "none", {"none": "scatter", "add": "index_add"})
    b = Blocks(n)
    x, index = b.in_blocks(), b.places()
    source = n.reshape(n.take(2), [product(b.own[:-1]), product(b.sizes[b.named:])])
    return n.reshape(n.emit(kind, x, index, source, dim=0), b.sizes)


@op("OneHot")
def one_hot(n: Node) -> Value:
    depth, axis = n.whole(1, "depth"), n.get("axis", -1)
    x, sizes = data(n)
    values = n.known(2)
    if axis not in (-1, len(sizes)) or len(depth) != 1 or values is None or \
            values[0].tolist() != [0, 1]:
        n.unsupported(f"other values, or axis {axis}",
                      "values 0 and 1, along a new last dimension")
    made = n.emit("one_hot", n.to(x, "int64"), num_classes=depth[0])
    return n.to(made, "int64") if values[0].dtype.kind in "iub" else made


@op("Tile")
def tile(n: Node) -> Value:
    return n.emit("repeat", n.take(0), repeats=tuple(n.whole(1, "repeats")))


@op("DepthToSpace", "SpaceToDepth")
def depth(n: Node) -> Value:
    """PyTorch's pixel_shuffle has a channel's block side by side, the mode CRD; in DCR, and
    SpaceToDepth, blocks come first."""
    out, b = n.op == "DepthToSpace", n.get("blocksize", 1)
    x, sizes = data(n)
    if len(sizes) != 4 or not 1 <= b <= 4096 or (out and sizes[1].n % (b * b)):
        n.refuse("SONDE_ESHAPE", f"{len(sizes)} dimensions, blocks of {b}",
                 "(N, C, H, W), and a block that fits")
    if not out:
        x = n.emit("pixel_unshuffle", x, downscale_factor=b)
    if not out or n.get("mode", "DCR") == "DCR":
        have = n.shape(x)
        parts = [Size(b * b, b * b), Size(have[1].n // (b * b), have[1].n // (b * b))]
        wide = [have[0], *(parts if out else reversed(parts)), *have[2:]]
        x = n.reshape(n.permute(n.reshape(x, wide), (0, 2, 1, 3, 4)), have)
    return n.emit("pixel_shuffle", x, upscale_factor=b) if out else x


# --- Pad, Resize, TopK, CumSum ----------------------------------------------------------

def _pad(n: Node, x: Value, begin: list[int], end: list[int], mode: str, value: float) -> Value:
    """A border before and after each of the last four dimensions."""
    pads: list[int] = []
    for i in reversed(range(len(begin))):
        if len(pads) < 8:
            pads += [begin[i], end[i]]
        elif begin[i] or end[i]:
            n.unsupported(f"padding of dimension {i} of {len(begin)}", "one of the last four")
    return n.emit("pad", x, pad=tuple(pads), mode=mode, value=value)


@op("Pad")
def pad(n: Node) -> Value:
    mode = n.word("mode", "constant", {"constant": "constant", "reflect": "reflect",
                                       "edge": "replicate", "wrap": "circular"})
    x, sizes = data(n)
    pads = n.whole(1, "pads")
    axes = n.whole(3, "axes") if n.has(3) else list(range(len(sizes)))
    if len(pads) != 2 * len(axes):
        n.refuse("SONDE_EINVAL", f"{len(pads)} pads for {len(axes)} dimensions",
                 "two for each dimension")
    begin, end = [0] * len(sizes), [0] * len(sizes)
    for axis, before, after in zip(axes, pads, pads[len(axes):]):
        if before or after:
            axis = n.fixed_axis(axis, sizes)
            begin[axis], end[axis] = before, after
    return _pad(n, x, begin, end, mode, n.number(2, "constant_value", 0))


def _resize_sizes(n: Node, have: list[Size]) -> tuple[list[int], list[float], bool]:
    """Sizes, and scales of places; whether every scale is the sizes' own."""
    sized = n.has(3)
    known = n.known(3 if sized else 2)
    rank = len(have)
    axes = [n.axis(axis, rank) for axis in n.get("axes", range(rank))]
    if known is None or known[0].ndim != 1 or known[0].size != len(axes):
        n.unsupported("sizes" if sized else "scales",
                      "one for each dimension, known before the network runs")
    asked = dict(zip(axes, zip(known[0].tolist(), known[1].tolist())))
    want, scales, exact = [], [], True
    for i, size in enumerate(have):
        number, other = asked.get(i, (size.n, size.m) if sized else (1, 1))
        same = (number, other) == ((size.n, size.m) if sized else (1, 1))
        if not same and (i < 2 or number != other or not size.fixed):
            n.unsupported(f"a new size of dimension {i}",
                          "a new size of the dimensions after (N, C)")
        want.append(size.n if same else int(number if sized else math.floor(size.n * number)))
        scales.append(1.0 if same else want[i] / size.n if sized else number)
        exact = exact and (sized or scales[i] * size.n == want[i])
        if not same and not 1 <= want[i] <= 1 << 24:
            n.refuse("SONDE_ESHAPE", f"a size of {want[i]}", "1 or more")
    return want, scales, exact


def _nearest(n: Node, have: list[Size], want: list[int], exact: bool) -> str:
    place = n.get("coordinate_transformation_mode", "half_pixel")
    rounding = n.get("nearest_mode", "round_prefer_floor")
    # a place just between two of the input, where round_prefer_floor and nearest-exact differ
    ties = any((2 * i + 1) * h.n % (2 * w) == 0 for h, w in zip(have[2:], want[2:])
               if h.n != w for i in range(w))
    if place == "asymmetric" and rounding == "floor":
        return "nearest"
    if place in ("half_pixel", "pytorch_half_pixel") and exact and \
            (rounding == "round_prefer_ceil" or (rounding == "round_prefer_floor" and not ties)):
        return "nearest-exact"
    n.unsupported("its coordinate_transformation_mode and nearest_mode",
                  "asymmetric with floor, or half_pixel with round_prefer_ceil")


def _corners(n: Node, have: list[Size], want: list[int]) -> bool:
    """Linear and cubic: whether the corners stay."""
    kind = n.word("coordinate_transformation_mode", "half_pixel",
                  {"half_pixel": "half", "pytorch_half_pixel": "torch",
                   "align_corners": "corners"})
    if kind == "torch" and any(w == 1 != h.n for h, w in zip(have[2:], want[2:])):
        n.unsupported("pytorch_half_pixel to a size of 1", "half_pixel")
    return kind == "corners"


@op("Resize")
def resize(n: Node) -> Value:
    x, have = data(n)
    for name, wanted in (("antialias", 0), ("keep_aspect_ratio_policy", "stretch")):
        if n.get(name, wanted) != wanted:
            n.unsupported(f"{name} is {n.get(name, wanted)}", str(wanted))
    if len(have) < 3:
        n.refuse("SONDE_ESHAPE", f"an input of {len(have)} dimensions", "(N, C, ...)")
    want, scales, exact = _resize_sizes(n, have)
    mode = n.word("mode", "nearest", {"nearest": "nearest", "linear": "linear",
                                      "cubic": "bicubic"})
    corners = False
    if mode == "nearest":
        mode = _nearest(n, have, want, exact)
    else:
        if mode == "bicubic" and (n.get("cubic_coeff_a", -0.75) != -0.75 or
                                  n.get("exclude_outside", 0)):
            n.unsupported("cubic_coeff_a or exclude_outside", "-0.75 and 0")
        corners = _corners(n, have, want)
    size: dict[str, Any] = {"size": tuple(want[2:])}
    if not exact and not corners:
        if len(set(scales[2:])) > 1:
            n.unsupported("scales that differ", "one scale, or whole sizes")
        size = {"scale_factor": scales[2]}
    return n.emit("interpolate", x, **size, mode=mode, align_corners=corners)


@op("TopK")
def top(n: Node) -> None:
    x, sizes = data(n)
    axis = n.fixed_axis(n.get("axis", -1), sizes)
    count = n.whole(1, "K")
    if len(count) != 1 or not 1 <= count[0] <= sizes[axis].n:
        n.refuse("SONDE_EINVAL", f"K is {count}", f"1 to {sizes[axis].n}")
    index = n.emit("topk", x, dim=axis, k=count[0], indices=1,
                   largest=n.get("largest", 1) != 0)
    n.give(1, index)
    n.give(0, n.emit("gather", x, index, dim=axis))


@op("CumSum")
def running_sum(n: Node) -> Value:
    x, sizes = data(n)
    axis = n.fixed_axis(n.whole(1, "axis")[0], sizes)
    backward = n.get("reverse", 0) != 0
    x = n.emit("flip", x, dims=axis) if backward else x
    x = n.emit("cumsum", x, dim=axis)
    if n.get("exclusive", 0):  # a place later, 0 first
        begin, end = [0] * len(sizes), [0] * len(sizes)
        begin[axis], end[axis] = 1, -1
        x = _pad(n, x, begin, end, "constant", 0)
    return n.emit("flip", x, dims=axis) if backward else x
