"""Faults that can be planted in a program from outside: what each changes, where it fits, and which
rules and tensors count as right (as in exam/torch/plants.py)."""

import fnmatch
import random

import numpy as np

RATE = ("WeightUpdateRatio", "LossNotDecreasing", "LossSpike", "NonFinite", "ExplodingTensor",
        "GradientSpike", "DeadRelu", "SaturatedActivation", "OptimizerState", "WeightJump")
TOO_SLOW = ("WeightUpdateRatio", "FrozenParameter", "LossNotDecreasing")
LEARNS_NOT = ("LabelNoise", "LossNotDecreasing", "WeightUpdateRatio", "ClassImbalance")
KINDS = {}


class Healthy:
    kind, rules, where, first, needs, harm, rate = "healthy", (), ("*",), 0, "", False, 1.0

    def attach(self): pass
    def before_update(self, step): pass
    def after_update(self, step): pass
    def inputs(self, x): return x
    def targets(self, y): return y
    def order(self, order, y): return order
    def batch(self, step, x, y): return x, y


def plant(kind, rules, needs="", first=0, harm=False, **more):
    """harm: it counts only if the run makes less than half of the progress of the same run
    without it."""
    def add(cls):
        KINDS[kind] = type(cls.__name__, (cls, Healthy), {
            "kind": kind, "rules": rules, "needs": needs, "first": first, "harm": harm, **more})
        return cls
    return add


def chosen(program, count=5):
    """The kinds for a program, drawn by its name."""
    fit = [k for k, p in sorted(KINDS.items()) if set(p.needs.split()) <= program.can]
    return random.Random(f"faults of {program.name}").sample(fit, min(count, len(fit)))


def middle(session):
    """The middle one of the layers that are trained: (name, module)."""
    import torch
    held = {id(p) for o in session.optimizers for g in o.param_groups for p in g["params"]}
    layers = [(n, m) for n, m in session.model.named_modules()
              if isinstance(getattr(m, "weight", None), torch.nn.Parameter) and
              m.weight.requires_grad and m.weight.dim() >= 2 and id(m.weight) in held and
              type(m).__name__ != "NonDynamicallyQuantizableLinear" and
              fnmatch.fnmatch(n, getattr(session, "layers", "*"))]
    return layers[len(layers) // 2]


def tensors(name):
    return (f"{name}.*", f"gradient/{name}.*", f"update/{name}.*", f"{name}_output_*",
            f"{name}_input_*", f"gradient/{name}_output_*")


# --- step size -----------------------------------------------------------------------------------

plant("rate-x100", RATE, harm=True, rate=100.0)(type("Fast", (), {}))
plant("rate-/1000", TOO_SLOW, harm=True, rate=1e-3)(type("Slow", (), {}))


@plant("rate-x300-later", RATE, first=60, harm=True)
class Later:
    def before_update(self, step):
        if step >= 60:
            for optimizer in self.session.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] *= 300

    def after_update(self, step):
        if step >= 60:
            for optimizer in self.session.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] /= 300


# --- gradients and updates -----------------------------------------------------------------------

@plant("frozen-layer", ("FrozenParameter",), "layers")
class Frozen:
    def attach(self):
        name, module = middle(self.session)
        module.requires_grad_(False)
        self.where = tensors(name)


@plant("not-in-optimizer", ("FrozenParameter",), "layers")
class LeftOut:
    def attach(self):
        name, module = middle(self.session)
        self.where = tensors(name)
        mine = {id(p) for p in module.parameters()}
        for optimizer in self.session.optimizers:
            for group in optimizer.param_groups:
                group["params"] = [p for p in group["params"] if id(p) not in mine]


@plant("cleared-before-step", ("FrozenParameter",), first=40)
class Cleared:
    """Also where a trainer computes the gradients in the optimizer's closure."""

    def attach(self):
        for optimizer in self.session.optimizers:
            optimizer.register_step_pre_hook(self.before_step)

    def before_step(self, optimizer, arguments, options):
        closure = options.get("closure", arguments[1] if len(arguments) > 1 else None)
        if closure is None:
            self.clear(optimizer)
            return None

        def cleared():
            loss = closure()
            self.clear(optimizer)
            return loss

        return arguments[:1], {**options, "closure": cleared}

    def clear(self, optimizer):
        if self.session.step >= 40:
            for group in optimizer.param_groups:
                for p in group["params"]:
                    p.grad = None


@plant("no-zero-grad", ("MissingZeroGrad",), "single", harm=True)
class NoZeroGrad:
    def attach(self):
        for owner in (self.session.model, *self.session.optimizers):
            owner.zero_grad = lambda *_, **__: None


@plant("gradients-tiny", ("VanishingGradient", "WeightUpdateRatio", "FrozenParameter"))
class Tiny:
    def attach(self):
        for p in self.session.model.parameters():
            if p.requires_grad:
                p.register_hook(lambda g: g * 1e-12)


