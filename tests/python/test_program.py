"""The program of a step, as sonde.watch describes it: operations, lines, events, losses."""
import json
import os
import sys
import warnings
import weakref

from harness import check, folder, main, program
from program_text import texts_of

sys.path.insert(0, os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python"))
try:
    import torch
    from torch import nn
    from torch.nn import functional as F
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)

warnings.filterwarnings("ignore")


class Net(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.fc1 = nn.Linear(5, 8)
        self.drop = nn.Dropout(0.5)
        self.fc2 = nn.Linear(8, classes)

    def forward(self, x):
        h = F.relu(self.fc1(x))  # LINE relu
        return self.fc2(self.drop(h))  # LINE fc2


def line(mark):
    """The number of the line of this file that has a mark."""
    with open(__file__, encoding="utf-8") as file:
        return next(i for i, text in enumerate(file, 1) if text.rstrip().endswith(f"# LINE {mark}"))


def make(model, optimizer, **options):
    watch = sonde.watch(model, optimizer, on_finding=None, **options)
    return watch, texts_of(watch)


def batch(n=16, classes=3):
    return torch.randn(n, 5), torch.arange(n) % classes


def of_train(found, number=-1):
    return [text for mode, text in found if mode == "train"][number]


@program
def a_classifier():
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    watch, found = make(net, optimizer)
    x, y = batch()
    for _ in range(4):
        optimizer.zero_grad()  # LINE zero
        out = net(x)  # LINE call
        loss = F.cross_entropy(out, y)  # LINE loss
        loss.backward()  # LINE backward
        optimizer.step()  # LINE step
    check(f"two steps are recorded, and the third with the same batch: {len(found)}",
          len(found) == 3)
    text = of_train(found)
    check(f"operations: {text.ops()}",
          text.ops() == ["linear", "relu", "dropout", "linear", "cross_entropy"])
    check("it is complete", text.complete and text.gap == "" and text.producer == "pytorch")
    linear, relu = text.node("linear"), text.node("relu")
    check(f"the line within a module's is that of the user's call: {text.line(linear)}",
          text.line(linear) == line("relu") and text.line(relu) == line("relu"))
    check("operands of a layer", [text.tensor(i) for i in linear["inputs"]] ==
          ["input", "fc1.weight", "fc1.bias"])
    check("its result has the name under which it is observed",
          text.tensor(linear["outputs"][0]) == "fc1_output_0")
    check("its module", text.modules[linear["module"]]["name"] == "fc1")
    check("relu is the model's own", text.modules[relu["module"]].get("name", "") == "")
    drop = text.node("dropout")["attributes"]
    check(f"attributes of dropout: {drop}", drop["p"] == 0.5 and drop["training"] is True)
    check(f"events: {text.kinds()}", text.kinds() == ["zero_grad", "forward", "loss", "backward",
                                                       "step"])
    check("their lines", [text.line(event) for event in text.events] ==
          [line(mark) for mark in ("zero", "call", "loss", "backward", "step")])
    forward = text.event("forward")
    check("the forward pass", forward["training"] and forward["grad"] and forward["module"] == 0)
    loss = text.losses[0]
    check(f"the loss: {loss}", text.nodes[loss["node"]]["op"] == "cross_entropy" and
          text.tensor(loss["predictions"]) == "fc2_output_0" and
          text.values[loss["targets"]]["dtype"] == "int64" and
          text.values[loss["targets"]]["kind"] == "input" and
          text.events[loss["backward"]]["event"] == "backward")
    check("its tensor", text.tensor(loss["value"]) == "loss")
    check("all parameters are used, reached and held", all(
        row["used"] and row["reached"] and row["optimizer"] == 0 for row in text.parameters))
    check(f"the optimizer: {text.optimizers}", text.optimizers[0]["kind"] == "SGD" and
          text.optimizers[0]["attributes"]["lr"] == 0.1 and
          text.optimizers[0]["attributes"]["momentum"] == 0.9)
    check(f"facts: {text.facts}", text.facts["labels_min"] == 0 and
          text.facts["labels_max"] == 2 and text.facts["labels_classes"] == 3 and
          text.facts["labels_dtype"] == "int64" and text.facts["accumulation"] == 1 and
          text.facts["input_dtype"] == "float32" and abs(text.facts["input_std"] - 1) < 0.4)
    check("modules' attributes and modes", text.module("drop")["attributes"]["p"] == 0.5 and
          text.module("drop")["training"] and text.module("drop")["called"] and
          text.module("drop")["registered"])
    watch.close()
    check("no fault", watch.faults == 0)


def train(net, loss_of, steps=2, optimizer=None, before=None, **options):
    """The programs of some steps."""
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.01)
    watch, found = make(net, optimizer, **options)
    for _ in range(steps):
        loss = loss_of(net)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    watch.close()
    check("no fault", watch.faults == 0)
    return found


