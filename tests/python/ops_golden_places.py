"""Cases of tests/golden/ops: elements by their places; make_ops_golden.py writes them."""
import torch
import torch.nn.functional as F

from ops_golden import INF, NAN, case, grad, poisoned, randn

(CONSTANT, REFLECT, REPLICATE, CIRCULAR, NEAREST, EXACT, LINEAR, LINEAR_CORNERS, CUBIC,
 CUBIC_CORNERS, FLIP, ROLL, REPEAT, REPEAT_EACH, WINDOWS) = range(15)


def resize(size, mode, **more):
    return lambda x: F.interpolate(x, size, mode=mode, **more)


def windows(x):
    """Of kernel 3, stride 2, padding 1, dilation 2 over the last dimension but one."""
    wide = F.pad(x, (0, 0, 1, 1))
    count = (wide.shape[-2] - 5) // 2 + 1
    return torch.cat([wide[..., 2 * i:2 * i + 5:2, :] for i in range(count)], -2)


def remaps():
    """remap.c: every map, over float32; copies over int64 too."""
    torch.manual_seed(31)
    rows = [
        ("constant", CONSTANT, lambda x: F.pad(x, (2, 1), value=0.5), -1,
         dict(before=2, after=1, number=0.5)),
        ("cut", CONSTANT, lambda x: F.pad(x, (-2, 3)), -1, dict(before=-2, after=3)),
        ("reflect", REFLECT, lambda x: F.pad(x, (3, 2, 0, 0), "reflect"), -1, dict(before=3, after=2)),
        ("replicate", REPLICATE, lambda x: F.pad(x, (0, 0, 1, 4), "replicate"), -2,
         dict(before=1, after=4)),
        ("circular", CIRCULAR, lambda x: F.pad(x, (2, 3, 0, 0), "circular"), -1, dict(before=2, after=3)),
        ("nearest", NEAREST, resize((5, 11), "nearest"), -1, dict(count=11)),
        ("fewer", NEAREST, resize((5, 4), "nearest"), -1, dict(count=4)),
        ("exact", EXACT, resize((5, 11), "nearest-exact"), -1, dict(count=11)),
        ("linear", LINEAR, resize(9, "linear"), 2, dict(count=9)),
        ("linear_fewer", LINEAR, resize(3, "linear"), -1, dict(count=3)),
        ("linear_factor", LINEAR,
         lambda x: F.interpolate(x, scale_factor=1.7, mode="linear"), -1,
         dict(number=1.7)),
        ("corners", LINEAR_CORNERS, resize(9, "linear", align_corners=True), 2,
         dict(count=9)),
        ("one_corner", LINEAR_CORNERS, resize(1, "linear", align_corners=True), 2,
         dict(count=1)),
        ("cubic", CUBIC, resize((5, 12), "bicubic"), -1, dict(count=12)),
        ("cubic_corners", CUBIC_CORNERS, resize((8, 7), "bicubic", align_corners=True), 2,
         dict(count=8)),
        ("flip", FLIP, lambda x: x.flip(1), 1, {}),
        ("roll", ROLL, lambda x: x.roll(-9, 3), 3, dict(before=-9)),
        ("repeat", REPEAT, lambda x: x.repeat(1, 3, 1, 1), 1, dict(count=3)),
        ("each", REPEAT_EACH, lambda x: x.repeat_interleave(3, 2), 2, dict(count=3)),
        ("windows", WINDOWS, windows, 2,
         dict(count=3, stride=2, before=1, dilation=2)),
    ]
    for name, choice, function, axis, attrs in rows:
        for poison in (False, True):
            linear, cubic = LINEAR <= choice <= LINEAR_CORNERS, CUBIC <= choice <= CUBIC_CORNERS
            if poison and cubic:  # PyTorch's is of two dimensions, and spreads NaN over both
                continue
            x = randn(6, 3, 7) if linear else randn(2, 3, 5, 7)
            if poison:
                poisoned(x, (4, NAN), (37, INF), (80, -INF))
            x.requires_grad_()
            y = function(x)
            dy = randn(*y.shape)
            if poison:
                poisoned(dy, (3, NAN))
            full = f"remap.{name}{'.nan' if poison else ''}"
            attrs = dict(attrs, axis=axis, map=choice)
            case(full, "Remap", [("x", x)], [("y", y)], exact=not (linear or cubic), **attrs)
            case(full + ".d", "RemapGrad", [("dy", dy)], [("dx", grad(y, [x], dy)[0])],
                 dims=tuple(x.shape), **attrs)
    x = torch.arange(12).reshape(3, 4)
    case("remap.whole", "Remap", [("x", x)], [("y", F.pad(x, (1, 2)))], axis=1, before=1, after=2,
         exact=True)
    case("remap.whole_roll", "Remap", [("x", x)], [("y", x.roll(2, 0))], axis=0, before=2,
         map=ROLL, exact=True)


