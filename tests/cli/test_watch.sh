#!/usr/bin/env bash
# `sonde watch`: Python runs the program, watched; arguments, output and exit code are its own.
. "$(dirname "$0")/lib.sh"

[ -e "$SONDE_BIN/../python/sonde/_sonde.abi3.so" ] &&
    "${SONDE_PYTHON:-python3}" -c 'import torch, numpy' 2>/dev/null || exit 77
export OMP_NUM_THREADS=1

cat >train.py <<'END'
import sys
import torch

print(*sys.argv)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(30):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
sys.exit(7)
END

run 7 "$sonde" watch --run runs/first --rules NonFinite train.py --run "two words" -h
[ "$(cat "$out")" = "train.py --run two words -h" ] || fail "output: $(cat "$out")"
stderr_is "sonde: nothing found by 1 rule in 30 steps, 0 to 29"
run 0 "$sonde" ls runs/first
run 7 "$sonde" watch --rules none -m train more
grep -q 'train.py more$' "$out" || fail "output: $(cat "$out")"
stderr_is ""
cat >plain.py <<'END'
print(1)
END
run 0 "$sonde" watch plain.py
stderr_is "sonde: nothing was watched: no model was called in training mode whose parameters an \
optimizer of PyTorch's holds"

run 2 "$sonde" watch
stderr_is "sonde: error: watch: expected PROGRAM [ARGUMENT]..."
run 2 "$sonde" watch --evry 3 plain.py
stderr_is "sonde: error: watch: unknown option '--evry'; 'sonde watch --help' lists them"
run 2 "$sonde" watch --every many plain.py
stderr_is "sonde: error: --every: 'many' (expected a number of steps)"
run 2 "$sonde" watch none.py
stderr_is "sonde: error: none.py: no such file (expected a program in Python)"
SONDE_PYTHON=/nowhere/python3 run 2 "$sonde" watch plain.py
stderr_is "sonde: error: /nowhere/python3: cannot start Python: No such file or directory \
(expected Python 3.11 with the package: pip install sonde[all])"
