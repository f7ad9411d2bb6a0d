#!/usr/bin/env bash
# examples/foreign_loop: a program without Sonde's engine; its run by a reader of standard parts.
. "$(dirname "$0")/../cli/lib.sh"
example=$SONDE_BIN/../examples/foreign_loop
command -v readelf >/dev/null && readelf -d "$example" | grep NEEDED | grep -q 'libsonde_' &&
    fail "it needs more than libsonde"

cat >hook.yaml <<'END'
every: 20
collections:
  outputs: {reductions: [mean, histogram]}
  early: {include: "*", exclude: "gradient*", save_steps: [0, 3]}
END
run 0 "$example" run 50 hook.yaml
same "$out" <(printf 'loss after 50 steps: %s\n' "$(sed 's/.*: //' "$out")")
[ ! -s "$err" ] || fail "it warns: $(cat "$err")"
python3 - run <<'END' || fail "the run is not what was asked for"
import json, struct, sys
w = sys.argv[1] + "/w0000/"
tensors = {}
for line in open(w + "catalogue.jsonl"):
    t = json.loads(line)
    tensors[t["id"]] = t
role = {t["name"]: t["role"] for t in tensors.values()}
assert role["gradient/fc1.bias"] == "gradient" and role["loss"] == "loss", role
assert role["relu_output_0"] == "output" and role["fc2.weight"] == "weight", role
lines = [json.loads(line) for line in open(w + "seg-00000000.jsonl")]
data = open(w + "steps-00000000.npy", "rb").read()[256:]
ended = [row[0] for row in struct.iter_unpack("<qqqII", data)]
assert ended == list(range(50)), ended # vital signs of losses at every step
steps = {}
for l in lines:
    assert l["s"] == l["k"] and l["m"] == "train" and (l["b"], l["r"]) == (0, 0), l
    steps.setdefault(tensors[l["t"]]["name"], []).append(l["s"])
for name, role in role.items():
    expected = {"gradient": [0, 20, 40], "output": [0, 3]}.get(role, [0, 3, 20, 40])
    assert steps[name] == expected, (name, steps)
# the values: a closed segment is a safetensors file; the update is w - 0.5 g
data = open(w + "seg-00000000.safetensors", "rb").read()
size, = struct.unpack("<Q", data[:8])
header = json.loads(data[8:8 + size])
def value(step, name):
    entry = header[f"{step:010d}/train/{name}"]
    assert entry["dtype"] == "F32"
    begin, end = entry["data_offsets"]
    return struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin:8 + size + end])
assert len(value(0, "relu_output_0")) == 64 * 16 and len(value(40, "loss")) == 1
assert value(40, "loss")[0] < value(0, "loss")[0]
assert all(x >= 0 for x in value(0, "relu_output_0"))
# vital signs: the loss at every step equals the value where that is saved
rows = open(w + "stats-00000000.npy", "rb").read()[1024:]
loss, = [t["id"] for t in tensors.values() if t["name"] == "loss"]
means = {}
for at in range(0, len(rows), 144):
    step, _, tensor = struct.unpack_from("<qqI", rows, at)
    if tensor == loss:
        means[step] = struct.unpack_from("<9d", rows, at + 72)[4]
assert sorted(means) == list(range(50))
assert all(means[s] == value(s, "loss")[0] for s in (0, 3, 20, 40))
END
run 2 "$example" run 10
grep -q '^error: run: ' "$err" || fail "a run that is there: $(cat "$err")"
# examples/foreign_judged: recorded and judged by one declaration of each tensor
judged=$SONDE_BIN/../examples/foreign_judged
run 0 "$judged" calm
tail -1 "$out" | grep -q '^0 findings; loss after 200 steps: ' || fail "$(cat "$out")"
run 1 "$judged" wild 3
grep -q '^step [0-9]*: NonFinite: ' "$out" || fail "a loss that diverges: $(cat "$out")"
[ -s wild/findings/NonFinite.jsonl ] || fail "the findings are not in the run"
