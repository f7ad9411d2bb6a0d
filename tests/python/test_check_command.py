"""python -m sonde check: programs of many forms, checked at their first training step.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import json
import os
import subprocess
import sys

from harness import FOLDER, check, main, program

PACKAGE = os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python")
sys.path.insert(0, PACKAGE)
try:
    import torch
    from sonde.__main__ import main as main_of_package
except ImportError as problem:
    print(problem)
    sys.exit(77)

torch.set_num_threads(1)
HEAD = """
import sys
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
x, y = torch.randn(8, 6), torch.arange(8) % 3
def dense(inputs=6, outputs=3):
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs))
"""


def run(code, *options, arguments=(), module=False):
    """(exit code, standard output, standard error) of a check of a program."""
    path = os.path.join(FOLDER, "train.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(HEAD + code)
    what = ["-m", "train"] if module else [path]
    return in_child(["sonde", "check", *options, *what, *arguments])


def in_child(command):
    """Runs the command in a copy of this process, which has imported PyTorch."""
    outputs = [os.path.join(FOLDER, name) for name in ("stdout", "stderr")]
    child = os.fork()
    if child == 0:
        status = 70
        try:
            for number, path in enumerate(outputs, 1):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            os.chdir(FOLDER)
            sys.argv = command
            main_of_package()
        except SystemExit as end:
            status = end.code
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status if isinstance(status, int) else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status, *(open(path, encoding="utf-8").read() for path in outputs)


def rows_of(code, **options):
    """(exit code, {property: (verdict, message)}, notes) of a check."""
    status, output, errors = run(code, "--json", "--seconds", "300", **options)
    try:
        values = json.loads(output)
    except ValueError:
        check(f"JSON, not {output!r} {errors[-600:]}", False)
        return status, {}, []
    if "rows" not in values:
        check(f"a result, not {values}", False)
        return status, {}, []
    return status, {row["name"]: (row["verdict"], row["message"]) for row in values["rows"]}, \
        values["notes"]


def healthy(what, code, passed, notes=()):
    """A program that passes, also these properties."""
    status, rows, found = rows_of(code)
    failed = {name: row for name, row in rows.items() if row[0] == "failed"}
    check(f"{what}: exits with 0, not {status} {failed}", status == 0)
    for name in passed.split():
        check(f"{what}: {name} passes: {rows.get(name)} {found}",
              rows.get(name, "?")[0] == "passed")
    for note in notes:
        check(f"{what}: says '{note}': {found}", any(note in one for one in found))


def faulty(what, code, name, text=""):
    """A program that fails in one property."""
    status, rows, found = rows_of(code)
    check(f"{what}: exits with 1, not {status}", status == 1)
    row = rows.get(name, ("?", ""))
    check(f"{what}: {name} fails: {row} {found}", row[0] == "failed" and text in row[1])


LOOP = """
def train(net, loss_fn=F.cross_entropy, optimizer=None, steps=3):
    optimizer = optimizer or torch.optim.SGD(net.parameters(), 0.1)
    for step in range(steps):
        optimizer.zero_grad()
        loss_fn(net(x), y).backward()
        optimizer.step()
        print("made a step")
"""
ALL = "runs reached held target_rows loss_on_targets output_on_input mixing deterministic overfits"


@program
def plain_loops():
    status, output, errors = run(LOOP + "print('hello', sys.argv[1:])\ntrain(dense())\n",
                                 arguments=("--lr", "0.1", "-m"))
    check(f"the program has its arguments: {output} {errors}", "hello ['--lr', '0.1', '-m']" in output)
    check("it ends before its first step", "made a step" not in output and status == 0)
    check(f"the place: {output}", "checked at the first step of SGD (train.py:" in output
          and "Sequential of input float32 (8, 6)" in output)
    healthy("functional loss", LOOP + "train(dense())", ALL + " labels start normalised training")
    healthy("a module as loss", LOOP + "train(dense(), nn.CrossEntropyLoss())", ALL + " labels")
    healthy("a loss by hand", LOOP + """
def loss(output, y):
    return -(output.log_softmax(1)[torch.arange(len(y)), y]).mean()
train(dense(), loss)""", ALL)
    healthy("a loss in place", LOOP + """
def loss(output, y):
    gap = output - F.one_hot(y, 3)
    gap.pow_(2)
    whole = gap.sum()
    whole /= gap.numel()
    whole += 0.001 * sum(p.pow(2).sum() for p in net.parameters())
    return whole
