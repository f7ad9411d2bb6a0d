"""Cases of tests/golden/ops: layers and losses by name, optimizers; make_ops_golden.py writes them."""
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ops_golden import INF, NAN, case, grad, poisoned, randn


def batch_norm(name, x, training, affine=True, track=True, momentum=0.1, eps=1e-5, batches=4):
    """Forward, gradient, and the running statistics after it."""
    c = x.shape[1]
    x.requires_grad_()
    w, b = (randn(c).requires_grad_(), randn(c).requires_grad_()) if affine else (None, None)
    mean, var = randn(c), torch.rand(c) + 0.5
    count = torch.tensor(batches)
    layer = torch.nn.BatchNorm1d(c, eps=eps, momentum=momentum, affine=False)
    layer.running_mean.copy_(mean), layer.running_var.copy_(var)
    layer.num_batches_tracked.copy_(count)
    own = training or not track
    axes = [0] + list(range(2, x.dim()))
    now = x.detach().mean(axes) if own else mean
    spread = x.detach().var(axes, unbiased=False) if own else var
    attrs = dict(eps=eps, momentum=NAN if momentum is None else momentum, affine=affine,
                 track=track, training=training)
    y = F.batch_norm(x, mean.clone() if not own else None, var.clone() if not own else None, w, b,
                     training=own, eps=eps)
    weights = [("w", w), ("b", b)] if affine else []
    running = [("mean", mean), ("var", var), ("count", count)] if track else []
    case(name, "BatchNorm", [("x", x)] + weights + running,
         [("y", y), ("now", now), ("spread", spread)], **attrs)
    case(name + ".relu", "BatchNormRelu", [("x", x)] + weights + running,
         [("y", y), ("now", now), ("spread", spread), ("relu", torch.relu(y))], **attrs)
    if not own:
        return
    dy = randn(*y.shape)
    grads = grad(y, [x, w, b] if affine else [x], dy)
    case(name + ".d", "BatchNormGrad",
         [("dy", dy), ("x", x), ("now", now), ("spread", spread)] + weights[:1],
         [("dx", grads[0])] + [("dw", grads[1]), ("db", grads[2])] if affine else
         [("dx", grads[0]), ("dw", None), ("db", None)], eps=eps)
    if track:
        layer(x.detach().transpose(0, 1).reshape(c, -1).transpose(0, 1))
        case(name + ".track", "BatchNormTrack", running + [("now", now), ("spread", spread)],
             [("mean2", layer.running_mean), ("var2", layer.running_var),
              ("count2", layer.num_batches_tracked)], dims=tuple(x.shape), **attrs)


def batch_norms():
    torch.manual_seed(25)
    batch_norm("batch_norm.images", randn(17, 5, 4, 3) * 3 + 1, True)
    batch_norm("batch_norm.rows", randn(33, 6), True, momentum=None)
    batch_norm("batch_norm.signals", randn(2, 3, 7) + 50, True, momentum=0.3, eps=1e-2)
    batch_norm("batch_norm.plain", randn(4, 3, 2), True, affine=False)
    batch_norm("batch_norm.untracked", randn(4, 3, 2), False, track=False)
    batch_norm("batch_norm.bare", randn(4, 3, 2), False, affine=False, track=False)
    batch_norm("batch_norm.eval", randn(17, 5, 4, 3), False)
    batch_norm("batch_norm.eval_plain", randn(5, 3), False, affine=False)
    batch_norm("batch_norm.nonfinite", poisoned(randn(18, 4), (2, NAN), (5, INF)), True)
    x = randn(3, 4, 6)
    w, b = randn(4), randn(4)
    for name, x in (("instance_norm", x), ("instance_norm.nan", poisoned(x.clone(), (3, NAN)))):
        case(name, "InstanceNorm", [("x", x), ("w", w), ("b", b)],
             [("y", F.instance_norm(x, weight=w, bias=b)), ("m", None), ("r", None)], eps=1e-5)


