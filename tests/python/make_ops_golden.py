#!/usr/bin/env python3
"""Writes tests/golden/ops: what PyTorch answers for every op kind.

Two files: ops.safetensors holds tensors, cases.txt says which op makes which of which:

    CASE KIND in NAME,NAME out NAME,-,NAME key=value ...

"none" stands for no inputs, "-" for an output that is not compared. Keys are the fields of
the kind's attrs, `live` for an update's numbers, and `exact` where no rounding can differ. Run with PyTorch 2.13 (CPU); the files are committed and change only when cases do.
"""
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from ops_golden import INF, NAN, case, grad, lines, poisoned, randn, tensors
from ops_golden_layers import attentions, batch_norms, entropies, more_layers, more_ops, own_updates
from ops_golden_places import bags, casts, ctc, indices, orders, remaps, transposed
from ops_golden_recurrent import recurrents
from ops_golden_scale import loss_scales

OUT = pathlib.Path(__file__).resolve().parent.parent / "golden" / "ops"


# --- convolution -----------------------------------------------------------------------


def conv2d(name, x, w, b=None, dy=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1),
           groups=1):
    attrs = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
    x, w = x.requires_grad_(), w.requires_grad_()
    b = b.requires_grad_() if b is not None else None
    y = F.conv2d(x, w, b, **attrs)
    dy = randn(*y.shape) if dy is None else dy(y)
    dx, dw = grad(y, [x, w], dy)
    ins = [("x", x), ("w", w)] + ([("b", b)] if b is not None else [])
    case(name, "Conv2d", ins, [("y", y)], **attrs)
    case(name + ".dx", "Conv2dGradInput", [("dy", dy), ("w", w)], [("dx", dx)],
         dims=tuple(x.shape), **attrs)
    case(name + ".dw", "Conv2dGradWeight", [("dy", dy), ("x", x)], [("dw", dw)],
         dims=tuple(w.shape), **attrs)
    if b is not None:
        case(name + ".db", "ChannelSum", [("dy", dy)],
             [("db", grad(F.conv2d(x, w, b, **attrs), [b], dy)[0])])


def convolutions():
    conv2d("conv2d.small", randn(3, 1, 8, 9), randn(5, 1, 3, 3), randn(5))
    conv2d("conv2d.lanes", randn(17, 5, 8, 7), randn(12, 5, 5, 5), randn(12))
    conv2d("conv2d.strided", randn(2, 3, 9, 8), randn(4, 3, 3, 2), stride=(2, 3))
    conv2d("conv2d.padded", randn(2, 2, 5, 6), randn(3, 2, 3, 3), randn(3), padding=(1, 2))
    conv2d("conv2d.dilated", randn(2, 2, 9, 11), randn(3, 2, 3, 2), dilation=(2, 3))
    conv2d("conv2d.groups", randn(2, 6, 5, 5), randn(4, 3, 3, 3), randn(4), groups=2)
    conv2d("conv2d.depthwise", randn(3, 4, 6, 5), randn(8, 1, 3, 3), groups=4,
           padding=(1, 1))
    conv2d("conv2d.point", randn(2, 7, 3, 5), randn(3, 7, 1, 1), randn(3))
    conv2d("conv2d.all", randn(2, 4, 11, 10), randn(6, 2, 3, 2), randn(6), stride=(2, 1),
           padding=(2, 1), dilation=(2, 3), groups=2)
    conv2d("conv2d.nonfinite", poisoned(randn(2, 2, 6, 6), (9, NAN), (50, INF), (80, -INF)),
           randn(3, 2, 3, 3), randn(3),
           dy=lambda y: poisoned(torch.randn_like(y), (3, NAN), (20, INF), (70, -INF)))


# --- pooling ---------------------------------------------------------------------------