net = dense()
train(net, loss)""", ALL)
    healthy("loader, scheduler, main", """
from torch.utils.data import DataLoader, TensorDataset
def main():
    net = dense()
    optimizer = torch.optim.Adam(net.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    net.eval()
    with torch.no_grad():
        net(x)
    net.train()
    for a, b in DataLoader(TensorDataset(x, y), batch_size=4, num_workers=2):
        loss = F.cross_entropy(net(a), b)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
if __name__ == "__main__":
    main()""", ALL)


@program
def whole_programs():
    """Arguments, functions, workers, epochs, a checkpoint that would be written, no CUDA."""
    code = """
import argparse
import os
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, i):
        return torch.randn(6), i % 3

class Trainer:
    def __init__(self, args, device):
        self.args, self.device, self.net = args, device, dense().to(device)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), args.lr)
        self.loader = DataLoader(Rows(), batch_size=args.batch, num_workers=args.workers, shuffle=True)
    def step(self, a, b):
        self.optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(self.net(a.to(self.device)), b.to(self.device))
        loss.backward()
        self.optimizer.step()
        return loss.item()
    def fit(self):
        for epoch in range(self.args.epochs):
            for a, b in self.loader:
                self.step(a, b)
            torch.save(self.net.state_dict(), "last.pt")

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    Trainer(args, torch.device("cuda" if torch.cuda.is_available() else "cpu")).fit()

if __name__ == "__main__":
    main()
"""
    status, output, errors = run(code, arguments=("--lr", "0.01", "--workers", "2"))
    check(f"it is checked: {output[-400:]} {errors[-400:]}", status == 0 and
          "first step of AdamW (train.py:" in output and "input float32 (8, 6)" in output)
    check("no checkpoint is written", not os.path.exists(os.path.join(FOLDER, "last.pt")))
    status, output, errors = run(code)
    check(f"without its argument: {output} {errors[-300:]}", status == 2 and
          "the program ended with 2" in output and "--lr" in errors)
    status, output, _ = run("dense().to('cuda')") if not torch.cuda.is_available() else (2, "raised", "")
    check(f"no CUDA: {status} {output}", status == 2 and "raised" in output)


@program
def modules_and_options():
    code = LOOP + "print('hello')\ntrain(dense())\n"
    status, output, errors = run(code, module=True)
    check(f"-m: {output} {errors}", status == 0 and "hello" in output)
    status, output, errors = run(code, "--json", "--seconds", "5")
    check("with --json the program prints to standard error", "hello" in errors and
          json.loads(output)["passed"] is True and json.loads(output)["seconds"] < 10)
    for options, text in (((), "no program"), (("--seconds", "0", "x.py"), "expected a number above 0"),
                          (("--nothing", "x.py"), "unrecognized arguments")):
        done = subprocess.run([sys.executable, "-m", "sonde", "check", *options],
                              capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": PACKAGE})
        check(f"{options}: {done.stderr}", done.returncode == 2 and text in done.stderr)
    status, _, err = in_child(["sonde", "check", "none.py"])
    check(f"no such program: {err}", status == 2 and
          err == "sonde: error: none.py: no such file (expected a program in Python)\n")


@program
def other_losses():
    healthy("the loss in the output, as in transformers", """
from types import SimpleNamespace
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = dense()
    def forward(self, inputs, labels=None):
        logits = self.body(inputs)
        return SimpleNamespace(loss=F.cross_entropy(logits, labels), logits=logits)
net = Net()
optimizer = torch.optim.AdamW(net.parameters())
out = net(inputs=x, labels=y)
out.loss.backward()
optimizer.step()""", "runs reached held overfits output_on_input",
            ("inputs float32 (8, 6), labels int64 (8,)",))
    healthy("a policy gradient", """
net = dense()
optimizer = torch.optim.Adam(net.parameters())
chance = torch.distributions.Categorical(logits=net(x))
action = chance.sample()
loss = -(chance.log_prob(action) * torch.randn(8)).mean()
loss.backward()
optimizer.step()""", "runs reached held mixing overfits loss_on_targets")
    healthy("an autograd function outside of the network", """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a * a
    @staticmethod
    def backward(ctx, g):
        return 2 * g * ctx.saved_tensors[0]