def own_updates():
    """Three steps of the optimizers whose hundred steps test_optimizer_golden.c has."""
    torch.manual_seed(27)
    shape = (3, 5)
    for poison in (False, True):
        for name, choice, options in (
                ("plain", 0, {}), ("centered", 1, {"centered": True}),
                ("all", 3, {"centered": True, "momentum": 0.8, "weight_decay": 0.1})):
            w = torch.nn.Parameter(randn(*shape))
            optimizer = torch.optim.RMSprop([w], lr=0.02, alpha=0.9, foreach=False, **options)
            state = {k: torch.zeros(*shape) for k in ("v", "m", "b")}
            for step in range(2):
                g = poisoned(randn(*shape), (0, 0.0))
                if poison:
                    poisoned(g, (1, NAN), (7, INF))
                before = w.detach().clone()
                w.grad = g * 0.5
                optimizer.step()
                after = optimizer.state[w]
                made = {"v": after["square_avg"], "m": after.get("grad_avg"),
                        "b": after.get("momentum_buffer")}
                case(f"rmsprop.{name}{'.nan' if poison else ''}.{step}", "RmsProp",
                     [("w", before), ("g", g)] + [(k, state[k]) for k in ("v", "m", "b")],
                     [("w2", w.detach().clone())] +
                     [(k + "2", None if t is None else t.clone()) for k, t in made.items()],
                     variant=choice, live=(0.02, 0.9, 1e-8, options.get("weight_decay", 0.0),
                                          options.get("momentum", 0.0), 0.5, float(step == 0)))
                state = {k: torch.zeros(*shape) if t is None else t.clone() for k, t in made.items()}
        w = torch.nn.Parameter(randn(*shape))
        optimizer = torch.optim.Adagrad([w], lr=0.1, lr_decay=0.1, weight_decay=0.1,
                                        initial_accumulator_value=0.25, foreach=False)
        v, count = torch.zeros(*shape), torch.tensor(0.0)
        for step in range(2):
            g = poisoned(randn(*shape), (1, NAN), (7, INF)) if poison else randn(*shape)
            before = w.detach().clone()
            w.grad = g * 0.5
            optimizer.step()
            after = optimizer.state[w]
            case(f"adagrad{'.nan' if poison else ''}.{step}", "Adagrad",
                 [("w", before), ("g", g), ("v", v), ("step", count)],
                 [("w2", w.detach().clone()), ("v2", after["sum"].clone()),
                  ("step2", after["step"].clone())], live=(0.1, 0.1, 1e-10, 0.1, 0.25, 0.5))
            v, count = after["sum"].clone(), after["step"].clone()
        w, g = randn(*shape), poisoned(randn(*shape), (1, NAN)) if poison else randn(*shape)
        m, v = 0.1 * (0.5 * g), 0.001 * (0.5 * g) ** 2
        x = m / 0.1 / ((v / 0.001).sqrt() + 1e-6) + 0.1 * w
        case("lamb" + (".nan" if poison else ""), "Lamb",
             [("w", w), ("g", g), ("m", torch.zeros(*shape)), ("v", torch.zeros(*shape)),
              ("step", torch.tensor(0.0))],
             [("w2", w - 0.02 * min(w.norm().item(), 2.0) / x.norm().item() * x), ("m2", m),
              ("v2", v), ("step2", torch.tensor(1.0))],
             live=(0.02, 0.9, 0.999, 1e-6, 0.1, 1.0, 0.5, 2.0))
        live = (0.0,) * 8 + (0.25, 0.5, 0.5)
        case("clip_value" + (".nan" if poison else ""), "ClipValue", [("g", g)],
             [("y", g.clamp(-0.5, 0.5))], live=live)
        norm = (0.5 * g).norm()
        case("gradient_norm" + (".nan" if poison else ""), "GradientNorm",
             [("g", g), ("before", torch.tensor(2.0))], [("y", (norm ** 2 + 4.0).sqrt())], live=live)
        case("clip_norm" + (".nan" if poison else ""), "ClipNorm", [("g", g), ("norm", norm)],
             [("y", g * torch.clamp(0.5 / (norm + 1e-6), max=1.0))], live=live)