def indices():
    """index.c"""
    torch.manual_seed(32)
    for poison in (False, True):
        tail = ".nan" if poison else ""
        for name, axis, shape in (("last", 2, (3, 4, 6)), ("middle", 1, (3, 7, 5)),
                                  ("first", 0, (2, 4, 5)), ("small", 1, (2, 6, 3))):
            x = randn(3, 4, 5)
            if poison:
                poisoned(x, (7, NAN), (20, INF))
            x.requires_grad_()
            index = torch.randint(0, x.shape[axis], shape)
            y = x.gather(axis, index)
            dy = randn(*y.shape)
            if poison:
                poisoned(dy, (2, NAN), (5, -INF))
            case(f"gather.{name}{tail}", "Gather", [("x", x), ("index", index)], [("y", y)],
                 axis=axis, exact=True)
            case(f"gather.{name}{tail}.d", "GatherGrad", [("dy", dy), ("index", index)],
                 [("dx", grad(y, [x], dy)[0])], axis=axis, dims=tuple(x.shape))
        for axis, count in ((0, 5), (1, 9), (-1, 2)):
            x = randn(3, 4, 5)
            if poison:
                poisoned(x, (7, NAN), (20, INF))
            x.requires_grad_()
            index = torch.randint(0, x.shape[axis], (count,))
            y = x.index_select(axis, index)
            dy = randn(*y.shape)
            if poison:
                poisoned(dy, (2, NAN))
            case(f"select.{axis}{tail}", "Gather", [("x", x), ("index", index)], [("y", y)],
                 axis=axis, exact=True)
            case(f"select.{axis}{tail}.d", "GatherGrad", [("dy", dy), ("index", index)],
                 [("dx", grad(y, [x], dy)[0])], axis=axis, dims=tuple(x.shape))
        x, source = randn(3, 6, 2), randn(3, 4, 2)
        if poison:
            poisoned(x, (0, NAN)), poisoned(source, (3, NAN), (9, INF))
        x.requires_grad_()
        index = torch.randint(0, 6, (3, 4, 2))
        case("scatter_add" + tail, "Scatter", [("x", x), ("index", index), ("c", source)],
             [("y", x.scatter_add(1, index, source))], axis=1, adds=1)
        index = torch.stack([torch.randperm(6)[:4] for _ in range(6)], 1).reshape(4, 3, 2)
        index = index.transpose(0, 1).contiguous()
        y = x.scatter(1, index, source)
        dy = randn(*y.shape)
        if poison:
            poisoned(dy, (2, NAN), (5, INF))
        case("scatter" + tail, "Scatter", [("x", x), ("index", index), ("c", source)],
             [("y", y)], axis=1, exact=True)
        case("scatter.d" + tail, "ScatterGrad", [("dy", dy), ("index", index)],
             [("dx", grad(y, [x], dy)[0])], axis=1, exact=True)
        index, source = torch.tensor([4, 1, 4]), randn(3, 3, 2)
        case("index_add" + tail, "Scatter", [("x", x), ("index", index), ("c", source)],
             [("y", x.index_add(1, index, source))], axis=1, adds=1)
    x, index = torch.arange(20).reshape(4, 5), torch.tensor([[4, 0], [1, 1], [2, 3], [0, 0]])
    case("gather.whole", "Gather", [("x", x), ("index", index)], [("y", x.gather(1, index))],
         axis=1, exact=True)