def shapes(text, loss):
    return text.values[loss["predictions"]]["shape"], text.values[loss["targets"]]["shape"]


@program
def losses_of_each_kind():
    x, y = batch()
    target = torch.randn(16, 3)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    weighted = nn.CrossEntropyLoss(weight=torch.ones(3))
    kinds = {
        "cross_entropy": lambda net: criterion(net(x), y),
        "mse_loss": lambda net: F.mse_loss(net(x), target),
        "nll_loss": lambda net: F.nll_loss(F.log_softmax(net(x), 1), y),
        "smooth_l1_loss": lambda net: nn.SmoothL1Loss()(net(x), target),
        "binary_cross_entropy_with_logits":
            lambda net: F.binary_cross_entropy_with_logits(net(x), torch.sigmoid(target)),
        "binary_cross_entropy":
            lambda net: F.binary_cross_entropy(torch.sigmoid(net(x)), torch.sigmoid(target)),
        "kl_div": lambda net: F.kl_div(net(x).log_softmax(1), target.softmax(1)),
    }
    for op, loss_of in kinds.items():
        text = of_train(train(Net(), loss_of))
        check(f"{op}: one loss: {text.losses}", len(text.losses) == 1)
        loss = text.losses[0]
        check(f"{op}: its operation", text.nodes[loss["node"]]["op"] == op)
        check(f"{op}: predictions need gradients, targets do not",
              text.values[loss["predictions"]]["requires_grad"] and
              not text.values[loss["targets"]].get("requires_grad"))
        check(f"{op}: the backward pass", text.events[loss["backward"]]["event"] == "backward")
    text = of_train(train(Net(), kinds["cross_entropy"]))
    node = text.node("cross_entropy")
    check(f"attributes: {node['attributes']}", node["attributes"]["label_smoothing"] == 0.1 and
          node["attributes"]["reduction"] == "mean" and node["attributes"]["ignore_index"] == -100)
    module = text.modules[node["module"]]
    check(f"a loss is no module of the model's: {module}", module["kind"] == "CrossEntropyLoss" and
          not module.get("registered"))
    node = of_train(train(Net(), lambda net: weighted(net(x), y))).node("cross_entropy")
    check("weights of classes", node["attributes"]["weight"] is True and node["inputs"][2] >= 0)
    text = of_train(train(Net(), lambda net: F.mse_loss(target, net(x))))
    check("arguments in the other order", text.values[text.losses[0]["predictions"]]["requires_grad"])


@program
def losses_by_hand():
    x, y = batch()
    target = torch.randn(16, 3)
    kinds = {
        "difference": lambda net: ((net(x) - target) ** 2).mean(),
        "other order": lambda net: (target - net(x)).abs().mean(),
        "chosen by class": lambda net: -net(x).log_softmax(1)[torch.arange(16), y].mean(),
        "gathered": lambda net: -net(x).log_softmax(1).gather(1, y[:, None]).mean(),
        "product": lambda net: -(F.one_hot(y, 3) * net(x).log_softmax(1)).sum(1).mean(),
    }
    for what, loss_of in kinds.items():
        text = of_train(train(Net(), loss_of))
        check(f"{what}: one loss: {text.losses}", len(text.losses) == 1)
        loss = text.losses[0]
        check(f"{what}: predictions and targets", text.values[loss["predictions"]]["shape"] ==
              [16, 3] and not text.values[loss["targets"]].get("requires_grad"))
        check(f"{what}: its value is what backward is called on",
              loss["value"] == text.event("backward")["value"] and
              text.tensor(loss["value"]) == "loss")

    class Column(Net):
        def forward(self, x):
            return super().forward(x)[:, :1]

    wide = torch.randn(16)
    text = of_train(train(Column(), lambda net: ((net(x) - wide) ** 2).mean()))  # LINE broadcast
    node = text.node("sub")
    check("shapes show broadcasting", shapes(text, text.losses[0]) == ([16, 1], [16]) and
          text.values[node["outputs"][0]]["shape"] == [16, 16] and
          text.line(node) == line("broadcast"))


