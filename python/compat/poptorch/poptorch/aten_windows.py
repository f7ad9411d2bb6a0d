"""PyTorch's ops as the engine's: convolutions and pools beyond those of two dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .builder import Builder, Value, expect, op


def sizes(given: Any, count: int) -> tuple[int, ...]:
    values = list(given) if isinstance(given, (list, tuple)) else [given]
    return tuple(int(n) for n in (values * count if len(values) == 1 else values))


def convolved(b: Builder, kind: str, x: Value, weight: Value, bias: Value | None, outputs: int,
              settings: dict[str, Any]) -> Value:
    count = len(weight.shape) - 2
    expect(len(x.shape) == count + 2, "an input without a batch")
    shared = {key: sizes(value, count) for key, value in settings.items() if key != "groups"}
    return b.do(kind, x, weight, *([] if bias is None else [bias]), out_channels=outputs,
                kernel_size=tuple(weight.shape[2:]), groups=settings["groups"],
                bias=int(bias is not None), **shared)


@op("conv3d")
def conv3d(b: Builder, x: Value, weight: Value, bias: Value | None = None, stride: Any = 1,
           padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Value:
    expect(not isinstance(padding, str), f"padding={padding!r}")
    return convolved(b, "conv3d", x, weight, bias, weight.shape[0], {
        "stride": stride, "padding": padding, "dilation": dilation, "groups": groups})


for _count in (1, 2):
    def _transposed(b: Builder, x: Value, weight: Value, bias: Value | None = None,
                    stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
                    dilation: Any = 1, _kind: str = f"conv_transpose{_count}d") -> Value:
        return convolved(b, _kind, x, weight, bias, weight.shape[1] * groups, {
            "stride": stride, "padding": padding, "output_padding": output_padding,
            "dilation": dilation, "groups": groups})

    op(f"conv_transpose{_count}d")(_transposed)


@op("max_pool3d")
def max_pool3d(b: Builder, x: Value, kernel: Any, stride: Any = (), padding: Any = 0,
               dilation: Any = 1, ceil_mode: bool = False) -> Value:
    expect(len(x.shape) == 5 and not ceil_mode, "ceil_mode, or an input without a batch")
    return b.do("max_pool3d", x, kernel_size=sizes(kernel, 3), stride=sizes(stride or kernel, 3),
                padding=sizes(padding, 3), dilation=sizes(dilation, 3))


@op("avg_pool3d")
def avg_pool3d(b: Builder, x: Value, kernel: Any, stride: Any = (), padding: Any = 0,
               ceil_mode: bool = False, count_include_pad: bool = True,
               divisor_override: int | None = None) -> Value:
    expect(len(x.shape) == 5 and not ceil_mode and divisor_override is None,
           "ceil_mode, divisor_override, or an input without a batch")
    return b.do("avg_pool3d", x, kernel_size=sizes(kernel, 3), stride=sizes(stride or kernel, 3),
                padding=sizes(padding, 3), count_include_pad=int(count_include_pad))


@op("adaptive_avg_pool1d", "adaptive_avg_pool3d")
def adaptive_avg_pool(b: Builder, x: Value, size: Sequence[int]) -> Value:
    count = len(x.shape) - 2
    expect(count in (1, 3), "an input without a batch")
    return b.do(f"adaptive_avg_pool{count}d", x, output_size=sizes(size, count))


@op("adaptive_max_pool1d")
def adaptive_max_pool1d(b: Builder, x: Value, size: Sequence[int]) -> list[Value | None]:
    expect(len(x.shape) == 3, "an input without a batch")
    return [b.do("adaptive_max_pool1d", x, output_size=sizes(size, 1)), None]