net = dense(outputs=1)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
Square.apply(net(x) - x[:, :1]).mean().backward()
optimizer.step()""", "runs reached functions target_rows overfits")
    healthy("a gradient penalty", """
net = dense(outputs=1)
optimizer = torch.optim.Adam(net.parameters())
real, between = net(x), torch.randn(8, 6).requires_grad_()
slope = torch.autograd.grad(net(between).sum(), between, create_graph=True)[0]
(-real.mean() + 10 * ((slope.norm(dim=1) - 1) ** 2).mean()).backward()
optimizer.step()""", "runs reached held overfits")
    healthy("autocast and a scaler", """
net = dense()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = F.cross_entropy(net(x), y)
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()""", "runs reached held mixing start overfits")


@program
def several_networks():
    gan = """
generator, critic = dense(4, 6), dense(6, 1)
judge, maker = (torch.optim.Adam(one.parameters()) for one in (critic, generator))
loss = nn.BCEWithLogitsLoss()
for step in range(2):
    critic.zero_grad()
    loss(critic(x), torch.ones(8, 1)).backward()
    fake = generator(torch.randn(8, 4))
    loss(critic(fake.detach()), torch.zeros(8, 1)).backward()
    judge.step()
    generator.zero_grad()
    loss(critic(fake), torch.ones(8, 1)).backward()
    maker.step()"""
    healthy("a discriminator, two losses of one form", gan, "runs reached held mixing overfits",
            ("the first step of Adam (train.py:20): Sequential of input float32 (8, 6)",))
    faulty("a mistake in the second network", gan.replace(
        "loss(critic(fake), torch.ones(8, 1)).backward()\n",
        "loss(critic(fake.detach()), torch.ones(8, 1)).backward()\n"), "reached", "at train.py:23: ")
    healthy("a second optimizer that never steps", LOOP + """
idle = torch.optim.SGD(dense().parameters(), 0.1)
net = dense()
train(net, steps=99)""", ALL)
    healthy("encoder and decoder with an optimizer each", """