def in_window(y_flat, x_shape, attrs):
    """PyTorch's positions in the plane, as positions in the window."""
    n, c, h, w = y_flat.shape
    rows = torch.arange(h).view(h, 1) * attrs["stride"][0] - attrs["padding"][0]
    cols = torch.arange(w).view(1, w) * attrs["stride"][1] - attrs["padding"][1]
    k = (y_flat // x_shape[3] - rows) // attrs["dilation"][0]
    l = (y_flat % x_shape[3] - cols) // attrs["dilation"][1]
    return (k * attrs["kernel"][1] + l).to(torch.uint8)


def pool(name, x, kernel, stride=None, padding=(0, 0), dilation=(1, 1), dy=None):
    stride = stride or kernel
    attrs = dict(kernel=kernel, stride=stride, padding=padding, dilation=dilation)
    x = x.requires_grad_()
    y, flat = F.max_pool2d(x, kernel, stride, padding, dilation, return_indices=True)
    index = in_window(flat, x.shape, attrs)
    dy = randn(*y.shape) if dy is None else dy(y)
    (dx,) = grad(y, [x], dy)
    case(name, "MaxPool2d", [("x", x)], [("y", y), ("index", index)], exact=1, **attrs)
    case(name + ".dx", "MaxPool2dGrad", [("dy", dy), ("index", index)], [("dx", dx)],
         dims=tuple(x.shape), **attrs)


def pools():
    pool("pool.small", randn(3, 2, 6, 8), (2, 2))
    pool("pool.lanes", randn(17, 3, 5, 7), (2, 2))
    pool("pool.overlap", randn(2, 2, 7, 8), (3, 2), (2, 1))
    pool("pool.padded", randn(2, 2, 7, 6), (3, 3), (2, 2), (1, 1))
    pool("pool.dilated", randn(2, 1, 9, 8), (2, 3), (1, 2), (1, 1), (3, 2))
    pool("pool.ties", torch.randint(0, 2, (3, 2, 6, 6)).float(), (2, 2))
    pool("pool.nonfinite",
         poisoned(randn(2, 2, 6, 6), (0, NAN), (3, NAN), (8, NAN), (9, INF), (14, -INF),
                  (40, -INF), (41, -INF), (46, -INF), (47, -INF), (60, INF), (61, INF)),
         (2, 2), dy=lambda y: poisoned(torch.randn_like(y), (4, NAN), (7, INF)))
    pool("pool.padding_only", torch.full((1, 1, 4, 4), -INF), (3, 3), (2, 2), (1, 1))


# --- linear ----------------------------------------------------------------------------


def linear(name, x, w, b=None, dy=None):
    x, w = x.requires_grad_(), w.requires_grad_()
    y = F.linear(x, w, b)
    dy = randn(*y.shape) if dy is None else dy
    dx, dw = grad(y, [x, w], dy)
    ins = [("x", x), ("w", w)] + ([("b", b)] if b is not None else [])
    case(name, "Linear", ins, [("y", y)])
    case(name + ".dx", "LinearGradInput", [("dy", dy), ("w", w)], [("dx", dx)])
    case(name + ".dw", "LinearGradWeight", [("dy", dy), ("x", x)], [("dw", dw)])
    case(name + ".db", "ChannelSum", [("dy", dy)], [("db", dy.sum(0))])


def linears():
    linear("linear.small", randn(3, 7), randn(5, 7), randn(5))
    linear("linear.lanes", randn(33, 70), randn(11, 70), randn(11))
    linear("linear.wide", randn(16, 65), randn(34, 65))
    linear("linear.one", randn(1, 1), randn(1, 1), randn(1))
    linear("linear.nonfinite", poisoned(randn(5, 9), (4, NAN), (20, INF), (30, -INF)),
           poisoned(randn(4, 9), (13, INF)), randn(4),
           poisoned(randn(5, 4), (6, NAN), (10, INF)))


# --- elementwise, shapes ---------------------------------------------------------------


def relus():
    specials = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1e-45, -1e-45, 3.0, -3.0])
    for name, x in [("relu.small", randn(3, 5, 7)), ("relu.lanes", randn(17, 3, 2)),
                    ("relu.nonfinite", specials)]:
        x = x.requires_grad_()
        y = torch.relu(x)
        dy = randn(*y.shape)
        case(name, "Relu", [("x", x)], [("y", y)], exact=1)
        case(name + ".dx", "ReluGrad", [("dy", dy), ("y", y)], [("dx", grad(y, [x], dy)[0])],
             exact=1)
    y = torch.relu(specials)
    dy = torch.tensor([1.0, NAN, NAN, INF, NAN, -INF, INF, INF, 2.0])
    dx = torch.ops.aten.threshold_backward(dy, y, 0)
    case("relu.nonfinite_dy", "ReluGrad", [("dy", dy), ("y", y)], [("dx", dx)], exact=1)


def saturating():
    specials = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1e-45, -100.0, 20.0, -3.0, 1e30])
    for kind, f in (("Sigmoid", torch.sigmoid), ("Tanh", torch.tanh)):
        for shape, x in (("small", 3.0 * randn(3, 5, 7)), ("lanes", randn(17, 3, 2)),
                         ("nonfinite", specials.clone())):
            name = f"{kind.lower()}.{shape}"
            x = x.requires_grad_()
            y = f(x)
            dy = randn(*y.shape)
            case(name, kind, [("x", x)], [("y", y)])
            case(name + ".dx", kind + "Grad", [("dy", dy), ("y", y)],
                 [("dx", grad(y, [x], dy)[0])])
        y = f(specials)
        dy = torch.tensor([1.0, NAN, INF, INF, NAN, -INF, INF, INF, 2.0, 0.0])
        back = getattr(torch.ops.aten, kind.lower() + "_backward")
        case(f"{kind.lower()}.nonfinite_dy", kind + "Grad", [("dy", dy), ("y", y)],
             [("dx", back(dy, y))])