def more_layers():
    """avg_pool2d, adaptive_avg_pool2d, prelu, cat."""
    torch.manual_seed(28)
    ways = [("plain", (2, 3), None, (0, 0), True), ("strided", (3, 2), (2, 1), (1, 1), True),
            ("bare", (3, 3), (2, 2), (1, 1), False)]
    for poison in (False, True):
        tail = ".nan" if poison else ""
        for name, kernel, stride, padding, count in ways:
            x = poisoned(randn(2, 3, 7, 6), (9, NAN), (60, INF)) if poison else randn(2, 3, 7, 6)
            x.requires_grad_()
            y = F.avg_pool2d(x, kernel, stride, padding, count_include_pad=count)
            dy = poisoned(randn(*y.shape), (3, NAN)) if poison else randn(*y.shape)
            attrs = dict(kernel=kernel, stride=stride or kernel, padding=padding, include_pad=count)
            case(f"avg_pool.{name}{tail}", "AvgPool2d", [("x", x)], [("y", y)], **attrs)
            case(f"avg_pool.{name}{tail}.d", "AvgPool2dGrad", [("dy", dy)],
                 [("dx", grad(y, [x], dy)[0])], dims=tuple(x.shape), **attrs)
        for size in ((1, 1), (3, 4)):
            x = poisoned(randn(2, 3, 7, 6), (9, NAN)) if poison else randn(2, 3, 7, 6)
            x.requires_grad_()
            y = F.adaptive_avg_pool2d(x, size)
            dy = poisoned(randn(*y.shape), (3, NAN)) if poison else randn(*y.shape)
            name = f"adaptive_pool.{size[0]}{tail}"
            case(name, "AdaptiveAvgPool2d", [("x", x)], [("y", y)], kernel=size)
            case(name + ".d", "AdaptiveAvgPool2dGrad", [("dy", dy)],
                 [("dx", grad(y, [x], dy)[0])], dims=tuple(x.shape), kernel=size)
        for shape, slopes in (((4, 3, 5), 3), ((4, 6), 1)):
            x = poisoned(randn(*shape), (2, NAN), (3, -INF)) if poison else randn(*shape)
            x, w = x.requires_grad_(), randn(slopes).requires_grad_()
            y = F.prelu(x, w)
            dy = randn(*shape)
            dx, dw = grad(y, [x, w], dy)
            name = f"prelu.{slopes}{tail}"
            case(name, "PRelu", [("x", x), ("w", w)], [("y", y)])
            case(name + ".d", "PReluGrad", [("dy", dy), ("x", x), ("w", w)],
                 [("dx", dx), ("dw", dw)])
        for dim in (0, 1, -1):
            a = poisoned(randn(2, 3, 4), (5, NAN)) if poison else randn(2, 3, 4)
            b = randn(*(5 if i == dim % 3 else n for i, n in enumerate(a.shape)))
            y = torch.cat([a, b], dim)
            case(f"cat.{dim}{tail}", "Cat", [("a", a), ("b", b)], [("y", y)], axis=dim, exact=True)
            case(f"cat.{dim}{tail}.d", "CatGrad", [("dy", y), ("a", a), ("b", b)],
                 [("da", a), ("db", b)], axis=dim, exact=True)


