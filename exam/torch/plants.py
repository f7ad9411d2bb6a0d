"""The planted faults: what each changes, in which programs it can be, and what should be said."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from loop import Plant, Program, leaf_modules

RATE = ("WeightUpdateRatio", "LossNotDecreasing", "LossSpike", "NonFinite", "ExplodingTensor",
        "GradientSpike", "DeadRelu", "SaturatedActivation", "OptimizerState", "WeightJump")
LEARNS_NOT = ("LabelNoise", "LossNotDecreasing", "WeightUpdateRatio", "ClassImbalance")
KINDS = {}


def plant(kind, rules, first=0, always=True, **more):
    def add(cls):
        made = type(cls.__name__, (cls, Plant) if not issubclass(cls, Plant) else (cls,), {
            "kind": kind, "rules": rules, "first": first, "always": always, **more})
        KINDS[kind] = made
        return made
    return add


def weights(program):
    """Layers that are trained, in order."""
    return [(n, m) for n, m in leaf_modules(program.model)
            if isinstance(getattr(m, "weight", None), nn.Parameter) and m.weight.requires_grad and
            m.weight.dim() >= 2]


def middle(program):
    layers = weights(program)
    return layers[len(layers) // 2]


def tensors(name):
    return (f"{name}.*", f"gradient/{name}.*", f"{name}_output_0", f"{name}_input_0")


def is_chain(family):
    """Its layers follow one another, so that the first ones can be cut off."""
    return family.__name__ in ("MlpClassifier", "TanhClassifier", "ConvNet", "DropoutClassifier",
                               "Restarts", "Accumulated", "Regression", "Prices", "Autoencoder",
                               "Denoiser", "Segmenter", "Contrast", "WarmUp", "Siamese",
                               "PointSet", "TopicTags", "Quantiles", "Triplets", "HalfPrecision",
                               "MixUp", "Citations", "Signs")


def single(family):
    return family.__name__ not in ("Gan", "Wasserstein", "HingeGan", "ValueLearning",
                                   "TemporalDifference", "ActorCritic", "WganGp", "PolicyGradient")


def own_rate(family):
    return family.__name__ not in ("UnfrozenByRate", "FineTuned", "Unfrozen")


# --- step size -----------------------------------------------------------------------------------


def rate_plant(kind, factor, rules=RATE, fits=own_rate):
    class Rate(Plant):
        def build(self):
            self.program.rate *= factor
    Rate.fits = classmethod(lambda cls, family: fits(family))
    plant(kind, rules, always=False)(Rate)


rate_plant("rate-x100", 100.0)
rate_plant("rate-x1000", 1000.0)
rate_plant("rate-/1000", 1e-3, ("WeightUpdateRatio", "FrozenParameter", "LossNotDecreasing"))
rate_plant("rate-/30000", 1 / 3e4, ("WeightUpdateRatio", "FrozenParameter", "LossNotDecreasing"))


@plant("rate-x300-later", RATE, first=60, always=False)
class Later(Plant):
    fits = classmethod(lambda cls, f: own_rate(f) and f.make_schedule is Program.make_schedule)

    def before_step(self, step):
        if step == 60:
            for optimizer in self.program.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] *= 300


@plant("eps-10", ("WeightUpdateRatio", "LossNotDecreasing", "OptimizerState"), always=False)
class Epsilon(Plant):
    fits = classmethod(lambda cls, f: f.optimizer in ("adam", "adamw") and own_rate(f))

    def build(self):
        self.program.options = {**self.program.options, "eps": 10.0}


@plant("momentum-0.999", RATE, always=False)
class Momentum(Plant):
    fits = classmethod(lambda cls, f: f.optimizer == "sgd")

    def build(self):
        self.program.options = {**self.program.options, "momentum": 0.999}


@plant("reduction-sum", RATE, always=False)
class Reduction(Plant):
    fits = classmethod(lambda cls, f: f.optimizer == "sgd" and own_rate(f))

    def build(self):
        self.program.loss_scale = 64.0


@plant("reduction-twice", ("WeightUpdateRatio", "VanishingGradient", "LossNotDecreasing"),
       always=False)
class ReductionTwice(Plant):
    fits = classmethod(lambda cls, f: f.optimizer == "sgd" and own_rate(f))

    def build(self):
        self.program.loss_scale = 1e-3


@plant("accumulation-not-divided", RATE, always=False)
class NotDivided(Plant):
    fits = classmethod(lambda cls, f: f.optimizer == "sgd" and own_rate(f))

    def build(self):
        self.program.accumulate = 16
        self.program.rate *= 1.5

    def ready(self):
        self.program.divide = False


@plant("decay-too-strong", RATE + ("VanishingGradient",), always=False)
class Decay(Plant):
    fits = classmethod(lambda cls, f: f.optimizer == "adamw" and own_rate(f))

    def build(self):
        self.program.options = {**self.program.options, "weight_decay": 100.0}


# --- gradients -----------------------------------------------------------------------------------


@plant("no-zero-grad", ("MissingZeroGrad",), always=False)
class NoZeroGrad(Plant):
    fits = classmethod(lambda cls, f: single(f) and own_rate(f))

    def build(self):
        self.program.clear = False


@plant("detached", ("FrozenParameter", "VanishingGradient"))
class Detached(Plant):
    fits = classmethod(lambda cls, f: is_chain(f))

    def ready(self):
        layers = weights(self.program)
        cut = len(layers) // 2
        self.where = tuple(t for n, _ in layers[:cut] for t in tensors(n))

        def hook(module, inputs):
            return tuple(i.detach() if isinstance(i, torch.Tensor) else i for i in inputs)

        layers[cut][1].register_forward_pre_hook(hook)


@plant("frozen-middle", ("FrozenParameter",))
class FrozenMiddle(Plant):
    fits = classmethod(lambda cls, f: own_rate(f))

    def build(self):
        name, module = middle(self.program)
        module.requires_grad_(False)
        self.where = tensors(name)


@plant("not-in-optimizer", ("FrozenParameter",))
class NotInOptimizer(Plant):
    fits = classmethod(lambda cls, f: own_rate(f))

    def ready(self):
        name, module = middle(self.program)
        self.where = tensors(name)
        mine = {id(p) for p in module.parameters()}
        for optimizer in self.program.optimizers:
            for group in optimizer.param_groups:
                group["params"] = [p for p in group["params"] if id(p) not in mine]


@plant("cleared-before-step", ("FrozenParameter",), first=20, where=("*",))
class Cleared(Plant):
    fits = classmethod(lambda cls, f: own_rate(f) and not f.used_gradients)

    def after_backward(self, step):
        if step >= 20:
            for optimizer in self.program.optimizers:
                optimizer.zero_grad()


@plant("cleared-from-start", ("FrozenParameter",))
class ClearedAlways(Plant):
    fits = classmethod(lambda cls, f: own_rate(f) and not f.used_gradients)

    def after_backward(self, step):
        for optimizer in self.program.optimizers:
            optimizer.zero_grad()


@plant("clipped-away", ("FrozenParameter", "WeightUpdateRatio", "VanishingGradient"), always=False)
class ClippedAway(Plant):
    fits = classmethod(lambda cls, f: f.optimizer == "sgd" and own_rate(f))

    def build(self):
        self.program.clip = 1e-5


@plant("stale-copies", ("FrozenParameter",))
class Stale(Plant):
    fits = classmethod(lambda cls, f: own_rate(f) and single(f))

    def ready(self):
        for optimizer in self.program.optimizers:
            for group in optimizer.param_groups:
                group["params"] = [p.detach().clone().requires_grad_() for p in group["params"]]


@plant("gradients-tiny", ("VanishingGradient", "WeightUpdateRatio", "FrozenParameter"))
class Tiny(Plant):
    fits = classmethod(lambda cls, f: own_rate(f))

    def build(self):
        self.program.loss_scale = 1e-12


@plant("gradients-explode", RATE + ("PoorWeightInitialization",), first=40)
class Explode(Plant):
    fits = classmethod(lambda cls, f: own_rate(f) and f.clip is None)

    def before_step(self, step):
        self.program.loss_scale = 1e5 if step >= 40 else 1.0


# --- values that go bad --------------------------------------------------------------------------


@plant("nan-in-input", ("NonFinite",), first=30)
class NanInput(Plant):
    fits = classmethod(lambda cls, f: f.__name__ not in (
        "SkipGram", "Ratings", "Lstm", "Transformer", "TiedTransformer", "Tagger", "Ranking",
        "MixtureOfExperts", "MaskedWords", "Translator"))

    def batch(self, step, batch):
        if step == 30:
            for name, value in batch.items():
                if value.dtype == torch.float32 and name != "attn_mask":
                    batch = {**batch, name: value.clone()}
                    batch[name].view(-1)[0] = float("nan")
                    self.where = (name,)
                    return batch
        return batch


@plant("inf-in-activation", ("NonFinite",), first=30)
class InfActivation(Plant):
    def ready(self):
        layers = [(n, m) for n, m in weights(self.program) if not n.endswith("out_proj")]
        name, module = layers[len(layers) // 2]  # out_proj's weight is used without its forward
        self.where = (f"{name}_output_0",)
        self.step = 0

        def hook(module, inputs, output):
            if self.step == 30 and isinstance(output, torch.Tensor) and torch.is_grad_enabled():
                output = output.clone()
                output.view(-1)[1] = float("inf")
                return output

        module.register_forward_hook(hook)

    def before_step(self, step):
        self.step = step


@plant("nan-in-gradient", ("NonFinite",), first=30)
class NanGradient(Plant):
    def ready(self):
        self.name, self.module = middle(self.program)
        # after clipping by the norm of all, all are NaN
        self.where = (f"gradient/{self.name}.weight" if not self.program.used_gradients else
                      "gradient/*",)
        self.step = 0
        self.module.weight.register_hook(
            lambda g: torch.where(torch.arange(g.numel()).view(g.shape) == 0, float("nan"), g)
            if self.step == 30 else g)

    def before_step(self, step):
        self.step = step


@plant("bit-flip", ("UpdateSpike", "NonFinite", "ExplodingTensor"), first=30)
class BitFlip(Plant):
    def ready(self):
        self.name, self.module = middle(self.program)
        self.where = (f"{self.name}.weight",)

    def after_step(self, step):
        if step == 30:
            flat = self.module.weight.data.view(-1)
            most = flat.abs().argmax()
            flat[most] = flat[most] * 2.0 ** 12 if abs(flat[most]) < 1 else 4096.0


# --- initialization ------------------------------------------------------------------------------


@plant("initial-x30", RATE + ("PoorWeightInitialization",), always=False)
class Large(Plant):
    fits = classmethod(lambda cls, f: own_rate(f) and single(f))

    def build(self):
        with torch.no_grad():
            for _, m in weights(self.program):
                m.weight *= 30.0


@plant("initial-constant", ("SymmetricUnits", "AllZero"))
class Constant(Plant):
    fits = classmethod(lambda cls, f: is_chain(f) and f.__name__ not in ("Gru", "Lstm"))

    def build(self):
        layers = weights(self.program)
        self.where = tuple(t for name, _ in layers for t in tensors(name))
        for _, module in layers:
            nn.init.constant_(module.weight, 0.05)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


@plant("dead-relu", ("DeadRelu",))
class Dead(Plant):
    fits = classmethod(lambda cls, f: is_chain(f) and f.__name__ in (
        "MlpClassifier", "DropoutClassifier", "Restarts", "Accumulated", "Regression",
        "Autoencoder", "Denoiser", "Segmenter", "Contrast", "Siamese", "PointSet", "TopicTags",
        "HalfPrecision", "Citations", "MixUp"))

    def build(self):
        before = None
        for name, module in leaf_modules(self.program.model):
            if isinstance(module, nn.ReLU) and before is not None:
                nn.init.constant_(before.bias, -30.0)
                self.where = (f"{name}_output_0", f"{name}_input_0")
                return
            before = module if getattr(module, "bias", None) is not None else None


@plant("saturated", ("SaturatedActivation",))
class Saturated(Plant):
    fits = classmethod(lambda cls, f: f.__name__ in ("TanhClassifier", "Curve", "Physics"))

    def build(self):
        with torch.no_grad():
            self.program.model.fc2.weight *= 200.0
        self.where = ("tanh2_*", "fc2_output_0")


# --- data ----------------------------------------------------------------------------------------


def has_targets(family):
    return family.labels in ("classes", "tokens", "real")


@plant("targets-shuffled", LEARNS_NOT)
class Shuffled(Plant):
    fits = classmethod(lambda cls, f: has_targets(f) and f.__name__ != "TwoLosses")

    def batch(self, step, batch):
        for name in ("labels", "targets"):
            if name in batch:
                flat = batch[name].reshape(-1)
                mixed = flat[torch.randperm(len(flat))]
                batch = {**batch, name: mixed.reshape(batch[name].shape)}
        return batch


@plant("one-class", ("ClassImbalance",))
class OneClass(Plant):
    fits = classmethod(lambda cls, f: f.labels == "classes" and f.__name__ not in (
        "Graph", "Citations"))

    def batch(self, step, batch):
        return {**batch, "labels": torch.zeros_like(batch["labels"])}


@plant("broadcast", ("LossBroadcast", "LossNotDecreasing", "LabelNoise"))
class Broadcast(Plant):
    fits = classmethod(lambda cls, f: f.__name__ in ("Regression", "Prices", "LinearRegression",
                                                     "Curve", "Forecast", "Averaged"))

    def batch(self, step, batch):
        return {**batch, "targets": batch["targets"][:, 0]}


@plant("not-normalized", ("InputRange",))
class NotNormalized(Plant):
    fits = classmethod(lambda cls, f: f.__name__ in (
        "MlpClassifier", "TanhClassifier", "ConvNet", "ResidualNet", "Regression", "Autoencoder",
        "Gru", "Restarts", "DropoutClassifier", "Segmenter", "WarmUp", "VisionTransformer",
        "HalfPrecision", "Averaged", "Quantiles", "StochasticDepth", "Tcn"))
    where = ("input",)

    def batch(self, step, batch):
        return {**batch, "input": 60.0 * batch["input"] + 100.0}


@plant("same-batch-again", ("DuplicateBatch",), first=40,
       where=("input", "tokens", "users", "items", "labels", "targets", "words", "view1", "left",
              "right", "seen", "drawn", "times", "noise", "grades", "places", "kinds", "masks", "-"))
class Again(Plant):
    fits = classmethod(lambda cls, f: f.__name__ not in ("Graph", "Curve", "Citations"))
    kept = None

    def batch(self, step, batch):
        if step == 40:
            self.kept, self.where = batch, self.where + tuple(batch)
        return self.kept if 40 <= step < 60 else batch


@plant("unshuffled", ("ClassImbalance", "DuplicateBatch", "LabelNoise"),
       where=("labels", "input", "-", "loss"))
class Unshuffled(Plant):
    fits = classmethod(lambda cls, f: f.labels == "classes" and f.__name__ not in (
        "Graph", "ManyClasses", "Gru", "Citations", "VisionTransformer"))

    def build(self):
        program, draw = self.program, self.program.batch
        count = {"at": 0}
        real = program.randint

        def one_class(high, *shape):
            if high == program.classes and program.model.training:
                count["at"] += 1
                return torch.full(shape, count["at"] // 10 % program.classes)
            return real(high, *shape)

        program.randint = one_class
        program.batch = draw


# --- replicas --------------------------------------------------------------------------------------


@plant("no-all-reduce", ("ReplicaDivergence",), first=30)
class NoAllReduce(Plant):
    fits = classmethod(lambda cls, f: False)  # Replicas names its kinds

    def before_step(self, step):
        self.program.reduce = step < 30


@plant("replica-starts-otherwise", ("ReplicaDivergence",))
class StartsOtherwise(Plant):
    fits = classmethod(lambda cls, f: False)

    def build(self):
        for module in self.program.other.modules():
            if isinstance(module, nn.Linear):
                module.reset_parameters()


@plant("same-batch-on-both", ("DuplicateBatch",), first=30, where=("input", "labels"))
class SameOnBoth(Plant):
    fits = classmethod(lambda cls, f: False)

    def before_step(self, step):
        self.program.same_batch = step >= 30


# --- modes ---------------------------------------------------------------------------------------


def has(kind):
    names = {nn.BatchNorm2d: ("ConvNet", "ResidualNet", "Signs"),
             nn.Dropout: ("DropoutClassifier", "TopicTags", "VisionTransformer", "Citations")}
    return lambda cls, family: family.__name__ in names[kind]


@plant("batch-norm-trains-in-eval", ("TrainEvalMode", "EvalNondeterminism"))
class NormInEval(Plant):
    fits = classmethod(has(nn.BatchNorm2d))

    def build(self):
        self.program.eval_mode = True


@plant("dropout-in-eval", ("TrainEvalMode", "EvalNondeterminism"))
class DropoutInEval(Plant):
    fits = classmethod(has(nn.Dropout))

    def build(self):
        self.program.eval_mode = True


@plant("trains-in-eval-mode", ("TrainEvalMode", "EvalNondeterminism"), first=30)
class TrainsInEvalMode(Plant):
    fits = classmethod(lambda cls, f: f.__name__ in (
        "ConvNet", "ResidualNet", "DropoutClassifier", "Signs", "TopicTags", "VisionTransformer",
        "Citations"))

    def before_step(self, step):
        self.program.train_mode = step < self.program.eval_every


# --- weights and losses --------------------------------------------------------------------------


@plant("weights-of-another-time", ("WeightJump", "UpdateSpike", "LossSpike", "WeightUpdateRatio"), first=80,
       always=False)
class OtherTime(Plant):
    fits = classmethod(lambda cls, f: single(f) and own_rate(f))

    def ready(self):
        self.kept = copy.deepcopy(self.program.model.state_dict())

    def after_step(self, step):
        if step == 80:
            self.program.model.load_state_dict(self.kept)


@plant("wrong-sign", ("LossSign", "LossNotDecreasing", "LossSpike", "NonFinite", "WeightUpdateRatio"),
       where=("*loss*", "-"))
class WrongSign(Plant):
    fits = classmethod(lambda cls, f: single(f) and own_rate(f) and f.__name__ != "Flow")

    def build(self):
        self.program.sign = -1.0


@plant("softmax-twice", ("SoftmaxMisuse",))
class Twice(Plant):
    fits = classmethod(lambda cls, f: f.labels in ("classes", "tokens") and f.__name__ not in (
        "TwoLosses", "Citations"))

    def build(self):
        program = self.program
        if program.labels == "classes":
            predict = program.predict
            program.predict = lambda batch: predict(batch).softmax(1)
        else:
            forward = program.model.forward
            program.model.forward = lambda *a: forward(*a).softmax(-1)


@plant("softmax-over-batch", ("SoftmaxMisuse", "LossNotDecreasing", "LabelNoise"))
class WrongAxis(Plant):
    fits = classmethod(lambda cls, f: f.labels == "classes" and f.__name__ in (
        "MlpClassifier", "TanhClassifier", "ConvNet", "Restarts", "Accumulated", "Gru", "WarmUp",
        "PointSet", "VisionTransformer", "LowRank", "Signs", "HalfPrecision"))

    def build(self):
        predict = self.program.predict
        self.program.predict = lambda batch: predict(batch).log_softmax(0)
        type(self.program).criterion  # the class's own stays
        self.program.criterion = F.nll_loss