def binaries():
    special_a = torch.tensor([NAN, INF, INF, -INF, 0.0, 0.0, 1.0, 3e38])
    special_b = torch.tensor([1.0, INF, -INF, 2.0, INF, NAN, NAN, 3e38])
    pairs = [("same", randn(3, 5), randn(3, 5)), ("row", randn(17, 5), randn(5)),
             ("both", randn(4, 1, 3), randn(5, 1)), ("scalar", randn(()), randn(2, 3)),
             ("nonfinite", special_a, special_b)]
    for name, a, b in pairs:
        case(f"add.{name}", "Add", [("a", a), ("b", b)], [("y", a + b)], exact=1)
        case(f"mul.{name}", "Mul", [("a", a), ("b", b)], [("y", a * b)], exact=1)
    case("scale.small", "Scale", [("x", pairs[0][1])], [("y", pairs[0][1] * -0.3)],
         value=-0.3, exact=1)
    case("scale.nonfinite", "Scale", [("x", special_a)], [("y", special_a * 0.0)], value=0.0,
         exact=1)
    case("accumulate.sum", "Accumulate", [("acc", pairs[0][1]), ("g", pairs[0][2])],
         [("y", pairs[0][1] + pairs[0][2])], value=1.0, exact=1)
    case("accumulate.mean", "Accumulate", [("acc", pairs[0][1]), ("g", pairs[0][2])],
         [("y", pairs[0][1].add(pairs[0][2], alpha=0.25))], value=0.25, exact=1)
    case("accumulate.nonfinite", "Accumulate", [("acc", special_a), ("g", special_b)],
         [("y", special_a + special_b)], value=1.0, exact=1)


def shapes():
    x = poisoned(randn(3, 4, 5), (7, NAN), (9, INF))
    half = randn(3, 4).half()
    case("identity.small", "Identity", [("x", x)], [("y", x)], exact=1)
    case("reshape.open", "Reshape", [("x", x)], [("y", x.reshape(3, 2, 10))], dims=(0, 2, -1),
         exact=1)
    case("reshape.flatten", "Reshape", [("x", x)], [("y", x.reshape(3, 20))], dims=(0, -1),
         exact=1)
    one = randn(1, 1)
    case("reshape.scalar", "Reshape", [("x", one)], [("y", one.reshape(()))], exact=1)
    case("transpose.cycle", "Transpose", [("x", x)], [("y", x.permute(2, 0, 1))],
         dims=(2, 0, 1), exact=1)
    case("transpose.negative", "Transpose", [("x", x)], [("y", x.permute(0, 2, 1))],
         dims=(0, -1, 1), exact=1)
    case("transpose.half", "Transpose", [("x", half)], [("y", half.t())], dims=(1, 0),
         exact=1)
    row = poisoned(randn(4, 1), (1, NAN), (2, INF))
    case("broadcast.row", "Broadcast", [("x", row)], [("y", row.expand(2, 3, 4, 5))],
         dims=(2, 3, 4, 5), exact=1)
    case("broadcast.scalar", "Broadcast", [("x", torch.tensor(2.5))],
         [("y", torch.tensor(2.5).expand(3, 2))], dims=(3, 2), exact=1)
    case("fill.small", "Fill", [], [("y", torch.full((3, 2), -1.5))], dims=(3, 2), value=-1.5,
         exact=1)
    case("fill.scalar", "Fill", [], [("y", torch.tensor(1.0))], dims=(), value=1.0, exact=1)


def reductions():
    x = randn(3, 4, 5, 2)
    bad = poisoned(randn(4, 6), (1, NAN), (8, INF), (13, INF), (14, -INF))
    for name, dims in [("first", (0,)), ("middle", (1, 2)), ("ends", (0, 3)),
                       ("last", (3,)), ("all", (0, 1, 2, 3))]:
        axes = sum(1 << d for d in dims)
        case(f"sum.{name}", "Reduce", [("x", x)], [("y", x.sum(dims))], axes=axes)
        case(f"mean.{name}", "Reduce", [("x", x)], [("y", x.mean(dims, keepdim=True))],
             axes=axes, mean=1, keep_dims=1)
    case("sum.no_axes", "Reduce", [("x", x)], [("y", x.sum())])
    case("sum.nonfinite", "Reduce", [("x", bad)], [("y", bad.sum(1))], axes=2)
    case("mean.nonfinite", "Reduce", [("x", bad)], [("y", bad.mean(1))], axes=2, mean=1)
    case("channel_sum.nonfinite", "ChannelSum", [("dy", bad)], [("y", bad.sum(0))])


# --- norm, softmax, loss ---------------------------------------------------------------