@program
def a_sum_of_losses():
    x, y = batch()
    text = of_train(train(Net(), lambda net: F.cross_entropy(net(x), y) + 0.1 *
                          F.mse_loss(net(x), torch.zeros(16, 3))))
    check(f"both terms: {text.losses}", len(text.losses) == 2 and
          all(text.events[loss["backward"]]["event"] == "backward" for loss in text.losses))
    check("the whole has the name", text.tensor(text.event("backward")["value"]) == "loss")
    check("a number among operands", text.node("mul")["attributes"]["scalar"] == 0.1)
    check("what the step makes is a constant", text.values[text.losses[1]["targets"]]["kind"] ==
          "constant" and "zeros" in text.ops())


@program
def words_of_operations():
    x = torch.randn(4, 6)

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 6))
            self.emb = nn.Embedding(5, 6)
            self.norm = nn.LayerNorm(6)
            self.bn = nn.BatchNorm1d(6)
            self.gru = nn.GRU(6, 6, batch_first=True)

        def forward(self, x):
            a = x @ self.weight
            a = a.view(2, 12).reshape(4, 6).flatten(0, 0)
            b = a.t().transpose(0, 1).permute(0, 1)
            b = torch.cat([a, b], dim=1)[:, :6]
            c = 1 - b
            c += 2
            c = torch.clamp(c, min=-3).relu_()
            c = c / 2 + self.emb(torch.tensor([0, 1, 2, 3]))
            c = self.bn(self.norm(c))
            c = self.gru(c[:, None])[0].squeeze(1)
            c = F.scaled_dot_product_attention(c[None], c[None], c[None], is_causal=True)[0]
            c = torch.where(c > 0, c, torch.zeros_like(c)).masked_fill(c > 9, 0)
            return F.softmax(c, dim=-1).pow(2).log().float()

    text = of_train(train(Words(), lambda net: net(x).sum(1).mean()))
    expected = ["matmul", "reshape", "reshape", "reshape", "transpose", "transpose", "transpose",
                "cat", "index", "sub", "add", "clamp", "relu", "div", "tensor", "embedding", "add",
                "layer_norm", "add", "batch_norm", "index", "zeros", "gru", "squeeze", "index", "index", "index",
                "scaled_dot_product_attention", "index", "gt", "zeros", "where", "gt",
                "masked_fill", "softmax", "pow", "log", "sum", "mean"]
    ops = [op for op in text.ops() if op != "tensor"]
    check(f"words: {ops}", ops == [op for op in expected if op != "tensor"])
    check("both dimensions", text.node("transpose", 1)["attributes"] == {"dim0": 0, "dim1": 1} and
          text.node("transpose", 2)["attributes"] == {"dims": [0, 1]} and
          text.node("reshape")["attributes"] == {"shape": [2, 12]})
    sub = text.node("sub")
    check(f"1 - b: {sub}", sub["inputs"][0] == -1 and sub["attributes"]["scalar"] == 1)
    add = next(node for node in text.nodes if node["op"] == "add")
    check("in place", add["attributes"] == {"inplace": True, "scalar": 2} and
          text.node("relu")["attributes"].get("inplace") is True)
    check("the value after a change in place is another",
          text.node("clamp")["inputs"] == add["outputs"] != add["inputs"])
    check("is_causal", text.node("scaled_dot_product_attention")["attributes"]["is_causal"])
    check("dim", text.node("softmax")["attributes"]["dim"] == -1 and
          text.node("cat")["attributes"]["dim"] == 1)
    check("exponent", text.node("pow")["attributes"]["exponent"] == 2)
    check(f"batch_norm: {text.node('batch_norm')}",
          text.node("batch_norm")["attributes"]["training"] is True and
          any(text.values[i].get("kind") == "buffer" for i in text.node("batch_norm")["inputs"]))
    check("layers", text.module("norm")["kind"] == "LayerNorm")
    check("no loss is found where none is", text.losses == [])