def entropies():
    """PyTorch's cross_entropy with its parameters, from log-probabilities."""
    torch.manual_seed(26)
    ways = [("weight", True, None, 0.0, "mean"), ("ignore", False, 2, 0.0, "mean"),
            ("smooth", False, None, 0.1, "mean"), ("all", True, -100, 0.3, "mean"),
            ("sum", True, 1, 0.2, "sum")]
    for way, weighted, ignore, smoothing, reduction in ways + [("nan",) + ways[0][1:]]:
        logits, target = randn(6, 4), torch.tensor([0, 3, 2, 1, 2, 3])
        if ignore is not None:
            target[1] = ignore
        logp = F.log_softmax(logits, 1)
        if way == "nan":
            poisoned(logp, (7, NAN))
        logp = logp.detach().requires_grad_()
        weight = torch.rand(4) + 0.5 if weighted else None
        # cross_entropy of log-probabilities: their log-softmax is what they are
        loss = F.cross_entropy(logp, target, weight, ignore_index=-7 if ignore is None else ignore,
                               label_smoothing=smoothing, reduction=reduction)
        picked = F.nll_loss(logp, target, weight, ignore_index=-7 if ignore is None else ignore,
                            reduction=reduction)
        w = torch.ones(4) if weight is None else weight
        keep_ = target != (-7 if ignore is None else ignore)
        smooth = -(logp * w).sum(1)[keep_].sum()
        if reduction == "mean":
            smooth = smooth / w[target[keep_]].sum()
        value = (1 - smoothing) * picked + (smoothing / 4 * smooth if smoothing else 0)
        if way != "nan":
            assert torch.allclose(value, loss, atol=1e-6), (way, value, loss)
        dloss = torch.tensor(1.5)
        attrs = dict(mean=reduction == "mean", label_smoothing=smoothing,
                     ignores=int(ignore is not None), ignore_index=0 if ignore is None else ignore)
        weights = [("w", weight)] if weighted else []
        case(f"entropy.{way}", "NllWeighted", [("logp", logp), ("target", target)] + weights,
             [("loss", value)], **attrs)
        case(f"entropy.{way}.d", "NllWeightedGrad",
             [("dloss", poisoned(dloss.clone(), (0, NAN)) if way == "nan" else dloss), ("target", target)]
             + weights, [("d", None if way == "nan" else grad(value, [logp], dloss)[0])],
             dims=(6, 4), **attrs)
    labels = torch.tensor([3, 0, 2])
    case("number", "Number", [("x", labels)], [("y", labels.float().reshape(3, 1))])
    case("one_hot", "OneHot", [("x", labels)], [("y", F.one_hot(labels, 5).float())], classes=5)


def matmul(name, a, b, choice=0, scale=0.0):
    left = a.transpose(-1, -2) if choice & 1 else a
    right = b.transpose(-1, -2) if choice & 2 else b
    case(name, "MatMul", [("a", a), ("b", b)], [("y", (left @ right) * (scale or 1.0))],
         transposed=choice, scale=scale)