encoder, decoder = dense(6, 4), dense(4, 3)
first, second = (torch.optim.SGD(one.parameters(), 0.1) for one in (encoder, decoder))
loss = F.cross_entropy(decoder(encoder(x)), y)
loss.backward()
first.step()
second.step()""", "runs reached held overfits")
    healthy("submodules called by the program", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = dense(6, 4), dense(4, 3)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
F.cross_entropy(net.head(net.body(x)), y).backward()
optimizer.step()""", "runs reached held overfits", (": Net",))
    faulty("a submodule that the program never calls", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.more = dense(6, 4), dense(4, 3), dense(4, 3)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
F.cross_entropy(net.head(net.body(x)), y).backward()
optimizer.step()""", "reached", "more.0.weight")
    healthy("a frozen teacher", """
teacher, net = dense().eval(), dense()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
with torch.no_grad():
    wanted = teacher(x).softmax(1)
F.kl_div(net(x).log_softmax(1), wanted, reduction="batchmean").backward()
optimizer.step()""", ALL)
    healthy("a frozen network behind the trained one", """
net, judge = dense(6, 6), dense().eval().requires_grad_(False)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
F.cross_entropy(judge(net(x)), y).backward()
optimizer.step()""", ALL)


@program
def other_steps():
    healthy("accumulated gradients", """
net = dense()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for a, b in zip(x.chunk(2), y.chunk(2)):
    (F.cross_entropy(net(a), b) / 2).backward()
optimizer.step()""", ALL, ("input float32 (4, 6)",))
    healthy("a closure", """
net = dense()
optimizer = torch.optim.LBFGS(net.parameters())
def closure():
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    return loss
optimizer.step(closure)""", ALL)
    healthy("an update by hand", """
net = dense()
for step in range(3):
    F.cross_entropy(net(x), y).backward()
    with torch.no_grad():
        for value in net.parameters():
            value -= 0.1 * value.grad
            value.grad = None""", "runs reached target_rows mixing overfits",
            ("the first backward pass (train.py:",))
    healthy("wrapped and compiled", LOOP + """
train(torch.compile(nn.DataParallel(dense())))""", ALL, (": Sequential of",))
    status, output, _ = run(LOOP + """
try:
    train(dense())
except:
    print("held up")
train(dense())
""")
    check(f"a bare except holds nothing up: {output}",
          status == 0 and "held up" in output and "made a step" not in output)


@program
def unusual_programs():
    """Programs that are right, and whose form once held a check up."""
    healthy("layers that are not initialised", LOOP +
            "train(nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(3)))", ALL)
    healthy("a scripted network", LOOP + "train(torch.jit.script(dense()))", "runs reached mixing")
    healthy("a sparse buffer", LOOP + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = dense()
        self.register_buffer("graph", torch.eye(8).to_sparse())
    def forward(self, x):
        return self.body(torch.sparse.mm(self.graph, x))
train(Net())""", "runs reached held overfits")
    healthy("forked processes", LOOP + """
import multiprocessing
if __name__ == "__main__":
    workers = [multiprocessing.get_context("fork").Process(target=train, args=(dense(),)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()""", ALL)
    healthy("a target network", """
net, target = dense(), dense()
target.load_state_dict(net.state_dict())
optimizer = torch.optim.SGD(net.parameters(), 0.1)
action, reward = y[:, None], torch.randn(8, 1)
F.smooth_l1_loss(net(x).gather(1, action), reward + 0.9 * target(x + 1).max(1, keepdim=True)[0]).backward()
optimizer.step()""", "runs held overfits")
    faulty("a second network that is not held", """
net, other = dense(), dense()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
F.cross_entropy(net(x) + other(x), y).backward()
optimizer.step()""", "held")
    healthy("pictures of a triple named x, y and z", """
class Triple(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = dense()
    def forward(self, x, y, z):
        a, b, c = self.body(x), self.body(y), self.body(z)
        return F.pairwise_distance(a, b), F.pairwise_distance(a, c), a
net = Triple()
optimizer = torch.optim.SGD(net.parameters(), 0.01)
near, far, a = net(x, torch.randn(8, 6), torch.randn(8, 6))
F.margin_ranking_loss(near, far, torch.ones(8), margin=0.2).backward()
optimizer.step()""", "runs reached held overfits")
    healthy("a term of the samples alone", """
net = dense(6, 6)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
z = torch.randn(8, 6)
base = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(1)
(base + net(z).pow(2).sum(1)).mean().backward()
optimizer.step()""", "runs reached held overfits")
    healthy("a policy that acts without gradients", """
net = dense()
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
actions, chances = [], []
with torch.no_grad():
    for row in x:
        policy = torch.distributions.Categorical(logits=net(row))
        actions.append(policy.sample())
        chances.append(policy.log_prob(actions[-1]))
ratio = (torch.distributions.Categorical(logits=net(x)).log_prob(torch.stack(actions)) -
         torch.stack(chances)).exp()
gain = torch.randn(8)
(-torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()).backward()
optimizer.step()""", "runs reached held")


@program
def each_network_alone():
    """Properties of a call are tested where the loss calls several networks too."""
    gan = """
class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = dense(4, 6)
    def forward(self, z):
        return self.body(z)%s
net, critic = Generator(), dense(6, 1)
first, second = (torch.optim.Adam(one.parameters()) for one in (critic, net))
for step in range(99):
    first.zero_grad()
    (critic(net(torch.randn(8, 4)).detach()).mean() - critic(x).mean()).backward()
    first.step()
    if step %% 30 == 20:
        second.zero_grad()
        (-critic(net(torch.randn(8, 4))).mean()).backward()
        second.step()"""
    healthy("a GAN", gan % "", "runs reached held mixing batch deterministic")
    faulty("a generator whose rows mix", gan % ".sub(self.body(z).mean(0))", "mixing", "Generator: ")


@program
def mistakes():
    faulty("softmax in front of the loss", LOOP + "train(nn.Sequential(dense(), nn.Softmax(1)))",
           "normalised")
    faulty("softmax in the program", LOOP +
           "train(dense(), lambda output, y: F.cross_entropy(output.softmax(1), y))", "normalised")
    faulty("shapes that broadcast", LOOP + """
train(dense(outputs=1), lambda output, y: F.mse_loss(output, x[:, 0]))""", "target_rows",
           "(8, 1)")
    faulty("shapes that broadcast by hand", LOOP + """
train(dense(outputs=1), lambda output, y: ((output - x[:, 0]) ** 2).mean())""", "target_rows")
    faulty("an optimizer of another network", LOOP + """
train(dense(), optimizer=torch.optim.SGD(dense().parameters(), 0.1))""", "held")
    faulty("detach", LOOP + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = dense(6, 4), dense(4, 3)
    def forward(self, x):
        return self.head(self.body(x).detach())
train(Net())""", "reached", "body.0.weight")
    faulty("evaluation mode", LOOP + """
net = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 3))
net.eval()
train(net)""", "training", "1 (Dropout)")
    healthy("training mode", LOOP + """