def group_norm(name, x, groups, gamma, beta, eps=1e-5, dy=None, statistics=True):
    x = x.requires_grad_()
    gamma = gamma.requires_grad_() if gamma is not None else None
    beta = beta.requires_grad_() if beta is not None else None
    n, c, inner = x.shape[0], x.shape[1], x[0, 0].numel()
    y, mean, rstd = torch.native_group_norm(x, gamma, beta, n, c, inner, groups, eps)
    dy = randn(*y.shape) if dy is None else dy
    attrs = dict(groups=groups, eps=eps)
    ins = [("x", x), ("gamma", gamma), ("beta", beta)]
    while ins[-1][1] is None:
        ins.pop()
    case(name, "GroupNorm", ins,
         [("y", y), ("mean", mean if statistics else None),
          ("rstd", rstd if statistics else None)], **attrs)
    dx, dgamma, dbeta = torch.ops.aten.native_group_norm_backward(
        dy, x, mean, rstd, gamma, n, c, inner, groups,
        [True, gamma is not None, gamma is not None])
    ins = [("dy", dy), ("x", x), ("mean", mean), ("rstd", rstd)]
    case(name + ".d", "GroupNormGrad", ins + ([("gamma", gamma)] if gamma is not None else []),
         [("dx", dx), ("dgamma", dgamma), ("dbeta", dbeta)], **attrs)


def norms():
    group_norm("group_norm.small", randn(3, 6, 2, 3), 3, randn(6), randn(6))
    group_norm("group_norm.lanes", randn(17, 12, 3, 2) * 3 + 1, 3, randn(12), randn(12))
    group_norm("group_norm.plain", randn(2, 4, 5), 1, None, None, eps=1e-2)
    group_norm("group_norm.gamma", randn(2, 4, 5), 4, randn(4), None)
    group_norm("group_norm.matrix", randn(5, 8), 2, randn(8), randn(8))
    group_norm("group_norm.constant", torch.zeros(2, 4, 3), 2, randn(4), randn(4))
    # Not compared: the mean of a group with an Inf (Inf or NaN), and the gradient of a group
    # with an Inf in dy (its signs meet in the sums in an order that is PyTorch's own).
    group_norm("group_norm.nonfinite", poisoned(randn(3, 4, 3), (2, NAN), (14, INF), (20, -INF)),
               2, randn(4), randn(4), dy=poisoned(randn(3, 4, 3), (8, NAN)),
               statistics=False)


def softmaxes():
    bad = torch.tensor([[NAN, 0.0, 1.0, 2.0], [INF, 0.0, 1.0, 2.0], [-INF, 0.0, 1.0, 2.0],
                        [-INF, -INF, -INF, -INF], [1e30, -1e30, 3e38, 88.0]])
    inputs = [("last", randn(3, 7), -1), ("batch", randn(9, 4), 0),
              ("middle", randn(2, 5, 3), 1), ("lanes", randn(17, 10), 1),
              ("large", randn(4, 5) * 200, 1), ("nonfinite", bad, 1),
              ("nonfinite_batch", bad.t().contiguous(), 0)]
    for name, x, axis in inputs:
        x = x.requires_grad_()
        dy = randn(*x.shape)
        for kind, f in [("Softmax", torch.softmax), ("LogSoftmax", torch.log_softmax)]:
            y = f(x, axis)
            short = kind.lower() + "." + name
            case(short, kind, [("x", x)], [("y", y)], axis=axis)
            case(short + ".dx", kind + "Grad", [("dy", dy), ("y", y)],
                 [("dx", grad(y, [x], dy)[0])], axis=axis)
    x = randn(3, 4).requires_grad_()
    dy = poisoned(randn(3, 4), (1, NAN), (6, INF))
    for kind, f in [("Softmax", torch.softmax), ("LogSoftmax", torch.log_softmax)]:
        y = f(x, 1)
        case(kind.lower() + ".nonfinite_dy", kind + "Grad", [("dy", dy), ("y", y)],
             [("dx", grad(y, [x], dy)[0])], axis=1)


def losses():
    for name, logp in [("small", torch.log_softmax(randn(5, 4), 1)),
                       ("lanes", torch.log_softmax(randn(33, 10), 1)),
                       ("nan", poisoned(randn(4, 3), (5, NAN))),
                       ("inf", poisoned(randn(4, 3), (5, -INF)))]:
        target = torch.randint(0, logp.shape[1], (logp.shape[0],))
        if name in ("nan", "inf"):
            target[1] = 2
        logp = logp.requires_grad_()
        for mean in (False, True):
            loss = F.nll_loss(logp, target, reduction="mean" if mean else "sum")
            dloss = torch.tensor(INF if name == "inf" else -1.7)
            short = f"nll.{name}." + ("mean" if mean else "sum")
            case(short, "Nll", [("logp", logp), ("target", target)], [("loss", loss)], mean=mean)
            case(short + ".d", "NllGrad", [("dloss", dloss), ("target", target)],
                 [("dlogp", grad(loss, [logp], dloss)[0])], mean=mean, dims=tuple(logp.shape))