def more_ops():
    """Embedding, products, choosing, slices, extremes."""
    torch.manual_seed(31)
    ids, table = torch.randint(0, 7, (3, 5)), randn(7, 4)
    for name, w in (("embedding", table), ("embedding.nan", poisoned(table.clone(), (9, NAN)))):
        w.requires_grad_()
        y = F.embedding(ids, w)
        dy = randn(*y.shape)
        dy = poisoned(dy, (3, NAN), (20, INF)) if "nan" in name else dy
        case(name, "Embedding", [("x", ids), ("w", w)], [("y", y)], exact=1)
        case(name + ".dw", "EmbeddingGrad", [("dy", dy), ("x", ids)],
             [("dw", grad(y, [w], dy)[0])], dims=(7, 4))
    w = table.clone().requires_grad_()
    y = F.embedding(ids, w, padding_idx=2)
    dy = randn(*y.shape)
    case("embedding.padding", "EmbeddingGrad", [("dy", dy), ("x", ids)],
         [("dw", grad(y, [w], dy)[0])], dims=(7, 4), padded=1, padding_idx=2)
    matmul("matmul.small", randn(3, 5), randn(5, 4))
    matmul("matmul.wide", randn(33, 70), randn(70, 41))
    matmul("matmul.batches", randn(2, 3, 4, 5), randn(3, 5, 6), scale=0.25)
    matmul("matmul.broadcast", randn(4, 1, 2, 3), randn(5, 3, 2))
    matmul("matmul.swap_a", randn(2, 5, 3), randn(2, 5, 4), choice=1)
    matmul("matmul.swap_b", randn(2, 3, 5), randn(4, 5), choice=2)
    matmul("matmul.swap_both", randn(17, 33), randn(20, 17), choice=3)
    matmul("matmul.nonfinite", poisoned(randn(3, 5), (4, NAN), (11, INF)),
           poisoned(randn(5, 4), (2, -INF)))
    a = torch.tensor([[1.0, NAN, INF, -2.0], [3.0, 0.0, -INF, 5.0]])
    b = torch.tensor([1.0, NAN, INF, -1.0])
    for i, f in enumerate((torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge)):
        case(f"compare{i}", "Compare", [("a", a), ("b", b)], [("y", f(a, b))], comparison=i)
    mask = torch.tensor([[True, False, True, False], [False, False, True, True]])
    for name, x, z in (("where", randn(2, 4), randn(4)),
                       ("where.nan", a.clone(), poisoned(randn(2, 4), (1, NAN)))):
        case(name, "Where", [("c", mask), ("x", x), ("z", z)], [("y", torch.where(mask, x, z))],
             exact=1)
        case(name + ".fill", "MaskedFill", [("x", x), ("c", mask)],
             [("y", x.masked_fill(mask, -1.5))], value=-1.5, exact=1)
        case(name + ".keep", "MaskedFill", [("x", x), ("c", mask)],
             [("y", x.masked_fill(~mask, 0.0))], inverted=1, exact=1)
    x = poisoned(randn(3, 7, 2), (5, NAN)).requires_grad_()
    y = x[:, 1:-1:2]
    dy = poisoned(randn(*y.shape), (1, NAN))
    case("slice", "Slice", [("x", x)], [("y", y)], axis=-2, kernel=(1, -1), stride=(2, 0),
         exact=1)
    case("slice.dx", "SliceGrad", [("dy", dy)], [("dx", grad(y, [x], dy)[0])], axis=1,
         kernel=(1, -1), stride=(2, 0), dims=(3, 7, 2), exact=1)
    ties = torch.randint(0, 3, (4, 5, 3)).float()
    for name, x in (("extreme", randn(4, 5, 3)), ("extreme.ties", ties),
                    ("extreme.nonfinite", poisoned(randn(4, 5, 3), (7, INF), (20, -INF)))):
        for choice, f in enumerate((torch.amax, torch.amin)):
            x = x.detach().clone().requires_grad_()
            y = f(x, (0, 2))
            dy = randn(*y.shape)
            full = f"{name}{choice}"
            case(full, "Extreme", [("x", x)], [("y", y)], dims=(0, -1), smallest=choice, exact=1)
            case(full + ".dx", "ExtremeGrad", [("dy", dy), ("x", x), ("y", y)],
                 [("dx", grad(y, [x], dy)[0])], axes=5, smallest=choice)
            place = (torch.argmax, torch.argmin)[choice]
            if "ties" not in name:  # PyTorch names any of them
                case(full + ".place", "ArgExtreme", [("x", x)], [("y", place(x, 1))], axis=1,
                     smallest=choice)
    nan = poisoned(randn(3, 4), (1, NAN))
    case("extreme.nan", "Extreme", [("x", nan)], [("y", torch.amax(nan, 1, True))], dims=(1,),
         keep_dims=1, exact=1)
    logits = randn(2, 3, 5)
    target = torch.randint(0, 5, (2, 3))
    x = logits.requires_grad_()
    y = F.nll_loss(x.transpose(1, 2), target)
    dy = torch.tensor(0.7)
    case("nll_positions", "NllWeighted", [("x", x), ("t", target)], [("y", y)], axis=-1, mean=1)
    case("nll_positions.dx", "NllWeightedGrad", [("dy", dy), ("t", target)],
         [("dx", grad(y, [x], dy)[0])], axis=2, mean=1, dims=(2, 3, 5))