def orders():
    """order.c; elements that are alike have a stable order."""
    torch.manual_seed(33)
    for poison in (False, True):
        tail = ".nan" if poison else ""
        x = (randn(4, 9, 3) * 2).round()
        if poison:
            poisoned(x, (1, NAN), (4, INF), (22, -INF), (25, NAN), (28, NAN))
        for axis in (0, 1, -1):
            for descending in (False, True):
                case(f"arg_sort.{axis}{int(descending)}{tail}", "ArgSort", [("x", x)],
                     [("y", x.argsort(dim=axis, descending=descending, stable=True))], axis=axis,
                     descending=int(descending), exact=True)
            case(f"cumsum.{axis}{tail}", "CumSum", [("x", x)], [("y", x.cumsum(axis))], axis=axis)
            case(f"cumsum.back.{axis}{tail}", "CumSum", [("x", x)],
                 [("y", x.flip(axis).cumsum(axis).flip(axis))], axis=axis, descending=1)
        x = randn(3, 40)
        if poison:
            poisoned(x, (1, NAN), (50, INF), (90, -INF))
        for largest in (False, True):
            case(f"top.{int(largest)}{tail}", "ArgSort", [("x", x)],
                 [("y", x.topk(7, 1, largest)[1])], axis=1, k=7, descending=int(largest),
                 exact=True)
        x = randn(2, 3, 7, 5)
        if poison:
            poisoned(x, (8, NAN), (9, NAN), (50, INF))
        for size in ((1, 1), (3, 2), (7, 5), (9, 4)):
            case(f"arg_window.{size[0]}{tail}", "ArgWindow", [("x", x)],
                 [("y", F.adaptive_max_pool2d(x, size, True)[1].reshape(2, 3, -1))], kernel=size,
                 exact=True)
    x = torch.arange(12).reshape(3, 4)
    case("cumsum.whole", "CumSum", [("x", x)], [("y", x.cumsum(1))], axis=1, exact=True)


def transposed():
    """conv_transpose2d, and a bias by channel; permutations of whole numbers."""
    torch.manual_seed(34)
    for name, x, w, keys in (
            ("small", randn(3, 4, 5, 6), randn(4, 3, 3, 3), {}),
            ("lanes", randn(17, 5, 6, 5), randn(5, 7, 5, 5), dict(stride=(2, 2), padding=(2, 2))),
            ("odd", randn(2, 6, 4, 3), randn(6, 2, 3, 2), dict(
                stride=(3, 2), padding=(1, 0), output_padding=(2, 1), groups=2, dilation=(2, 3))),
            ("wide", randn(16, 32, 7, 7), randn(32, 16, 2, 2), dict(stride=(2, 2))),
            ("nan", poisoned(randn(2, 2, 4, 4), (3, NAN), (20, INF)), randn(2, 3, 3, 3), {})):
        y = F.conv_transpose2d(x, w, **keys)
        attrs = dict(stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1,
                     output_padding=keys.get("output_padding", (0, 0)))
        attrs |= {k: v for k, v in keys.items() if k != "output_padding"}
        case(f"conv_transpose2d.{name}", "ConvTranspose2d", [("x", x), ("w", w)], [("y", y)],
             **attrs)
    for name, x in (("images", randn(17, 3, 4, 5)), ("rows", randn(4, 6)),
                    ("nan", poisoned(randn(3, 2, 5), (4, NAN), (7, INF)))):
        b = randn(x.shape[1])
        case(f"channel_add.{name}", "ChannelAdd", [("x", x), ("b", b)],
             [("y", x + b.reshape(-1, *[1] * (x.dim() - 2)))], exact=True)
    x = torch.arange(24).reshape(2, 3, 4)
    case("transpose.whole", "Transpose", [("x", x)], [("y", x.permute(2, 0, 1))], dims=(2, 0, 1),
         exact=True)


def casts():
    """cast.c, and one_hot of several dimensions."""
    x = torch.tensor([0.0, -0.0, 1.5, -2.7, 3e9, NAN, INF, -INF])
    whole, bits = torch.tensor([0, -7, 1 << 40]), torch.tensor([True, False])
    small = torch.tensor([0.0, 1.5, -2.7, 3e9])
    for name, given, made in (("float", whole, whole.float()), ("of_bool", bits, bits.float()),
                              ("same", x, x), ("of_bits", bits, bits.float())):
        case(f"cast.{name}", "Cast", [("x", given)], [("y", made)], exact=True)
    for name, given in (("whole", small), ("whole_bits", bits), ("whole_whole", whole)):
        case(f"cast.{name}", "Cast", [("x", given)], [("y", given.long())], to=1, exact=True)
    for name, given in (("bool", x), ("bool_whole", whole), ("bool_bits", bits)):
        case(f"cast.{name}", "Cast", [("x", given)], [("y", given.bool())], to=2, exact=True)
    x = torch.tensor([[3, 0, 1], [2, 2, 0]])
    case("one_hot.rows", "OneHot", [("x", x)], [("y", F.one_hot(x, 5).float())], classes=5,
         exact=True)


