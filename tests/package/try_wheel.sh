#!/usr/bin/env bash
# Installs a wheel into an empty environment, with nothing else, and tries it there: import, the
# command, a run of three lines, a rule in a file; PyTorch's three lines if .venv has PyTorch.
#
#     try_wheel.sh WHEEL [PYTHON]
set -eu
wheel=$(realpath "$1")
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${2:-python3}
[ -x "$root/.venv/bin/python" ] && python=$root/.venv/bin/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "error: $*" >&2
    exit 1
}

case $wheel in
    *-cp311-abi3-*) ;;
    *) fail "$wheel: not for all of CPython from 3.11 on" ;;
esac
"$python" -m venv "$work/env"
"$work/env/bin/python" -m pip install -q --no-index --no-deps "$wheel"
cd "$work"
# Nothing of this session's: no paths of libraries or modules.
clean() { env -i PATH="$work/env/bin:/usr/bin:/bin" HOME="$work" "$@"; }

# Paths of the machine that built it, in files and in what the loader reads.
site=$(clean python -c 'import sonde, os; print(os.path.dirname(os.path.dirname(sonde.__file__)))')
! grep -rlaE "$root|/build-via-sdist|$HOME/|/tmp/build" "$site"/sonde "$site"/sonde*.libs 2>/dev/null ||
    fail "a file of the wheel has a path of this machine"
find "$site/sonde" -type f \( -name '*.so*' -o -name sonde \) >objects
while read -r object; do
    ! readelf -d "$object" | grep -E 'R(UN)?PATH' | grep -qE '\[/|:/' ||
        fail "$object: an absolute RPATH"
    ! ldd "$object" | grep 'not found' || fail "$object: a library is not found"
done <objects
[ "$(wc -l <objects)" -ge 7 ] || fail "the wheel lacks libraries: $(cat objects)"

cat >three.py <<'PYTHON'
import array
import sonde
watch = sonde.watch(run="runs/first", rules="NonFinite")
for i in range(5):
    watch.record("weight", array.array("f", [i, float("nan") if i == 3 else 1.0]), "weight")
    watch.step_end()
watch.close()
run = sonde.open("runs/first")
assert run.status == "ended" and run.last_step == 4, run.info
assert [f.rule for f in run.findings()] == ["NonFinite"], run.findings()
assert run.vitals("weight").count == 2
PYTHON
clean python three.py 2>messages || { cat messages; fail "three lines do not run"; }
grep -q 'NonFinite: weight' messages || { cat messages; fail "no finding is printed"; }
[ "$(clean sonde ls runs/first --format json | head -c 1)" = '{' ] || clean sonde ls runs/first >/dev/null ||
    fail "the command does not run"
clean python -m sonde rules runs/first --rules NonFinite >found && fail "the command finds nothing"
grep -q 'NonFinite' found || { cat found; fail "the command finds nothing"; }
sed -n '/^-- loss_jump.lua/,/^return rule/p' "$root/docs/own_rules.md" >loss_jump.lua
clean sonde rules list --plugin ./loss_jump.lua | grep -q '^LossJump ' ||
    fail "a rule in a file does not load: sonde-lua.so"
clean sonde train --help >/dev/null || fail "sonde train does not start"

packages=$("$python" -c 'import torch, os; print(os.path.dirname(os.path.dirname(torch.__file__)))' \
    2>/dev/null) || { echo "not tried with PyTorch: $python has none"; exit 0; }
cat >torch.lines <<'PYTHON'
import torch
import sonde
assert sonde.__file__.startswith("ENV"), sonde.__file__
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = [(torch.randn(8, 4), torch.randint(2, (8,))) for _ in range(30)]
LINES
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
watch.close()
assert sonde.open("runs/torch").last_step == 29
PYTHON
sed -n '/^```python$/,/^```$/p' "$root/README.md" | sed -n '2,4p' |
    sed 's|runs/first|runs/torch|; s/: \.\.\.$/:/' >lines
sed -e "s|ENV|$site|" -e '/^LINES$/{r lines' -e 'd}' torch.lines >torch_lines.py
clean env PYTHONPATH="$packages" python torch_lines.py 2>messages ||
    { cat messages; fail "README's lines do not run with PyTorch"; }