# --- updates ---------------------------------------------------------------------------


def sgd(name, steps=3, scale=1.0, poison=False, **options):
    w = torch.nn.Parameter(poisoned(randn(4, 5), (3, INF)) if poison else randn(4, 5))
    optimizer = torch.optim.SGD([w], foreach=False, **options)
    momentum = options.get("momentum", 0.0)
    for step in range(steps):
        g = poisoned(randn(4, 5), (1, NAN), (7, INF), (8, -INF)) if poison else randn(4, 5)
        before = w.detach().clone()
        v = optimizer.state[w].get("momentum_buffer") if step else None
        v = torch.full((4, 5), 77.0) if v is None else v.clone()
        w.grad = g * scale
        optimizer.step()
        after = optimizer.state[w].get("momentum_buffer")
        ins = [("w", before), ("g", g)] + ([("v", v)] if momentum else [])
        outs = [("w2", w.detach().clone()),
                ("v2", after.clone() if after is not None else None)]
        live = (options["lr"], momentum, options.get("dampening", 0.0),
                options.get("weight_decay", 0.0), int(options.get("nesterov", False)), scale,
                int(step == 0))
        case(f"{name}.{step}", "Sgd", ins, outs, live=tuple(map(float, live)))


def adam(name, cls, steps=3, scale=1.0, poison=False, **options):
    w = torch.nn.Parameter(poisoned(randn(3, 5), (3, INF)) if poison else randn(3, 5))
    optimizer = cls([w], foreach=False, **options)
    state = {"m": torch.zeros(3, 5), "v": torch.zeros(3, 5), "step": torch.tensor(0.0)}
    beta1, beta2 = options.get("betas", (0.9, 0.999))
    for step in range(steps):
        g = poisoned(randn(3, 5), (1, NAN), (7, INF), (8, -INF)) if poison else randn(3, 5)
        before = w.detach().clone()
        w.grad = g * scale
        optimizer.step()
        after = optimizer.state[w]
        made = {"m": after["exp_avg"].clone(), "v": after["exp_avg_sq"].clone(),
                "step": after["step"].clone()}
        live = (options["lr"], beta1, beta2, options.get("eps", 1e-8),
                options.get("weight_decay", 0.0), int(cls is torch.optim.AdamW), scale)
        case(f"{name}.{step}", "Adam",
             [("w", before), ("g", g)] + list(state.items()),
             [("w2", w.detach().clone())] + [(k + "2", t) for k, t in made.items()],
             live=tuple(map(float, live)))
        state = made


def updates():
    sgd("sgd.plain", lr=0.1)
    sgd("sgd.decay", lr=0.1, weight_decay=0.03, scale=0.25)
    sgd("sgd.momentum", lr=0.05, momentum=0.9)
    sgd("sgd.dampening", lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.01)
    sgd("sgd.nesterov", lr=0.05, momentum=0.8, weight_decay=0.01, nesterov=True)
    sgd("sgd.nonfinite", lr=0.05, momentum=0.9, steps=2, poison=True)
    sgd("sgd.nonfinite_plain", lr=0.05, steps=1, poison=True)
    adam("adam.plain", torch.optim.Adam, lr=0.01)
    adam("adam.decay", torch.optim.Adam, lr=0.01, weight_decay=0.1, betas=(0.8, 0.95),
         scale=0.5)
    adam("adam.w", torch.optim.AdamW, lr=0.01, weight_decay=0.1, eps=1e-3)
    adam("adam.nonfinite", torch.optim.Adam, lr=0.01, steps=2, poison=True)


# --- fused -----------------------------------------------------------------------------


def fused_convolution(name, x, w, b, **attrs):
    full = dict(stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1)
    full.update(attrs)
    x, w = x.requires_grad_(), w.requires_grad_()
    conv = F.conv2d(x, w, b, **full)
    relu = torch.relu(conv)
    y, flat = F.max_pool2d(relu, 2, return_indices=True)
    index = in_window(flat, relu.shape, dict(kernel=(2, 2), stride=(2, 2), padding=(0, 0),
                                             dilation=(1, 1)))
    dy = randn(*y.shape)
    drelu, dconv, dw = grad(y, [relu, conv, w], dy)
    ins = [("x", x), ("w", w)] + ([("b", b)] if b is not None else [])
    case(name, "Conv2dReluPool", ins,
         [("conv", conv), ("relu", relu), ("y", y), ("index", index)], **full)
    case(name + ".d", "PoolReluConvGrad",
         [("dy", dy), ("index", index), ("y", y), ("x", x)],
         [("drelu", drelu), ("dconv", dconv), ("dw", dw), ("db", dconv.sum((0, 2, 3)))],
         dims=tuple(w.shape), **full)
    case(name + ".relu", "Conv2dRelu", ins, [("conv", conv), ("relu", relu)], **full)


