"""The Python examples of the pages run: each page is one program, of its blocks in order.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import importlib.util
import os
import subprocess
import sys
import textwrap

from harness import check, folder, main, program

BUILD = os.path.abspath(os.environ.get("SONDE_BUILD", "build/release"))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(BUILD, "python"))
for package in ("numpy", "torch", "sonde"):
    if importlib.util.find_spec(package) is None:
        print(f"{package} is not installed")
        sys.exit(77)

# What the examples take for granted.
NETWORK = """
import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.relu, self.fc2 = nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4)
        self.with_loss = False
    def forward(self, x, labels=None):
        scores = self.fc2(self.relu(self.fc1(x)))
        if labels is None or not self.with_loss:
            return scores
        return scores, nn.functional.cross_entropy(scores, labels)
samples, labels = torch.randn(256, 20), torch.randint(4, (256,))
"""
# Stands for the body of a loop that a page leaves out.
STEP = """for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


def blocks_of(page):
    """The Python blocks of a page."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        parts = file.read().split("```")
    return [part.partition("\n")[2] for part in parts[1::2] if part.startswith("python\n")]


def guarded(line):
    """A line that may need a package that is not installed."""
    return (f"try:\n{textwrap.indent(line, '    ')}\nexcept ModuleNotFoundError as missing:\n"
            "    assert missing.name in ('pandas', 'polars', 'pyarrow'), missing\n")


def python_page():
    watching, schedules, callbacks, reading = blocks_of("docs/python.md")[:4]
    text = NETWORK + """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.05)
loader = [(samples[i:i + 16], labels[i:i + 16]) for i in range(0, 256, 16)] * 8
""" + watching.replace("for x, y in loader: ...\n", STEP)
    text += "watch.close()\nloader = loader[:3]\n"
    for line in schedules.splitlines():
        text += f"watch = {line}\n{STEP}watch.close()\n"
    check("the third example is that of a callback", "SondeCallback(" in callbacks)
    for line in reading.replace("import sonde\n", "").splitlines():
        text += guarded(line)
    check("the page starts as the README does",
          blocks_of("README.md")[0].strip() == watching.strip())
    return text + "import os\nassert os.path.exists('runs/first/end.json')\n"


def smdebug_page():
    hook, trial = blocks_of("docs/smdebug.md")[:2]
    return NETWORK + "net, loss_function = Net(), nn.CrossEntropyLoss()\n" + hook + """
optimizer = torch.optim.SGD(net.parameters(), 0.05)
for step in range(21):
    optimizer.zero_grad()
    loss_function(net(samples[:16]), labels[:16]).backward()
    optimizer.step()
hook.close()
""" + trial + """
assert sorted(values) == [0, 10, 20], values
assert "relu_output_0" in trial.tensor_names(), trial.tensor_names()
"""


def poptorch_page():
    return NETWORK + """
model = Net()
model.with_loss = True
data_set = torch.utils.data.TensorDataset(samples, labels)
""" + blocks_of("docs/poptorch.md")[0] + """
assert gradient.shape == (4,) and loss.isfinite(), (gradient.shape, loss)
"""


@program
def pages():
    """All in one process, `python -m sonde run`: PyTorch is imported once."""
    path = folder("pages")
    os.makedirs(path)
    texts = {"python": python_page(), "smdebug": smdebug_page(), "poptorch": poptorch_page()}
    with open(os.path.join(path, "pages.py"), "w", encoding="utf-8") as file:
        file.write(f"""
import os
texts = {texts!r}
for page, text in texts.items():
    os.makedirs(os.path.join({path!r}, page, "runs"))
    os.chdir(os.path.join({path!r}, page))
    exec(compile(text, page, "exec"), {{"__name__": page}})
    print("the end of", page)
""")
    environment = dict(os.environ, PYTHONPATH=os.path.join(BUILD, "python"))
    done = subprocess.run([sys.executable, "-m", "sonde", "run", "pages.py"], cwd=path,
                          env=environment, capture_output=True, text=True, timeout=240,
                          check=False)
    printed = done.stdout + done.stderr
    for page in texts:
        check(f"the examples of docs/{page}.md run: {printed}", f"the end of {page}\n" in done.stdout)
    check(f"the process ends well: {printed}", done.returncode == 0)


if __name__ == "__main__":
    main()
