"""Everyday mistakes in a small classifier with a loader, watched by the three lines: each is found,
with the line that is to be changed, and the same program without the mistake is healthy.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import os
import sys
import warnings

from harness import check, main, program

sys.path.insert(0, os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python"))
try:
    import torch
    from torch import nn
    from torch.nn import functional as F
    from torch.utils.data import DataLoader, TensorDataset
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)

warnings.filterwarnings("ignore")
EPOCHS, SAMPLES, CLASSES = 6, 640, 4


def line(mark):
    """The number of the line of this file that has a mark."""
    with open(__file__, encoding="utf-8") as file:
        return next(i for i, text in enumerate(file, 1) if text.rstrip().endswith(f"# LINE {mark}"))


class Net(nn.Module):
    def __init__(self, outputs=CLASSES, drop=0.2):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(20, 48), nn.Linear(48, 32)
        self.norm, self.drop = nn.BatchNorm1d(48), nn.Dropout(drop)
        self.out = nn.Linear(32, outputs)

    def forward(self, x):
        h = self.drop(F.relu(self.norm(self.fc1(x))))  # LINE first
        return self.out(F.relu(self.fc2(h)))  # LINE second


def clusters(classes=CLASSES, seed=3):
    """Points around a center for each class, which overlap."""
    generator = torch.Generator().manual_seed(seed)
    centers = 0.5 * torch.randn(CLASSES, 20, generator=generator)
    y = torch.randint(classes, (SAMPLES,), generator=generator)
    return centers[y] + torch.randn(SAMPLES, 20, generator=generator), y


def loader_of(x, y, shuffle=True):
    return DataLoader(TensorDataset(x, y), batch_size=32, shuffle=shuffle)


def start(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    return optimizer, sonde.watch(net, optimizer, on_finding=None)


def train(net, loader, loss_of=F.cross_entropy, between=None):
    """The watch of an ordinary training program."""
    optimizer, watch = start(net)
    for epoch in range(EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_of(net(x), y)
            loss.backward()
            optimizer.step()
        if between is not None:
            between(net)
    watch.close()
    return watch


def evaluate(net, loader, back=True):
    """As it is done; back: the model is in training mode afterwards."""
    net.eval()
    with torch.no_grad():
        for x, y in loader:
            net(x).argmax(1).eq(y).sum()
    net.train(back)


def place_of(finding):
    return f"{finding.place}" if getattr(finding, "place", None) else ""


def finds(watch, rule, mark, severity="error"):
    """The mistake is found, and at its line."""
    shown = [f"{f.rule} {f.severity} {place_of(f)} {f.message}" for f in watch.findings]
    check(f"no fault: {watch.faults}", watch.faults == 0)
    found = [f for f in watch.findings if f.rule == rule and f.severity == severity]
    if mark is None:
        check(f"{rule}: {shown}", bool(found))
    else:
        check(f"{rule} at line {line(mark)}: {shown}",
              any(place_of(f).endswith(f":{line(mark)}") for f in found))
    return found


def healthy(watch):
    shown = [f"{f.rule} {f.severity} {place_of(f)} {f.message}" for f in watch.findings]
    check(f"nothing found: {shown}", not watch.findings and watch.verdict == "nothing found")
    check(f"no fault: {watch.faults}", watch.faults == 0)


@program
def as_it_should_be():
    torch.manual_seed(0)
    test = loader_of(*clusters(seed=4), shuffle=False)
    healthy(train(Net(), loader_of(*clusters()), between=lambda net: evaluate(net, test)))


@program
def softmax_twice():
    torch.manual_seed(0)
    finds(train(Net(), loader_of(*clusters()),
                lambda out, y: F.cross_entropy(F.softmax(out, 1), y)),  # LINE twice
          "SoftmaxMisuse", "twice")
    torch.manual_seed(0)
    healthy(train(Net(), loader_of(*clusters()),
                  lambda out, y: F.nll_loss(F.log_softmax(out, 1), y)))


@program
def softmax_over_the_batch():
    torch.manual_seed(0)
    finds(train(Net(), loader_of(*clusters()),
                lambda out, y: F.nll_loss(F.log_softmax(out, 0), y)),  # LINE over
          "SoftmaxMisuse", "over")


@program
def rows_against_columns():
    x, _ = clusters()
    y = x[:, 0] + 0.5 * x[:, 1] ** 2
    torch.manual_seed(0)
    finds(train(Net(1), loader_of(x, y), lambda out, y: F.mse_loss(out, y)),  # LINE columns
          "LossBroadcast", "columns")
    torch.manual_seed(0)
    healthy(train(Net(1), loader_of(x, y), lambda out, y: F.mse_loss(out[:, 0], y)))


@program
def targets_of_another_kind():
    x, y = clusters()
    signs = (y[:, None] < 2).float() * 2 - 1
    binary = F.binary_cross_entropy_with_logits
    torch.manual_seed(0)
    finds(train(Net(1), loader_of(x, signs), lambda out, y: binary(out, y)),  # LINE signs
          "TargetMismatch", "signs")
    torch.manual_seed(0)
    healthy(train(Net(1), loader_of(x, (signs + 1) / 2), lambda out, y: binary(out, y)))
    torch.manual_seed(0)
    finds(train(Net(), loader_of(x, y),
                lambda out, y: F.mse_loss(out, y[:, None].float())),  # LINE indices
          "TargetMismatch", "indices")
    torch.manual_seed(0)
    healthy(train(Net(), loader_of(x, y),
                  lambda out, y: F.mse_loss(out, F.one_hot(y, CLASSES).float())))
    torch.manual_seed(0)
    finds(train(Net(1), loader_of(x, torch.zeros_like(y)),
                lambda out, y: F.cross_entropy(out, y)),  # LINE single
          "SoftmaxMisuse", "single")


@program
def pixels_of_classes():
    class Pixels(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, CLASSES, 1)

        def forward(self, x):
            return self.last(F.relu(self.first(x)))

    x = torch.randn(SAMPLES, 1, 6, 5, generator=torch.Generator().manual_seed(1))
    y = (x[:, 0] * 2).clamp(-1.9, 1.9).floor().long() + 2
    torch.manual_seed(0)
    finds(train(Pixels(), loader_of(x, y), lambda out, y: F.cross_entropy(
        out.reshape(-1, CLASSES),  # LINE pixels
        y.reshape(-1))), "TargetMismatch", "pixels")
    torch.manual_seed(0)
    healthy(train(Pixels(), loader_of(x, y), lambda out, y: F.cross_entropy(
        out.permute(0, 2, 3, 1).reshape(-1, CLASSES), y.reshape(-1))))


@program
def dead_units():
    torch.manual_seed(0)
    net = Net()
    with torch.no_grad():
        net.fc2.bias.fill_(-50.0)
    watch = train(net, loader_of(*clusters()))
    finds(watch, "DeadRelu", "second")


class Tokens(nn.Module):
    """A language model of one layer."""
    def __init__(self, causal=True):
        super().__init__()
        self.embed, self.place = nn.Embedding(11, 24), nn.Embedding(12, 24)
        self.project, self.out = nn.Linear(24, 72), nn.Linear(24, 11)
        self.causal = causal

    def forward(self, x):
        h = self.embed(x) + self.place(torch.arange(x.shape[1]))
        q, k, v = self.project(h)[:, None].chunk(3, -1)
        h = h + F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)[:, 0]  # LINE looks
        return self.out(h)


@program
def answers_in_the_input():
    def compare(out, y):
        return F.cross_entropy(out.flatten(0, 1), y.flatten())  # LINE copies

    first = torch.randint(11, (SAMPLES, 2), generator=torch.Generator().manual_seed(2))
    x = (first[:, :1] + torch.arange(13) * (1 + first[:, 1:] % 3)) % 11
    for causal, y, rule, mark in ((True, x[:, :-1], "TargetLeak", "copies"),
                                  (False, x[:, 1:], "TargetLeak", "looks")):
        torch.manual_seed(0)
        finds(train(Tokens(causal), loader_of(x[:, :-1], y), compare), rule, mark)
    torch.manual_seed(0)
    healthy(train(Tokens(), loader_of(x[:, :-1], x[:, 1:]), compare))

    def masked(net):
        """A masked language model."""
        optimizer, watch = start(net)
        for _ in range(EPOCHS):
            for x in x_loader:
                hidden = torch.rand(x.shape) < 0.25
                loss = compare(net(x.masked_fill(hidden, 0)), x.masked_fill(~hidden, -100))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        watch.close()
        return watch

    x_loader = DataLoader(x[:, :-1], batch_size=32, shuffle=True)
    torch.manual_seed(0)
    healthy(masked(Tokens(False)))


@program
def layers_in_a_list():
    class Listed(nn.Module):
        def __init__(self, kind):
            super().__init__()
            self.layers = kind([nn.Linear(20, 48), nn.Linear(48, 32)])
            self.out = nn.Linear(32, CLASSES)

        def forward(self, x):
            for layer in self.layers:
                x = F.relu(layer(x))  # LINE listed
            return self.out(x)

    torch.manual_seed(0)
    finds(train(Listed(list), loader_of(*clusters())), "FrozenParameter", "listed")
    torch.manual_seed(0)
    healthy(train(Listed(nn.ModuleList), loader_of(*clusters())))


@program
def evaluation_left_on():
    torch.manual_seed(0)
    test = loader_of(*clusters(seed=4), shuffle=False)
    optimizer, watch = start(net := Net())
    for epoch in range(EPOCHS):
        for x, y in loader_of(*clusters()):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)  # LINE left
            loss.backward()
            optimizer.step()
        evaluate(net, test, back=False)
    watch.close()
    finds(watch, "TrainEvalMode", "left")
    places = {place_of(f) for f in watch.findings if "is called in evaluation" in f.message}
    check(f"the evaluation itself is no such place: {places}",
          all(place.endswith(f":{line('left')}") for place in places))


def steps_in_order(order):
    """A program whose steps do things in that order. Z: clear, B: backward, C: clip, S: step, H:
    the scheduler."""
    torch.manual_seed(0)
    optimizer, watch = start(net := Net())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 60, 0.5)
    for epoch in range(EPOCHS):
        for x, y in loader_of(*clusters()):
            loss = F.cross_entropy(net(x), y)
            for what in order:
                if what == "B":
                    loss.backward()  # LINE backward
                elif what == "Z":
                    optimizer.zero_grad()  # LINE clear
                elif what == "C":
                    nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # LINE clip
                elif what == "S":
                    optimizer.step()  # LINE step
                else:
                    scheduler.step()  # LINE scheduler
    watch.close()
    return watch


@program
def order_of_a_step():
    healthy(steps_in_order("ZBCSH"))
    healthy(steps_in_order("BCSHZ"))
    finds(steps_in_order("BSH"), "MissingZeroGrad", "step")
    finds(steps_in_order("ZSH"), "StepOrder", "step")
    finds(steps_in_order("BZSH"), "StepOrder", "clear")
    finds(steps_in_order("ZBSC"), "StepOrder", "clip")
    finds(steps_in_order("ZBHS"), "StepOrder", "scheduler", "warning")


@program
def batches_that_add_up():
    torch.manual_seed(0)
    optimizer = torch.optim.SGD((net := Net()).parameters(), lr=0.05)
    watch = sonde.watch(net, optimizer, on_finding=None)
    for i, (x, y) in enumerate(batch for _ in range(EPOCHS) for batch in loader_of(*clusters())):
        F.cross_entropy(net(x), y).backward()  # LINE sums
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    watch.close()
    finds(watch, "StepOrder", "sums", "warning")
    torch.manual_seed(0)
    optimizer = torch.optim.SGD((net := Net()).parameters(), lr=0.05, momentum=0.9)
    watch = sonde.watch(net, optimizer, on_finding=None)
    for i, (x, y) in enumerate(batch for _ in range(EPOCHS) for batch in loader_of(*clusters())):
        (F.cross_entropy(net(x), y) / 4).backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    watch.close()
    healthy(watch)


@program
def half_precision():
    def half(dtype, scaled):
        torch.manual_seed(0)
        optimizer, watch = start(net := Net())
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=scaled)
        for _ in range(EPOCHS):
            for x, y in loader_of(*clusters()):
                optimizer.zero_grad()
                with torch.autocast("cpu", dtype=dtype):
                    loss = F.cross_entropy(net(x), y)
                scaler.scale(loss).backward()  # LINE unscaled
                scaler.step(optimizer)
                scaler.update()
        watch.close()
        return watch

    finds(half(torch.float16, False), "DtypeMismatch", "unscaled", "warning")
    healthy(half(torch.float16, True))
    healthy(half(torch.bfloat16, False))


@program
def all_data_at_each_step():
    torch.manual_seed(0)
    x, y = clusters()
    optimizer, watch = start(net := Net())
    for _ in range(100):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    watch.close()
    healthy(watch)


@program
def the_first_batch_alone():
    for shuffle in (False, True):
        torch.manual_seed(0)
        loader = loader_of(*clusters(), shuffle=shuffle)
        optimizer, watch = start(net := Net())
        for _ in range(60):
            x, y = next(iter(loader))  # LINE anew
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
        watch.close()
        if shuffle:
            healthy(watch)
        else:
            finds(watch, "DuplicateBatch", "anew")


@program
def one_class():
    torch.manual_seed(0)
    finds(train(Net(), loader_of(*clusters(classes=1)),
                lambda out, y: F.cross_entropy(out, y)),  # LINE one
          "ClassImbalance", "one", "warning")


@program
def pairs_of_features():
    """The right one of a row's scores is the first, as a contrastive loss has it."""
    def contrast(features, _):
        keys = features[torch.randperm(len(features))].detach()
        scores = torch.cat([(features * (features.detach() + 0.1)).sum(1, keepdim=True),
                            features @ keys.T], 1)
        return F.cross_entropy(scores / 4, torch.zeros(len(features), dtype=torch.long))

    torch.manual_seed(0)
    watch = train(Net(), loader_of(*clusters()), contrast)
    check(f"labels that are places: {[f.message for f in watch.findings]}",
          not any(f.rule == "ClassImbalance" for f in watch.findings))


@program
def dropout_left_on():
    def forgets(net, loader):
        with torch.no_grad():
            for x, y in loader:
                net(x).argmax(1).eq(y).sum()  # LINE dropped

    torch.manual_seed(0)
    test = loader_of(*clusters(seed=4), shuffle=False)
    finds(train(Net(), loader_of(*clusters()), between=lambda net: forgets(net, test)),
          "TrainEvalMode", "dropped")


@program
def dropout_as_a_function():
    class Functional(Net):
        def __init__(self, knows):
            super().__init__()
            self.knows = knows

        def forward(self, x):
            h = F.relu(self.norm(self.fc1(x)))
            if self.knows:
                h = F.dropout(h, 0.2, training=self.training)
            else:
                h = F.dropout(h, 0.2)  # LINE function
            return self.out(F.relu(self.fc2(h)))

    test = loader_of(*clusters(seed=4), shuffle=False)
    torch.manual_seed(0)
    finds(train(Functional(False), loader_of(*clusters()),
                between=lambda net: evaluate(net, test)), "EvalNondeterminism", "function")
    torch.manual_seed(0)
    healthy(train(Functional(True), loader_of(*clusters()),
                  between=lambda net: evaluate(net, test)))


main()