def fused():
    fused_convolution("fused.small", randn(3, 1, 8, 9), randn(5, 1, 3, 3), randn(5))
    fused_convolution("fused.lanes", randn(17, 1, 7, 6), randn(3, 1, 3, 3), randn(3))
    fused_convolution("fused.general", randn(2, 4, 9, 8), randn(6, 2, 3, 2), None, groups=2,
                      stride=(1, 1), padding=(1, 1), dilation=(2, 1))
    fused_convolution("fused.nonfinite", poisoned(randn(2, 1, 9, 8), (20, NAN), (110, INF)),
                      randn(3, 1, 3, 3), randn(3))
    for name, x, w, b in [("fused.linear", poisoned(randn(5, 7), (8, NAN), (15, INF)),
                           randn(4, 7), randn(4)),
                          ("fused.linear_lanes", randn(17, 33), randn(10, 33), None)]:
        y = F.linear(x, w, b)
        case(name, "LinearRelu", [("x", x), ("w", w)] + ([("b", b)] if b is not None else []),
             [("linear", y), ("y", torch.relu(y))])
    for name, momentum in [("fused.sgd", 0.0), ("fused.sgd_momentum", 0.9),
                           ("fused.sgd_nonfinite", 0.9)]:
        x, dy = randn(6, 37), randn(6, 5)
        if name.endswith("nonfinite"):
            poisoned(x, (40, NAN), (80, INF))
        w = torch.nn.Parameter(randn(5, 37))
        before, dw = w.detach().clone(), dy.t() @ x
        optimizer = torch.optim.SGD([w], lr=0.05, momentum=momentum, weight_decay=0.01,
                                    foreach=False)
        v = torch.full((5, 37), 77.0)
        for first in (1, 0):
            w.grad = dw.clone()
            optimizer.step()
            after = optimizer.state[w].get("momentum_buffer") if momentum else None
            after = after.clone() if after is not None else None
            now = w.detach().clone()
            case(f"{name}.{'first' if first else 'next'}", "LinearGradWeightSgd",
                 [("w", before), ("dy", dy), ("x", x)] + ([("v", v)] if momentum else []),
                 [("w2", now), ("dw", dw), ("v2", after)],
                 live=(0.05, momentum, 0.0, 0.01, 0.0, 1.0, float(first)))
            before, v = now, after


# --- functions of one value ------------------------------------------------------------