def attention(name, q, k, v, mask=None, causal=False, scale=None, heads=0, packed=None):
    """Attention with its weights, and its gradient; packed: q, k and v in one value."""
    leaves = [t.requires_grad_() for t in ((packed,) if packed is not None else (q, k, v))]
    three = packed.chunk(3, -1) if packed is not None else leaves
    if heads:
        three = [t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in three]
    with sdpa_kernel(SDPBackend.MATH):  # the fused one answers 0 for rows of NaN
        y = F.scaled_dot_product_attention(*three, attn_mask=mask, is_causal=causal, scale=scale)
    root = scale if scale is not None else three[0].shape[-1] ** -0.5
    scores = three[0] @ three[1].transpose(-1, -2) * root
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:]).tril().bool(), -INF)
    if mask is not None:
        scores = scores.masked_fill(~mask, -INF) if mask.dtype == torch.bool else scores + mask
    weights = torch.softmax(scores, -1)
    weights = torch.where((scores == -INF).all(-1, keepdim=True), 0.0, weights).detach()
    if heads:
        y = y.transpose(1, 2).flatten(2)
    dy = randn(*y.shape)
    kind = "SelfAttention" if packed is not None else "Attention"
    ins = [("x", packed)] if packed is not None else [("q", q), ("k", k), ("v", v)]
    attrs = dict(heads=heads, causal=causal, scale=scale)
    case(name, kind, ins + ([("m", mask)] if mask is not None else []),
         [("y", y), ("p", weights)], **attrs)
    grads = grad(y, leaves, dy)
    case(name + ".d", kind + "Grad", [("dy", dy), ("p", weights)] + ins,
         [(f"d{short}", g) for (short, _), g in zip(ins, grads)] + [("ds", None)], **attrs)


def attentions():
    torch.manual_seed(37)
    attention("attention", randn(2, 3, 5, 4), randn(2, 3, 7, 4), randn(2, 3, 7, 6))
    attention("attention.causal", randn(2, 33, 16), randn(2, 33, 16), randn(2, 33, 16), causal=True)
    attention("attention.heads", randn(2, 5, 12), randn(2, 6, 12), randn(2, 6, 18), heads=3)
    attention("attention.scale", randn(4, 5), randn(6, 5), randn(6, 3), scale=0.7)
    bars = torch.rand(2, 1, 5, 7) > 0.4
    bars[..., 0] = True
    attention("attention.mask", randn(2, 3, 5, 4), randn(2, 3, 7, 4), randn(2, 3, 7, 6), mask=bars)
    bars = bars.clone()
    bars[0, 0, 2] = False
    attention("attention.empty", randn(2, 3, 5, 4), randn(2, 3, 7, 4), randn(2, 3, 7, 6), mask=bars)
    attention("attention.bias", randn(2, 3, 5, 4), randn(2, 3, 7, 4), randn(2, 3, 7, 6),
              mask=randn(5, 7))
    attention("attention.nonfinite", poisoned(randn(2, 5, 4), (3, NAN)),
              poisoned(randn(2, 7, 4), (30, INF)), randn(2, 7, 6))
    attention("self_attention", None, None, None, heads=3, packed=randn(2, 5, 36))
    attention("self_attention.causal", None, None, None, heads=2, causal=True,
              packed=randn(3, 40, 48))
    attention("self_attention.nonfinite", None, None, None, heads=2,
              packed=poisoned(randn(2, 3, 12), (3, NAN), (40, INF)))