@program
def layers_in_a_list():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Linear(5, 5), nn.Linear(5, 5)]
            self.out = nn.Linear(5, 3)
            self.unused = nn.Linear(2, 2)

        def forward(self, x):
            for layer in self.layers:
                x = layer(x).tanh()  # LINE layer
            return self.out(x)

    x, y = batch()
    net = Hidden()
    text = of_train(train(net, lambda net: F.cross_entropy(net(x), y)))
    row = text.module("layers.1")
    check(f"a layer that the model does not know: {row}", row["kind"] == "Linear" and
          row["called"] and not row.get("registered") and text.line(row) == line("layer"))
    weight = text.parameter("layers.1.weight")
    check(f"its parameters: {weight}", weight.get("optimizer", -1) == -1 and weight["used"] and
          weight["reached"] and weight["count"] == 25)
    check("a layer that is not called", not text.module("unused").get("called") and
          not text.parameter("unused.weight").get("used") and
          not text.parameter("unused.weight").get("reached"))


@program
def a_part_that_no_loss_reaches():
    class Cut(Net):
        def forward(self, x):
            return self.fc2(F.relu(self.fc1(x)).detach())

    x, y = batch()
    text = of_train(train(Cut(), lambda net: F.cross_entropy(net(x), y)))
    check("used and not reached", text.parameter("fc1.weight")["used"] and
          not text.parameter("fc1.weight").get("reached") and
          text.parameter("fc2.weight")["reached"])
    check("detach", "detach" in text.ops())


@program
def two_players():
    torch.manual_seed(0)
    maker, critic = nn.Linear(4, 5), nn.Linear(5, 1)
    ones = torch.optim.Adam(maker.parameters()), torch.optim.Adam(critic.parameters())
    watch, found = make({"maker": maker, "critic": critic}, ones)
    for _ in range(3):
        noise, real = torch.randn(8, 4), torch.randn(8, 5)
        ones[1].zero_grad()
        real_loss = F.binary_cross_entropy_with_logits(critic(real), torch.ones(8, 1))
        fake_loss = F.binary_cross_entropy_with_logits(critic(maker(noise).detach()),
                                                       torch.zeros(8, 1))
        (real_loss + fake_loss).backward()
        ones[1].step()
        ones[0].zero_grad()
        F.binary_cross_entropy_with_logits(critic(maker(noise)), torch.ones(8, 1)).backward()
        ones[0].step()
    text = of_train(found)
    check(f"events: {text.kinds()}", text.kinds() == [
        "zero_grad", "forward", "loss", "forward", "forward", "loss", "backward", "step",
        "zero_grad", "forward", "forward", "loss", "backward", "step"])
    check("optimizers", [event["optimizer"] for event in text.events if "optimizer" in event] ==
          [1, 1, 0, 0] and [row["name"] for row in text.optimizers] == ["optimizer", "optimizer_2"])
    check("which holds what", text.parameter("maker.weight")["optimizer"] == 0 and
          text.parameter("critic.weight")["optimizer"] == 1)
    backward = [i for i, event in enumerate(text.events) if event["event"] == "backward"]
    check("which loss is whose", [loss["backward"] for loss in text.losses] ==
          [backward[0], backward[0], backward[1]])
    check("the second loss", text.tensor(text.losses[2]["value"]) == "loss_1")
    watch.close()
    check("no fault", watch.faults == 0)


@program
def accumulation_clipping_and_schedule():
    x, y = batch()
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    watch, found = make(net, optimizer)
    for _ in range(3):
        for _ in range(2):
            (F.cross_entropy(net(x), y) / 2).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # LINE clip
        optimizer.step()
        schedule.step()  # LINE schedule
        optimizer.zero_grad()
    text = of_train(found)
    check(f"events: {text.kinds()}", text.kinds() == [
        "scheduler", "zero_grad", "forward", "loss", "backward", "forward", "loss", "backward",
        "clip", "step"])
    check("attributes", text.event("clip")["attributes"]["max_norm"] == 1.0 and
          text.event("scheduler")["attributes"]["kind"] == "StepLR")
    check("lines", text.line(text.event("clip")) == line("clip") and
          text.line(text.event("scheduler")) == line("schedule"))
    check("accumulation", text.facts["accumulation"] == 2)
    check("the loss is divided", text.node("div")["attributes"]["scalar"] == 2 and
          len(text.losses) == 2)
    watch.close()
    check("no fault", watch.faults == 0)