def pointwise():
    """Every row of src/nn/ops/pointwise.c: ordinary values, kinks, NaN and infinities."""
    torch.manual_seed(21)
    odd = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0,
                        20.0, -20.0, 25.0, 1e-4, -1e-4, 88.0, -88.0])
    rows = [
        ("Gelu", F.gelu, {}), ("Gelu", lambda x: F.gelu(x, approximate="tanh"), {"variant": 1}),
        ("Silu", F.silu, {}), ("Mish", F.mish, {}),
        ("LeakyRelu", lambda x: F.leaky_relu(x, 0.2), {"number": (0.2, 0.0)}),
        ("Elu", lambda x: F.elu(x, 1.5), {"number": (1.5, 0.0)}),
        ("Celu", lambda x: F.celu(x, 1.5), {"number": (1.5, 0.0)}),
        ("Selu", F.selu, {}), ("Relu6", F.relu6, {}),
        ("Hardtanh", lambda x: F.hardtanh(x, -1.0, 2.0), {"number": (-1.0, 2.0)}),
        ("Hardsigmoid", F.hardsigmoid, {}), ("Hardswish", F.hardswish, {}),
        ("Hardshrink", F.hardshrink, {"number": (0.5, 0.0)}),
        ("Softshrink", F.softshrink, {"number": (0.5, 0.0)}),
        ("Tanhshrink", F.tanhshrink, {}),
        ("Softplus", lambda x: F.softplus(x, 2.0, 15.0), {"number": (2.0, 15.0)}),
        ("Softsign", F.softsign, {}), ("LogSigmoid", F.logsigmoid, {}),
        ("Threshold", lambda x: F.threshold(x, 0.1, 7.0), {"number": (0.1, 7.0)}),
        ("Neg", torch.neg, {}), ("Abs", torch.abs, {}), ("Exp", torch.exp, {}),
        ("Expm1", torch.expm1, {}), ("Log", torch.log, {}), ("Log1p", torch.log1p, {}),
        ("Sqrt", torch.sqrt, {}), ("Rsqrt", torch.rsqrt, {}), ("Square", torch.square, {}),
        ("Reciprocal", torch.reciprocal, {}), ("Sin", torch.sin, {}), ("Cos", torch.cos, {}),
        ("Erf", torch.erf, {}), ("Pow", lambda x: torch.pow(x, 3.0), {"number": (3.0, 0.0)}),
        ("Pow", lambda x: torch.pow(x, -1.5), {"number": (-1.5, 0.0)}),
        ("Clamp", lambda x: torch.clamp(x, -0.7, 0.9), {"number": (-0.7, 0.9)}),
        ("Erfc", torch.erfc, {}), ("Tan", torch.tan, {}), ("Asin", torch.asin, {}),
        ("Acos", torch.acos, {}), ("Atan", torch.atan, {}), ("Sinh", torch.sinh, {}),
        ("Cosh", torch.cosh, {}), ("Asinh", torch.asinh, {}), ("Atanh", torch.atanh, {}),
        ("Log2", torch.log2, {}), ("Log10", torch.log10, {}), ("Exp2", torch.exp2, {}),
        ("Sign", lambda x: torch.where(x.isnan(), x, x.sign()), {}), ("Floor", torch.floor, {}),
        ("Ceil", torch.ceil, {}), ("Round", torch.round, {}), ("Trunc", torch.trunc, {}),
    ]
    for i, (kind, function, attrs) in enumerate(rows):
        finite = odd[torch.isfinite(odd) | torch.isnan(odd)]  # PyTorch says NaN at infinities
        for what, x in (("plain", randn(3, 7)),
                        ("odd", (finite if kind in ("Gelu", "Softsign") else odd).clone())):
            x.requires_grad_()
            y = function(x)
            dy = randn(*y.shape)
            case(f"pointwise{i}.{what}", kind, [("x", x)], [("y", y)], **attrs)
            if kind == "Sign":
                x = x.detach()[~x.isnan()].requires_grad_()
                y, dy = function(x), dy.reshape(-1)[:x.numel()]
            case(f"pointwise{i}.{what}.d", kind + "Grad", [("dy", dy), ("x", x)],
                 [("dx", grad(y, [x], dy)[0])], **attrs)


# --- rows ------------------------------------------------------------------------------


def row_norms():
    torch.manual_seed(22)
    for i, (x, dims, affine) in enumerate([
            (randn(5, 7), (7,), True), (randn(2, 3, 9), (9,), True), (randn(3, 4, 5), (4, 5), True),
            (randn(4, 6), (6,), False), (poisoned(randn(6, 8), (3, NAN)), (8,), True)]):
        w, b = (randn(*dims).requires_grad_(), randn(*dims).requires_grad_()) if affine else (None, None)
        x.requires_grad_()
        lead = x.shape[:x.dim() - len(dims)]
        y, mean, rstd = torch.native_layer_norm(x, dims, w, b, 1e-5)
        dy = randn(*y.shape)
        attrs = dict(dims=dims, eps=1e-5)
        grads = grad(y, [x, w, b] if affine else [x], dy)
        weights = [("w", w), ("b", b)] if affine else []
        mean, rstd = mean.reshape(lead), rstd.reshape(lead)
        case(f"layer_norm{i}", "LayerNorm", [("x", x)] + weights,
             [("y", y), ("mean", mean), ("rstd", rstd)], **attrs)
        case(f"layer_norm{i}.d", "LayerNormGrad",
             [("dy", dy), ("x", x), ("mean", mean), ("rstd", rstd)] + weights[:1],
             [("dx", grads[0]), ("dw", grads[1] if affine else None),
              ("db", grads[2] if affine else None)], **attrs)
        y = F.rms_norm(x, dims, w, 1e-5)
        rstd = torch.rsqrt(x.square().mean(tuple(range(len(lead), x.dim()))) + 1e-5)
        grads = grad(y, [x, w] if affine else [x], dy)
        case(f"rms_norm{i}", "RmsNorm", [("x", x)] + weights[:1], [("y", y), ("rstd", rstd)], **attrs)
        case(f"rms_norm{i}.d", "RmsNormGrad",
             [("dy", dy), ("x", x), ("rstd", rstd)] + weights[:1],
             [("dx", grads[0]), ("dw", grads[1] if affine else None)], **attrs)


def dropout():
    """In inference; tests/nn/test_dropout.c has what is drawn."""
    torch.manual_seed(23)
    x = poisoned(randn(3, 7), (2, NAN), (5, INF))
    case("dropout", "Dropout", [("x", x)], [("y", F.dropout(x, 0.4, False))], p=0.4)
    case("dropout.d", "DropoutGrad", [("dy", x)], [("dx", x)], p=0.4)


# --- functions of two values -----------------------------------------------------------


