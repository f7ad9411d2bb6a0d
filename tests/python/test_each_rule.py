"""Each default rule, by the three lines: a program in which it fires, and a healthy twin in
which it has data and does not fire.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import os
import sys

from harness import check, main, program

sys.path.insert(0, os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python"))
try:
    import torch
    from torch import nn
    from torch.nn import functional as F
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)

# Rules that need more than a program that trains: an imported run of trees, a run that is
# followed from outside, several processes, token numbers under smdebug's names.
CANNOT = {"FeatureImportanceOverweight", "TreeDepth", "StalledTraining", "ReplicaDivergence",
          "NLPSequenceRatio"}


# --- programs --------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self, inputs=8, outputs=5, hidden=24, activation=nn.ReLU):
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.act = activation()
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, outputs)

    def forward(self, x):
        return self.fc3(self.act(self.fc2(self.act(self.fc1(x)))))


class Normed(nn.Module):
    """Dropout and batch norm; noisy: dropout that ignores the mode."""

    def __init__(self, noisy=False):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 24), nn.Linear(24, 5)
        self.norm, self.drop = nn.BatchNorm1d(24), nn.Dropout(0.2)
        self.noisy = noisy

    def forward(self, x):
        x = self.drop(torch.relu(self.norm(self.fc1(x))))
        return self.fc2(F.dropout(x, 0.3) if self.noisy else x)


def sgd(model, rate=0.05, **options):
    return torch.optim.SGD(model.parameters(), rate, **options)


def adam(model, **options):
    return torch.optim.Adam(model.parameters(), **{"lr": 3e-3, **options})


class Classes:
    """Batches of a problem that can be learned."""

    def __init__(self, count=32, seed=0):
        self.random = torch.Generator().manual_seed(seed)
        self.weight = torch.randn(8, 5, generator=self.random)
        self.count = count

    def __call__(self, step):
        x = torch.randn(self.count, 8, generator=self.random)
        return x, (x @ self.weight).argmax(1)


def numbers(step):
    x = torch.randn(32, 8)
    return x, x.sum(1, keepdim=True)


def fit(model, optimizer, batch=None, loss_of=F.cross_entropy, steps=60, at=None, zero=True):
    """Trains as programs do; at: is called before each step."""
    batch = batch or Classes()
    watch = sonde.watch(model, optimizer, on_finding=None)
    for step in range(steps):
        if at is not None:
            at(step, model)
        x, y = batch(step)
        if zero:
            optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
    watch.close()
    return watch


def evaluate(model, batch, loss_of=F.cross_entropy):
    model.eval()
    with torch.no_grad():
        loss_of(model(batch[0]), batch[1])
    model.train()


# --- healthy ---------------------------------------------------------------------------


def classifier():
    model = Net()
    return fit(model, sgd(model), steps=160)


def tanh_classifier():
    model = Net(activation=nn.Tanh)
    return fit(model, adam(model), steps=100)


def regression():
    model = Net(outputs=1)
    return fit(model, sgd(model, 0.02), numbers, F.mse_loss, steps=160)


def evaluated():
    """Rounds of training and evaluation, the same batch evaluated twice."""
    model, test = Normed(), Classes(seed=0)
    held = [test(0) for _ in range(2)]

    def at(step, model):
        if step % 10 == 9:
            for batch in (*held, held[0]):
                evaluate(model, batch)
    return fit(model, adam(model), at=at, steps=120)


def fine_tuning():
    model = Net()
    model.fc1.requires_grad_(False)
    return fit(model, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.05),
               steps=60)


# --- sick ------------------------------------------------------------------------------


def one_class_of_many():
    classes = Classes()

    def batch(step):
        x, y = classes(step)
        return x, torch.where(torch.arange(32) < 31, torch.zeros_like(y), y)
    model = Net()
    return fit(model, sgd(model), batch, steps=160)


def half_without_a_scaler():
    model, classes = Net(), Classes()
    optimizer = sgd(model)
    watch = sonde.watch(model, optimizer, on_finding=None)
    for step in range(40):
        x, y = classes(step)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    watch.close()
    return watch


def language(shift):
    """A recurrent model of tokens that count up, with labels so many places ahead."""
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.gru = nn.Embedding(9, 16), nn.GRU(16, 16, batch_first=True)
            self.out = nn.Linear(16, 9)

        def forward(self, x):
            return self.out(self.gru(self.embed(x))[0])

    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    watch = sonde.watch(model, optimizer, on_finding=None)
    for _ in range(60):
        rows = (torch.randint(9, (16, 1)) + torch.arange(9) * torch.randint(1, 3, (16, 1))) % 9
        optimizer.zero_grad()
        x, y = rows[:, :8], rows[:, shift:shift + 8]
        F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        optimizer.step()
    watch.close()
    return watch


def copied_tokens():
    return language(0)


def next_tokens():
    return language(1)


def signs_for_probabilities():
    return binary(-1.0)


def probabilities():
    return binary(0.0)


def binary(least):
    """Binary targets of `least` and 1."""
    model, classes = Net(outputs=1), Classes()
    optimizer = sgd(model)
    watch = sonde.watch(model, optimizer, on_finding=None)
    for step in range(40):
        x, y = classes(step)
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(x)[:, 0], (y > 2) * (1 - least) + least).backward()
        optimizer.step()
    watch.close()
    return watch


def dead_units():
    model = Net()
    nn.init.constant_(model.fc2.bias, -50)
    return fit(model, sgd(model))


def same_batch():
    model, classes = Net(), Classes()
    batches = [classes(step) for step in range(20)]
    return fit(model, sgd(model), lambda step: batches[min(step, 19)])


def noisy_evaluation():
    model, batch = Normed(noisy=True), Classes()(0)

    def at(step, model):
        if step % 10 == 9:
            evaluate(model, batch)
            evaluate(model, batch)
    return fit(model, adam(model), at=at)


def huge_weight():
    def at(step, model):
        if step == 30:
            model.fc1.weight.data[1, 1] = 1e37
    model = Net()
    return fit(model, sgd(model), at=at)


def left_out():
    model = Net()
    return fit(model, torch.optim.SGD([*model.fc2.parameters(), *model.fc3.parameters()], 0.05))


def scaled_batch():
    classes = Classes()

    def batch(step):
        x, y = classes(step)
        return (x * 1e5 if step == 40 else x), y
    model = Net()
    return fit(model, sgd(model, 1e-3), batch)


def raw_pixels():
    classes = Classes()

    def batch(step):
        x, y = classes(step)
        return (x * 40 + 128).clamp(0, 255), y
    model = Net()
    return fit(model, sgd(model, 1e-4), batch)


def random_labels():
    model = Net()
    return fit(model, sgd(model), lambda step: (torch.randn(32, 8), torch.randint(5, (32,))),
               steps=200)


def pairs():
    def batch(step):
        x, y = numbers(step)
        return x, y.squeeze(1)
    model = Net(outputs=1)
    return fit(model, sgd(model, 0.02), batch, lambda p, y: ((p - y) ** 2).mean())


def ascent():
    model = Net()
    return fit(model, sgd(model, 0.002, maximize=True), steps=260)


def negated():
    model = Net(outputs=1)
    return fit(model, sgd(model, 1e-3), numbers, lambda p, y: -F.mse_loss(p, y), steps=100)


def other_weights():
    def at(step, model):
        if step == 100:
            for layer in (model.fc1, model.fc2, model.fc3):
                nn.init.normal_(layer.weight, std=1.0)
    model = Net()
    return fit(model, sgd(model), at=at, steps=160)


def uncleared():
    model = Net()
    return fit(model, sgd(model, 0.005), zero=False)


def logarithm():
    model = Net()
    return fit(model, sgd(model), loss_of=lambda p, y: -torch.log(p[range(32), y]).mean())


def swapped_betas():
    model = Net()
    return fit(model, adam(model, betas=(0.999, 0.9)))


def overfitted():
    data = Classes(48)(0)
    held = Classes(200, seed=0)
    held(0)
    test = held(0)

    def batch(step):
        i = torch.randperm(48)[:24]
        return data[0][i], data[1][i]

    def at(step, model):
        if step % 10 == 9:
            evaluate(model, test)
    model = Net(hidden=64)
    return fit(model, adam(model, lr=1e-2), batch, at=at, steps=300)


def large_start():
    model = Net()
    for layer in (model.fc1, model.fc2, model.fc3):
        nn.init.normal_(layer.weight, std=20.0)
    return fit(model, sgd(model, 1e-6))


def saturated():
    model = Net(activation=nn.Tanh)
    nn.init.normal_(model.fc1.weight, std=30.0)
    nn.init.normal_(model.fc2.weight, std=30.0)
    return fit(model, sgd(model, 1e-4))


def softmax_twice():
    model = Net()
    return fit(model, sgd(model), loss_of=lambda p, y: F.cross_entropy(F.softmax(p, 1), y))


def cleared_before_the_step():
    model = Net()
    optimizer, classes = sgd(model), Classes()
    watch = sonde.watch(model, optimizer, on_finding=None)
    for step in range(40):
        x, y = classes(step)
        F.cross_entropy(model(x), y).backward()
        optimizer.zero_grad()
        optimizer.step()
    watch.close()
    return watch


def equal_units():
    model = Net()
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.1)
    return fit(model, sgd(model))


def left_in_evaluation():
    model = Normed()
    model.eval()
    return fit(model, adam(model))


def input_of_zeros():
    model, classes = Net(), Classes()
    return fit(model, sgd(model), lambda step: (torch.zeros(32, 8), classes(step)[1]))


def softmax_over_samples():
    model = nn.Sequential(nn.Linear(8, 24), nn.Softmax(0), nn.Linear(24, 5))
    return fit(model, sgd(model))


def decayed_by_hand():
    def at(step, model):
        with torch.no_grad():
            model.fc1.weight.mul_(0.99)
            model.fc1.bias.mul_(0.99)
    model = Net()
    model.fc1.requires_grad_(False)
    return fit(model, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.05),
               at=at)


def flipped_bit():
    def at(step, model):
        if step == 60:
            model.fc2.weight.data[3, 3] += 64.0
    model = Net()
    return fit(model, sgd(model), at=at, steps=120)


def deep_sigmoid():
    layers = [nn.Linear(8, 16)]
    for _ in range(10):
        layers += [nn.Sigmoid(), nn.Linear(16, 16)]
    model = nn.Sequential(*layers, nn.Linear(16, 5))
    return fit(model, sgd(model))


def rounded_steps():
    class Rounds(torch.optim.Optimizer):
        """Its weights hold what bfloat16 holds."""

        def step(self, closure=None):
            with torch.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        p.copy_((p - group["lr"] * p.grad).bfloat16())

    model = Net()
    return fit(model, Rounds(model.parameters(), {"lr": 0.1}), steps=40)


def dropped_result():
    class Drops(Net):
        def forward(self, x):
            x = self.fc1(x)
            self.act(x)
            return self.fc3(self.act(self.fc2(x)))

    model = Drops()
    return fit(model, sgd(model))


def too_fast():
    model = Net()
    return fit(model, sgd(model, 50.0), steps=40)


CASES = {
    "BatchMixing": (softmax_over_samples, classifier),
    "ClassImbalance": (one_class_of_many, classifier),
    "ConstantData": (input_of_zeros, classifier),
    "DeadRelu": (dead_units, classifier),
    "DtypeMismatch": (half_without_a_scaler, classifier),
    "DuplicateBatch": (same_batch, classifier),
    "EvalNondeterminism": (noisy_evaluation, evaluated),
    "ExplodingTensor": (huge_weight, classifier),
    "FrozenParameter": (left_out, classifier),
    "GradientSpike": (scaled_batch, classifier),
    "InputRange": (raw_pixels, classifier),
    "LabelNoise": (random_labels, classifier),
    "LossBroadcast": (pairs, regression),
    "LossNotDecreasing": (ascent, classifier),
    "LossSign": (negated, regression),
    "LossSpike": (other_weights, classifier),
    "MissingZeroGrad": (uncleared, classifier),
    "ModelStructure": (dropped_result, classifier),
    "NonFinite": (logarithm, classifier),
    "OptimizerState": (swapped_betas, tanh_classifier),
    "Overfit": (overfitted, evaluated),
    "Overtraining": (overfitted, evaluated),
    "PoorWeightInitialization": (large_start, classifier),
    "RoundedWeights": (rounded_steps, classifier),
    "SaturatedActivation": (saturated, tanh_classifier),
    "SoftmaxMisuse": (softmax_twice, classifier),
    "StepOrder": (cleared_before_the_step, classifier),
    "SymmetricUnits": (equal_units, classifier),
    "TargetLeak": (copied_tokens, next_tokens),
    "TargetMismatch": (signs_for_probabilities, probabilities),
    "TrainEvalMode": (left_in_evaluation, evaluated),
    "UnfrozenParameter": (decayed_by_hand, fine_tuning),
    "UpdateSpike": (flipped_bit, classifier),
    "VanishingGradient": (deep_sigmoid, classifier),
    "WeightJump": (other_weights, classifier),
    "WeightUpdateRatio": (too_fast, classifier),
}
made = {}


def run(function):
    if function not in made:
        torch.manual_seed(0)
        made[function] = function()
    return made[function]


@program
def each_rule():
    for rule, (sick, healthy) in CASES.items():
        watch = run(sick)
        check(f"{rule} fires in {sick.__name__}: {watch.checked[rule]}; "
              f"{sorted({f.rule for f in watch.findings})}",
              any(f.rule == rule for f in watch.findings))
        watch = run(healthy)
        check(f"{rule} is silent in {healthy.__name__}: "
              f"{[f.message for f in watch.findings if f.rule == rule]}",
              not any(f.rule == rule for f in watch.findings))
        check(f"{rule} has data in {healthy.__name__}: {watch.checked[rule]}",
              watch.checked[rule] == "")


@program
def backward_after_the_step():
    """No gradient is there when the optimizer steps, and no loss is seen at a step."""
    model = Net()
    optimizer, classes = sgd(model), Classes()
    watch = sonde.watch(model, optimizer, on_finding=None)
    for step in range(60):
        x, y = classes(step)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        optimizer.step()
        loss.backward()
    watch.close()
    check(f"{[f.message for f in watch.findings]}",
          any(f.rule == "FrozenParameter" and "without a gradient" in f.message
              for f in watch.findings))


@program
def nan_between_layers():
    """The layer that shows it first makes NaN only of NaN: the message says where to look."""
    class Between(Net):
        calls = 0

        def forward(self, x):
            x = self.act(self.fc1(x))
            self.calls += 1
            if self.calls == 20:
                x = x.clone()
                x[3, 7] = float("nan")
            return self.fc3(self.act(self.fc2(x)))
    model = Between()
    watch = fit(model, sgd(model), steps=30)
    found = [f for f in watch.findings if not f.because_of]
    check(f"{[(f.tensor, f.message) for f in found]}",
          [f.tensor for f in found] == ["fc2_input_0"] and
          "NaN only of NaN, and '" in found[0].message)


@program
def gradients_that_go_later():
    """They stay 0 while the loss falls, and weight decay moves the weights."""
    model, at_step = Net(), [0]

    def at(step, model):
        at_step[0] = step
    for parameter in model.fc1.parameters():
        parameter.register_hook(lambda g: g * 0 if at_step[0] >= 40 else g)
    watch = fit(model, sgd(model, weight_decay=1e-3), at=at, steps=240)
    check(f"{[(f.rule, f.severity, f.message) for f in watch.findings]}",
          [(f.rule, f.tensor, f.severity) for f in watch.findings if f.severity != "note"] ==
          [("VanishingGradient", "gradient/fc1.weight", "warning")])


@program
def parameters_left_out_are_one_cause():
    findings = [f for f in run(left_out).findings if f.rule == "FrozenParameter"]
    check(f"{[(f.tensor, f.because_of) for f in findings]}",
          len(findings) == 2 and sum(not f.because_of for f in findings) == 1)


@program
def healthy_runs_have_no_findings():
    for function in dict.fromkeys(healthy for _, healthy in CASES.values()):
        watch = run(function)
        check(f"{function.__name__}: {[(f.rule, f.message) for f in watch.findings]}",
              watch.verdict == "nothing found")


@program
def the_set_is_exact():
    """Rules that cannot fire by the three lines never count among those that checked."""
    every = set(run(classifier).checked)
    check(f"each default rule has a case: {sorted(every ^ set(CASES) ^ CANNOT)}",
          every == set(CASES) | CANNOT)
    for function, watch in made.items():
        counted = {rule for rule in CANNOT if watch.checked[rule] == ""}
        check(f"{function.__name__}: {counted} did not check", not counted)
        word = watch._core.verdict()[1] if watch.verdict == "nothing found" else None
        count = sum(lacked == "" for lacked in watch.checked.values())
        check(f"{function.__name__}: {count} in '{word}'",
              word is None or f"by {count} rules" in word)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