@program
def a_scaler():
    x, y = batch()
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
    watch, found = make(net, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)  # LINE unscale
        nn.utils.clip_grad_value_(net.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
    text = of_train(found)
    check(f"events: {text.kinds()}", text.kinds() == [
        "zero_grad", "forward", "loss", "backward", "unscale", "clip", "step"])
    check(f"the scale: {text.event('backward')}",
          text.event("backward")["attributes"]["scale"] == 128 and
          text.facts["loss_scale"] == 128)
    check("the loss is the one before scaling", text.tensor(text.losses[0]["value"]) == "loss" and
          text.event("backward")["value"] == text.losses[0]["value"])
    check("autocast", text.event("forward")["autocast"] and
          text.values[text.node("linear")["outputs"][0]]["dtype"] == "bfloat16")
    check("their lines", text.line(text.event("unscale")) == line("unscale") and
          text.event("unscale")["optimizer"] == 0)
    check("clipped by value", text.event("clip")["attributes"]["value"] == 0.5)
    watch.close()
    check("no fault", watch.faults == 0)


@program
def evaluation_and_new_outlines():
    x, y = batch()
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    watch, found = make(net, optimizer)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    for _ in range(6):
        step()
    count = len(found)
    net.eval()
    with torch.no_grad():
        for _ in range(3):
            net(x)  # LINE evaluated
    net.train()
    step()
    check(f"recorded: {[mode for mode, _ in found[count:]]}",
          [mode for mode, _ in found[count:]] == ["eval", "train"])
    evaluated, trained = found[count][1], found[count + 1][1]
    check("evaluation", not evaluated.event("forward").get("training") and
          not evaluated.event("forward").get("grad") and evaluated.mode == "eval" and
          evaluated.node("dropout")["attributes"]["training"] is False)
    check(f"the step after it: {trained.kinds()}", trained.kinds()[:2] ==
          ["evaluation", "zero_grad"])
    check(f"its line: {trained.event('evaluation')}", trained.line(trained.event("evaluation")) == line("evaluated"))
    for _ in range(4):
        step()
    check("nothing more is new", len(found) == count + 2)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    step()
    check(f"an event before a step is seen at once: {len(found) - count}", len(found) == count + 3 and
          found[-1][1].kinds()[0] == "clip")
    for _ in range(3):
        F.cross_entropy(net(x), y).backward()
        step()
    check(f"one more pass in a step is seen at the next: {found[-1][1].kinds()}",
          found[-1][1].kinds().count("backward") == 2)
    watch.close()
    check("no fault", watch.faults == 0)


@program
def recorded():
    """The run has the programs, each at the step at which it begins to hold."""
    x, y = batch()
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    path = folder("recorded")
    watch, found = make(net, optimizer, run=path)
    for i in range(6):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        if i >= 4:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        F.cross_entropy(net.eval()(x), y)
    watch.close()
    check("no fault", watch.faults == 0)
    run = sonde.open(path)
    check(f"texts: {[mode for mode, _ in found]}", [mode for mode, _ in found] ==
          ["train", "train", "train", "train", "eval"])
    steps = run.steps("train", "program/train").tolist()
    check(f"steps, without the second, which is like the first: {steps}", steps == [0, 3, 5])
    for step, (_, text) in zip(steps, found[1:]):
        row = json.loads(bytes(run.value("program/train", step, mode="train")))
        check(f"step {step}: the same nodes", [node["op"] for node in row["nodes"]] == text.ops() and
              [event["event"] for event in row["events"]] == text.kinds())
        check(f"step {step}: values and places", len(row["values"]) == len(text.values) and
              row["files"] == text.files and row["losses"][0]["node"] == text.losses[0]["node"] and
              [node.get("place") for node in row["nodes"]] ==
              [node.get("place") for node in text.nodes])
    check("its role", next(info.role for info in run.tensors() if info.name == "program/train") ==
          "program")
    row = json.loads(bytes(run.value("program/eval", 0, mode="eval")))
    check("evaluation", row["mode"] == "eval" and row["nodes"][-1]["op"] == "cross_entropy")


def steps_of(net, batches, loss_of=F.cross_entropy):
    """The programs of a program that trains on these batches."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    watch, found = make(net, optimizer)
    for x, y in batches:
        optimizer.zero_grad()
        loss_of(net(x), y).backward()
        optimizer.step()
    watch.close()
    check("no fault", watch.faults == 0)
    return [text for mode, text in found if mode == "train"]


@program
def batches_that_repeat():
    x, y = batch()
    found = steps_of(Net(), [(x, y)] * 6)
    facts = found[-1].facts
    check(f"the same batch at every step: {facts}", len(found) == 3 and
          facts["input_repeats"] == 3 and facts["label_repeats"] == 3)
    check("one and two like it say nothing", "input_repeats" not in found[1].facts)
    found = steps_of(Net(), [(torch.randn(16, 5), y) for _ in range(6)])
    facts = found[-1].facts
    check(f"other inputs, the same labels: {facts}", facts["input_repeats"] == 0 and
          facts["label_repeats"] == 3)
    found = steps_of(Net(), [(torch.randn(16, 5), torch.randint(3, (16,))) for _ in range(6)])
    check(f"another batch at every step: {found[-1].facts}", len(found) == 2 and
          found[-1].facts["input_repeats"] == found[-1].facts["label_repeats"] == 0)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.out = nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, x):
        return self.out(self.emb(x))


@program
def operations_before_the_model():
    """What a step computes before it calls the model is a part of it, if the step uses it."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    watch, found = make(net, optimizer)
    for _ in range(4):
        raw, y = batch()
        x = (raw - raw.mean(0)) / 2  # LINE normal
        (raw * 3).sum()  # nothing uses it
        optimizer.zero_grad()
        out = net(x)
        F.cross_entropy(out, y).backward()
        optimizer.step()
        schedule.step()
        (out.argmax(1) == y).float().mean()
        with torch.no_grad():
            for value in net.parameters():
                value.clamp_(-1, 1)
    text = of_train(found)
    check(f"operations: {text.ops()}", text.ops() == [
        "randn", "arange", "remainder", "mean", "sub", "div", "linear", "relu", "dropout",
        "linear", "cross_entropy"])
    check("their line", text.line(text.node("sub")) == line("normal"))
    node = text.node("linear")
    check("the input is what they made", text.tensor(node["inputs"][0]) == "input" and
          node["inputs"][0] == text.node("div")["outputs"][0])
    check("a weight that is changed in place stays one", all(
        row["used"] and row["reached"] for row in text.parameters))
    check(f"events: {text.kinds()}", text.kinds() == [
        "scheduler", "zero_grad", "forward", "loss", "backward", "step"])
    check("targets", text.losses[0]["targets"] == text.node("remainder")["outputs"][0])
    check(f"it is complete: {text.gap}", text.complete)
    check(f"the rate is that of the step: {text.optimizers}",
          text.optimizers[0]["attributes"]["lr"] == 0.01 * 0.5 ** 3)
    watch.close()
    check("no fault", watch.faults == 0)

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    watch, found = make(net, optimizer)
    x, y = batch()
    for i in range(4):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        for _ in range(1000):
            y + 1
        x = torch.randn(16, 5)
    watch.close()
    check(f"many others between steps: {of_train(found).ops()}", of_train(found).ops()[0] in
          ("linear", "randn") and watch.faults == 0)


@program
def targets_from_tokens():
    tokens = torch.randint(20, (4, 9))
    flat = lambda out, y: F.cross_entropy(out.reshape(-1, 20), y.reshape(-1))
    facts = lambda x, y, loss_of=flat: steps_of(Tokens(), [(x, y)] * 2, loss_of)[-1].facts
    found = facts(tokens[:, :-1], tokens[:, 1:])
    check(f"the next token: {found}", found["labels_shift"] == 1)
    found = facts(tokens, tokens, lambda out, y: F.cross_entropy(
        out[:, :-1].transpose(1, 2), y[:, 1:]))
    check(f"shifted in the loss: {found}", found["labels_shift"] == 1 and
          found["labels_equal_input"] is False)
    found = facts(tokens, tokens)
    check(f"the token itself: {found}", found["labels_shift"] == 0 and
          found["labels_equal_input"] is True)
    hidden = torch.where(torch.rand(4, 9) < 0.5, 0, tokens)
    goals = torch.where(hidden == 0, tokens, -100)
    check("masked tokens", "labels_shift" not in facts(hidden, goals))
    check("other targets", "labels_shift" not in facts(tokens, torch.randint(20, (4, 9))))

    class WithLabels(Tokens):
        def forward(self, x, y):
            return super().forward(x)

    model = WithLabels()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch, programs = make(model, optimizer)
    x, y = tokens[:, :-1].clone(), tokens[:, :-1].clone()
    for _ in range(2):
        optimizer.zero_grad()
        flat(model(x, y), y).backward()
        optimizer.step()
    watch.close()
    found = of_train(programs).facts
    check(f"labels that are an input, too, and the first one's tokens: {found}",
          found["labels_shift"] == 0 and found["labels_input"] == "input_ids")


@program
def targets_that_are_inputs():
    x = torch.randn(16, 5)
    facts = lambda x, y: steps_of(nn.Linear(5, 5), [(x, y)] * 2, F.mse_loss)[-1].facts
    check("the same values", facts(x, x.clone()).get("targets_input") == "input")
    check("others", "targets_input" not in facts(x, x + 1) and
          "targets_input" not in facts(torch.zeros(16, 5), torch.zeros(16, 5)))


class Noise(torch.utils.data.Dataset):
    def __init__(self, same):
        self.generator = torch.Generator().manual_seed(1) if same else None

    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.randn(5, generator=self.generator), i % 3


@program
def batches_of_a_loader():
    for same in (True, False):
        loader = torch.utils.data.DataLoader(Noise(same), batch_size=4, shuffle=True,
                                             num_workers=2)
        found = steps_of(Net(), loader)  # LINE loader
        check(f"events: {found[1].kinds()}", found[1].kinds()[:2] == ["batch", "zero_grad"])
        event = found[1].event("batch")
        check(f"the loader: {event}", event["attributes"]["num_workers"] == 2 and
              event["attributes"]["sampler"] == "RandomSampler" and
              event["attributes"]["batch_size"] == 4)
        check("its line", event["place"])
        check(f"workers with the same random numbers ({same}): {found[-1].facts}",
              found[-1].facts.get("workers_repeat", False) is same)
    loader = torch.utils.data.DataLoader([batch(4)] * 5, batch_size=None)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    watch, found = make(net, optimizer)
    for part in range(2):
        for x, y in loader:
            net.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            for x, y in loader:
                net.eval()(x)
        net.train()
    watch.close()
    check(f"those of an evaluation make no new outline: {len(found)}", len(found) <= 6)
    check("no fault", watch.faults == 0)


@program
def nothing_changes():
    def run(watched):
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(5, 16), nn.Dropout(0.3), nn.ReLU(), nn.BatchNorm1d(16),
                            nn.Linear(16, 3))
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        watch = sonde.watch(net, optimizer, on_finding=None) if watched else None
        x, y = batch()
        alive, numbers = [], []
        for _ in range(8):
            out = net(x)
            loss = F.cross_entropy(out, y)
            alive += [weakref.ref(out), weakref.ref(loss)]
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            del out, loss
            numbers.append(all(ref() is None for ref in alive))
        net.eval()
        with torch.no_grad():
            out = net(x)
        state = torch.get_rng_state()
        if watch is not None:
            watch.close()
            check("no fault", watch.faults == 0)
            check("no hook is left", not torch.nn.modules.module._global_forward_hooks and
                  not torch.nn.modules.module._global_forward_pre_hooks and
                  torch.overrides._len_torch_function_stack() == 0)
            check("no tensor is kept", all(numbers))
        return [*(p.detach().clone() for p in net.parameters()), out, state]

    check("weights, outputs and random numbers are the same bits",
          all(torch.equal(a, b) for a, b in zip(run(True), run(False))))


main()