@plant("nan-in-gradient", ("NonFinite",), "layers", first=50)
class NanGradient:
    def attach(self):
        name, module = middle(self.session)
        self.where = (f"gradient/{name}.weight",)

        def spoil(gradient):
            if self.session.step == 50:
                gradient = gradient.clone()
                gradient.view(-1)[0] = float("nan")
            return gradient

        module.weight.register_hook(spoil)


# --- values --------------------------------------------------------------------------------------

@plant("inf-in-activation", ("NonFinite",), "layers", first=50)
class InfActivation:
    def attach(self):
        import torch
        name, module = middle(self.session)
        self.where = (f"{name}_output_*",)

        def spoil(module, inputs, output):
            if self.session.step == 50 and torch.is_grad_enabled():
                output = output.clone(memory_format=torch.contiguous_format)
                output.view(-1)[1] = float("inf")
            return output

        module.register_forward_hook(spoil)


@plant("bit-flip", ("UpdateSpike", "NonFinite", "ExplodingTensor", "WeightJump"),
       "layers", first=50)
class BitFlip:
    def attach(self):
        name, self.module = middle(self.session)
        self.where = (f"{name}.weight", f"update/{name}.weight")

    def after_update(self, step):
        if step == 50:
            flat = self.module.weight.data.view(-1)
            most = flat.abs().argmax()
            flat[most] = flat[most] * 2.0 ** 12 if abs(flat[most]) < 1 else 4096.0


@plant("initial-x30", RATE + ("PoorWeightInitialization",), "layers", harm=True)
class Large:
    def attach(self):
        name, module = middle(self.session)
        self.where = tensors(name)
        module.weight.data.mul_(30.0)


@plant("dead-relu", ("DeadRelu",), "relu")
class Dead:
    def attach(self):
        import torch
        before = None
        for name, module in self.session.model.named_modules():
            if isinstance(module, torch.nn.ReLU) and before is not None:
                torch.nn.init.constant_(before[1].bias, -30.0)
                self.where = (f"{name}_output_*", f"{name}_input_*", f"{before[0]}_output_*")
                return
            if getattr(module, "bias", None) is not None:
                before = name, module


@plant("weights-of-another-time", ("WeightJump", "UpdateSpike", "LossSpike", "WeightUpdateRatio"),
       first=80, harm=True)
class OtherTime:
    def attach(self):
        self.kept = {k: v.clone() for k, v in self.session.model.state_dict().items()
                     if hasattr(v, "clone")}

    def after_update(self, step):
        if step == 80:
            self.session.model.load_state_dict(self.kept, strict=False)


# --- data, loss and modes ------------------------------------------------------------------------

@plant("targets-shuffled", LEARNS_NOT, "targets")
class Shuffled:
    def targets(self, y):
        return y[self.session.draw.permutation(len(y))]

    def batch(self, step, x, y):
        return x, self.targets(y)


@plant("nan-in-input", ("NonFinite",), "inputs batches", first=50, where=("input", "input/*"))
class NanInput:
    def batch(self, step, x, y):
        if step == 50:
            x = x.clone()
            x.view(-1)[0] = float("nan")
        return x, y


@plant("not-normalized", ("InputRange",), "inputs batches", where=("input", "input/*"))
class NotNormalized:
    def batch(self, step, x, y):
        return 60.0 * x + 100.0, y


@plant("same-batch-again", ("DuplicateBatch",), "batches", first=40,
       where=("input", "input/*", "-"))
class Again:
    def batch(self, step, x, y):
        if step == 40:
            self.kept = x, y
        return self.kept if 40 <= step < 60 else (x, y)


@plant("unshuffled", ("ClassImbalance", "DuplicateBatch", "LabelNoise"), "classes batches",
       where=("input", "input/*", "output*", "loss", "-"))
class Unshuffled:
    def order(self, order, y):
        return np.argsort(np.asarray(y), kind="stable")


@plant("wrong-sign", ("LossSign", "LossNotDecreasing", "LossSpike", "NonFinite",
                      "WeightUpdateRatio"), "single")
class WrongSign:
    def attach(self):
        import torch
        plain = torch.Tensor.backward
        torch.Tensor.backward = lambda loss, *a, **more: plain(-loss, *a, **more)


@plant("softmax-twice", ("SoftmaxMisuse",), "logits")
class Twice:
    def attach(self):
        self.session.model.register_forward_hook(lambda _, __, output: output.softmax(-1))


@plant("trains-in-eval-mode", ("TrainEvalMode", "EvalNondeterminism"), "modes", first=40)
class EvalMode:
    def after_update(self, step):
        if step == 39:
            model = self.session.model
            model.eval()
            model.train = lambda mode=True: model