train(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)))""", "training")
    faulty("batches mixed in the program", LOOP + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = dense()
    def forward(self, x):
        return self.body(x).log_softmax(0)
train(Net(), F.nll_loss)""", "mixing")


@program
def without_a_replay():
    """The loss goes where no operation is seen: the other properties are still tested."""
    status, rows, notes = rows_of("""
@torch.jit.script
def loss(output, y):
    return (output.log_softmax(1).gather(1, y[:, None])).mean().neg()
net = dense()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
loss(net(x), y).backward()
optimizer.step()""")
    check(f"it passes what it can: {rows}", status == 0 and all(
        rows[name][0] == "passed" for name in "dtypes held mixing deterministic modes".split()))
    check(f"the reason is told: {rows['overfits']} {notes}",
          all(rows[name] == ("not applicable", rows["runs"][1]) and "not known" in rows[name][1]
              for name in ("runs", "overfits")) and any("without the loss" in n for n in notes))
    status, rows, notes = rows_of("""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.calls = dense(), 0
    def forward(self, x):
        self.calls += 1
        return self.body(x) * self.calls
net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
F.cross_entropy(net(x), y).backward()
optimizer.step()""")
    check(f"a state between calls: {rows['runs']}", "keeps a state" in rows["runs"][1])


@program
def no_check():
    """Exit code 2, and why."""
    for what, code, text in (
            ("nothing", "print('done')", "the program ended before a training step: no module with"),
            ("evaluation", "with torch.no_grad(): dense()(x)", "no module with parameters was called"),
            ("no backward", LOOP + "train(dense(), lambda *_: torch.tensor(1.0, "
             "requires_grad=True))", "the loss calls no module"),
            ("loss without backward", "dense()(x).sum()", "but backward() was not"),
            ("an exit", "sys.exit(3)", "the program ended with 3 before a training step"),
            ("an exception", "raise KeyError('mine')", "the program raised KeyError: 'mine' before"),
            ("wrong shapes", LOOP + "train(dense(7))", "cannot be multiplied (8x6 and 7x16)"),
            ("a thread", LOOP + "import threading\nthread = threading.Thread(target=train, args=(dense(),))\n"
             "thread.start()\nthread.join()", "called in another thread"),
            ("functions that are transformed", "net = dense()\np = dict(net.named_parameters())\n"
             "torch.func.grad(lambda p: F.cross_entropy(torch.func.functional_call(net, p, x), y))(p)\n"
             "print('went on')", "no module with parameters"),
            ("no step", "net = dense()\noptimizer = torch.optim.SGD(net.parameters(), 0.1)\n"
             "F.cross_entropy(net(x), y).backward()", "but no optimizer made a step"),
            ("idle steps", "net = dense()\noptimizer = torch.optim.SGD(net.parameters(), 0.1)\n"
             "for _ in range(99): optimizer.step()", "SGD made 10 steps without a backward pass"),
            ("a model that cannot be copied", LOOP + "class Net(nn.Linear):\n"
             "    def __deepcopy__(self, memo): raise TypeError('a lock')\n"
             "train(Net(6, 3))", "cannot be copied: TypeError: a lock")):
        status, output, errors = run(code)
        check(f"{what}: {status} {output} {errors[-300:]}", status == 2 and
              f"could not check: " in output and text in output)
        if what in ("an exception", "wrong shapes"):
            check(f"its own traceback: {errors}", "train.py" in errors and
                  "sonde" not in errors.replace(FOLDER, ""))
        check(f"{what}: the program is not disturbed", "transformed" not in what or "went on" in output)
    notebook = os.path.join(FOLDER, "a.ipynb")
    with open(notebook, "w", encoding="utf-8") as file:
        file.write("{}")
    status, _, errors = in_child(["sonde", "check", notebook])
    check(f"a notebook: {errors}", status == 2 and "nbconvert" in errors)
    status, output, _ = run("sys.exit(3)", "--json")
    check(f"as JSON: {output}", status == 2 and json.loads(output)["passed"] is None
          and "ended with 3" in json.loads(output)["why"])


if __name__ == "__main__":
    main()