def bags():
    """embedding_bag.c"""
    torch.manual_seed(35)
    ids = torch.tensor([[4, 0, 4, 2], [1, 1, 3, 0], [3, 3, 3, 3]])
    for poison in (False, True):
        tail = ".nan" if poison else ""
        for choice, mode in enumerate(("mean", "sum", "max")):
            for padding in (None, 3):
                w = randn(6, 5)
                if poison and mode != "max":  # PyTorch's maximum leaves NaN out
                    poisoned(w, (5, NAN), (22, INF))
                w.requires_grad_()
                y = F.embedding_bag(ids, w, mode=mode, padding_idx=padding)
                dy = randn(*y.shape)
                if poison:
                    poisoned(dy, (1, NAN), (6, INF))
                attrs = dict(mode=choice, padding_idx=-1 if padding is None else 3)
                name = f"bag.{mode}.{padding}{tail}"
                case(name, "EmbeddingBag", [("x", ids), ("w", w)], [("y", y)], **attrs)
                case(name + ".d", "EmbeddingBagGrad", [("dy", dy), ("x", ids), ("w", w)],
                     [("dw", grad(y, [w], dy)[0])], **attrs)


def ctc():
    """ctc.c. PyTorch's gradient has exp(logp) more, which log_softmax takes away again."""
    torch.manual_seed(36)
    for name, mean, zero in (("plain", False, False), ("mean", True, False), ("zero", False, True),
                             ("nan", False, False)):
        logp = F.log_softmax(randn(9, 4, 5), 2)
        if name == "nan":
            poisoned(logp, (3 * 20 + 7, NAN))
        logp = logp.detach().requires_grad_()
        target = torch.tensor([[1, 1, 2, 4], [3, 0, 0, 0], [0, 4, 0, 4], [2, 2, 2, 2]])
        blank, lengths = 3 if mean else 0, torch.tensor([9, 4, 7, 4])
        target = target + (target == blank) * (1 if mean else 2)
        sizes = torch.tensor([4, 1, 3, 3 if zero else 2])
        loss = F.ctc_loss(logp, target, lengths, sizes, blank, "none", zero)
        dy = randn(4)
        dx = grad(loss, [logp], dy)[0]
        lost = torch.arange(9).view(9, 1) < lengths
        lost = lost & ~(loss.isinf() | (loss == 0))
        dx = dx - torch.where(lost[..., None], logp.detach().exp() * dy[:, None], 0.0)
        scale = sizes if mean else 1
        attrs = dict(blank=blank, zero_infinity=zero, mean=mean)
        alpha = paths(logp.detach(), target, lengths, sizes, blank)
        ins = [("logp", logp), ("target", target), ("lengths", lengths), ("sizes", sizes)]
        case(f"ctc.{name}", "CtcLoss", ins, [("loss", loss / scale), ("alpha", alpha)], **attrs)
        if name == "nan":  # with exp(logp) PyTorch's has NaN in classes that no path is at
            continue
        dx = dx / (sizes[:, None] if mean else 1)
        case(f"ctc.{name}.d", "CtcLossGrad", [("dy", dy)] + ins + [("alpha", alpha)],
             [("dx", dx)], **attrs)


def paths(logp, target, lengths, sizes, blank):
    """log alpha by its definition, in float64."""
    most = 2 * target.shape[1] + 1
    alpha = torch.full((logp.shape[1], logp.shape[0], most), -INF, dtype=torch.float64)
    for n in range(len(sizes)):
        row = [blank if i % 2 == 0 else int(target[n, i // 2]) for i in range(2 * int(sizes[n]) + 1)]
        for t in range(int(lengths[n])):
            for i, label in enumerate(row):
                before = [0.0 if i < 2 else -INF] if t == 0 else [alpha[n, t - 1, i].item()]
                if t > 0 and i > 0:
                    before.append(alpha[n, t - 1, i - 1].item())
                if t > 0 and i > 1 and i % 2 == 1 and row[i - 2] != label:
                    before.append(alpha[n, t - 1, i - 2].item())
                total = torch.logsumexp(torch.tensor(before, dtype=torch.float64), 0)
                alpha[n, t, i] = total + logp[t, n, label].double()
    return alpha.float()