def pairs():
    """Every row of src/nn/ops/pair.c."""
    torch.manual_seed(24)
    none = {"reduction": "none"}
    sigmoid, target = torch.sigmoid, lambda b: (b > 0).float()
    rows = [
        ("Sub", torch.sub, {}, None, None), ("Div", torch.div, {}, None, None),
        ("Maximum", torch.maximum, {}, None, None), ("Minimum", torch.minimum, {}, None, None),
        ("MseLoss", lambda a, b: F.mse_loss(a, b, **none), {}, None, None),
        ("L1Loss", lambda a, b: F.l1_loss(a, b, **none), {}, None, None),
        ("SmoothL1Loss", lambda a, b: F.smooth_l1_loss(a, b, beta=0.7, **none),
         {"number": (0.7, 0.0)}, None, None),
        ("HuberLoss", lambda a, b: F.huber_loss(a, b, delta=0.7, **none),
         {"number": (0.7, 0.0)}, None, None),
        ("BceLoss", lambda a, b: F.binary_cross_entropy(a, b, **none), {}, sigmoid, target),
        ("BceWithLogitsLoss", lambda a, b: F.binary_cross_entropy_with_logits(a, b, **none), {},
         None, sigmoid),
        ("SoftMarginLoss", lambda a, b: torch.log1p(torch.exp(-b * a)), {}, None, torch.sign),
        ("KlDiv", lambda a, b: F.kl_div(a, b, **none), {}, None, sigmoid),
        ("KlDiv", lambda a, b: F.kl_div(a, b, log_target=True, **none), {"log": True}, None,
         None),
        ("PoissonNllLoss", lambda a, b: F.poisson_nll_loss(a, b, **none),
         {"log": True, "number": (1e-8, 0.0)}, None, torch.abs),
        ("PoissonNllLoss", lambda a, b: F.poisson_nll_loss(
            a, b, log_input=False, full=True, eps=1e-3, **none),
         {"full": True, "number": (1e-3, 0.0)}, torch.abs, lambda b: b.abs() * 2),
        ("HingeEmbeddingLoss", lambda a, b: F.hinge_embedding_loss(a, b, margin=0.7, **none),
         {"number": (0.7, 0.0)}, None, torch.sign),
        ("FloatPower", torch.pow, {}, torch.abs, None), ("Atan2", torch.atan2, {}, None, None),
    ]
    for i, (kind, function, attrs, of_a, of_b) in enumerate(rows):
        broad = ("plain", "nan", "broadcast")
        for what in broad if i < 4 or kind in ("FloatPower", "Atan2") else broad[:2]:
            a = randn(3, 7) if of_a is None else of_a(randn(3, 7))
            b = randn(*((7,) if what == "broadcast" else (3, 7)))
            b = b if of_b is None else of_b(b)
            if what == "nan":
                poisoned(a, (4, NAN))
                if kind == "BceLoss":  # PyTorch's own refuses NaN
                    def function(a, b):
                        return (b - 1) * torch.log(1 - a).clamp(-100) - b * a.log().clamp(-100)
            a.requires_grad_(), b.requires_grad_()
            y = function(a, b)
            dy = randn(*y.shape)
            name = f"pair{i}.{what}"
            case(name, kind, [("a", a), ("b", b)], [("y", y)], **attrs)
            if what == "broadcast":
                continue  # the slopes have y's shape; finite differences have the sums
            for which, leaf in (("A", a), ("B", b)):
                slope = None if kind in ("BceLoss", "SoftMarginLoss", "HingeEmbeddingLoss",
                                         "PoissonNllLoss") and which == "B" else \
                    grad(function(a, b), [leaf], dy)[0]
                case(f"{name}.d{which}", f"{kind}Grad{which}", [("dy", dy), ("a", a), ("b", b)],
                     [("d", slope)], **attrs)


def main():
    torch.manual_seed(20)
    torch.set_num_threads(1)
    for group in (convolutions, pools, linears, relus, binaries, shapes, reductions, norms,
                  softmaxes, losses, updates, fused, saturating, pointwise,
                  row_norms, dropout, pairs, batch_norms, entropies,
                  own_updates, more_layers, more_ops, attentions, recurrents, remaps, indices,
                  orders, transposed, casts, bags, ctc, loss_scales):
        group()
    OUT.mkdir(parents=True, exist_ok=True)
    if (OUT / "ops.safetensors").exists():  # last bits differ between processors: old cases stay
        tensors.update((name, old) for name, old in load_file(OUT / "ops.safetensors").items()
                       if name in tensors and old.shape == tensors[name].shape)
    save_file(tensors, OUT / "ops.safetensors", {"torch": torch.__version__.split("+")[0]})
    (OUT / "cases.txt").write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} cases, {len(tensors)} tensors")


if __name__ == "__main__":
    main()
