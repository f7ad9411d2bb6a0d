#!/usr/bin/env bash
# Reading a run: sonde ls, show, query and verify, exactly. tests/trial/run_tool.h
# describes the run.
. "$(dirname "$0")/lib.sh"
export COLUMNS=80 LC_ALL=C.UTF-8
make=("$SONDE_BIN/tests_export" test_export make)

run 0 "${make[@]}" run
stderr_is ""

# --- ls ---------------------------------------------------------------------------------
run 0 "$sonde" ls run
stderr_is ""
sed -E 's/^(id +)[0-9a-f]{32}$/\1ID/; s/^(created +)20[0-9TZ:.-]+$/\1NOW/' <(untimed) >listed
same listed <(
    cat <<'END'
run       run
id        ID
model     small
program   the tests
created   NOW
status    ended: finished (as planned)
steps     up to 47: 40 train, 8 eval
time      HOW LONG
workers   1 of 1
saved     84 values (2.6 kB), 80 vital signs, 8 sketches

tensor                   role                dtype     shape                values   vitals sketches  steps
loss                     loss                float32   ()                       48        0        0  0 ... 47
conv1.weight             weight              float32   (5, 1, 3, 3)              8       40        0  0 ... 45
Gradient___conv1.weight  gradient            float32   (5, 1, 3, 3)              4       40        8  0 ... 45
fc.bias                  bias                bfloat16  (4)                       4        0        0  0 ... 36
act                      activation          float16   (2, 3)                    4        0        0  0 ... 36
counter                  buffer              int64     (2)                       4        0        0  0 ... 36
mask                     buffer              bool      (3)                       4        0        0  0 ... 36
scalar/"odd", é          scalar              float64   ()                        4        0        0  0 ... 36
END
)
run 0 "$sonde" ls run '*.weight' --names
same "$out" <(printf 'conv1.weight\nGradient___conv1.weight\n')
run 0 "$sonde" ls run '@bias,module:conv1' --names
same "$out" <(printf 'conv1.weight\nfc.bias\n')
run 0 "$sonde" ls run @mine --names # a collection that was recorded
same "$out" <(printf 'conv1.weight\nfc.bias\n')
# a folder of runs
mkdir -p runs/none
cp -r run runs/second
cp -r "$SONDE_TEST_DIR/golden/runs/v1-aliases" runs/first
run 0 "$sonde" ls runs
same "$out" <(
    cat <<'END'
run        steps  status
first          4  ended: finished
second        48  ended: finished
END
)
run 0 "$sonde" ls runs/ --names
same "$out" <(printf 'first\nsecond\n')
run 0 "$sonde" ls runs/ --format json
python3 - "$out" <<'END' || fail "ls --format json of runs"
import json, sys
assert json.load(open(sys.argv[1])) == {"runs": [
    {"path": "runs/first", "steps": 4, "last_step": 3, "status": "ended",
     "end_reason": "finished"},
    {"path": "runs/second", "steps": 48, "last_step": 47, "status": "ended",
     "end_reason": "finished"}]}
END
run 2 "$sonde" ls runs '*'
run 2 "$sonde" ls runs/none
# names of the same tensor
run 0 "$sonde" ls runs/first
grep -qE '^tied.weight .*  = fc1.weight$' "$out" || fail "ls of an alias: $(cat "$out")"
run 0 "$sonde" ls runs/first --format json
python3 - "$out" <<'END' || fail "ls --format json of an alias"
import json, sys
tensors = {t["name"]: t["same_as"] for t in json.load(open(sys.argv[1]))["tensors"]}
assert tensors == {"fc1.weight": "", "fc1.bias": "", "loss": "", "tied.weight": "fc1.weight",
                   "objective": "loss"}, tensors
END
rm -r runs
run 0 "$sonde" ls run 'nothing*'
stderr_is "sonde: warning: 'nothing*' matches no tensor"
run 0 "$sonde" ls run/ --format json
python3 - "$out" <<'END' || fail "ls --format json"
import json, sys
run = json.load(open(sys.argv[1]))
assert run["path"] == "run" and len(run["id"]) == 32 and run["model"] == "small", run
assert (run["status"], run["end_reason"], run["end_text"]) == ("ended", "finished", "as planned")
assert run["steps"] == {"train": 40, "eval": 8, "predict": 0, "global": 48}, run["steps"]
assert (run["records"], run["rows"], run["sketches"], run["lost"]) == (84, 80, 8, 0)
assert run["collections"] == ["mine"]
import time
assert time.time() - 600 < run["first_time"] <= run["last_time"] <= time.time(), run
assert run["steps_per_second"] > 0 and run["resumed"] == [] and run["superseded"] == 0
assert run["damage"] == [] and run["last_step"] == 47 and run["world"] == 1
tensors = {t["name"]: t for t in run["tensors"]}
assert len(tensors) == 8 and 'scalar/"odd", é' in tensors
weight = tensors["conv1.weight"]
assert weight["shape"] == [5, 1, 3, 3] and weight["role"] == "weight"
assert (weight["values"], weight["vitals"], weight["sketches"]) == (8, 40, 0)
assert (weight["first_step"], weight["last_step"]) == (0, 45)
END

grep -qE '^time      [0-9.]+ s from first to last step, [0-9.e+]+ steps/s, ended 20[0-9-]+T[0-9:]+Z$' \
    <("$sonde" ls run) || fail "times: $("$sonde" ls run)"

# --- show -------------------------------------------------------------------------------
run 0 "$sonde" show run fc.bias --mode train --step 10
stderr_is ""
same <(untimed) <(printf 'step 12 (train 10), T: bfloat16 (4)\nfc.bias: ( 0.375, -1.125, -0.250,  0.625)\n')
run 0 "$sonde" show run fc.bias --step 12 --digits 2 --float-format scientific
same <(untimed) <(printf 'step 12 (train 10), T: bfloat16 (4)\nfc.bias: ( 3.8e-01, -1.1e+00, -2.5e-01,  6.2e-01)\n')
run 0 "$sonde" show run act # the last one, and its first micro-batch
same <(untimed) <(printf 'step 36 (train 30), T: float16 (2, 3)\nact: (\n (-1.125, -0.250,  0.625)\n (-0.875,  0.000,  0.875)\n)\n')
run 0 "$sonde" show run act --micro-batch 1 --format json
same <(untimed) <(echo '{"name": "act", "mode": "global", "step": 36, "time": T, "dtype": "float16", "values": [[-0.5, 0.375, -1.125], [-0.25, 0.625, -0.875]]}')
run 0 "$sonde" show run Gradient___conv1.weight --mode train --step 20 --threshold 8 --edge 1
grep -qxF '   (   nan, ...,  0.000)' "$out" || fail "edges: $(cat "$out")"
[ "$(wc -l <"$out")" -lt 25 ] || fail "not summarized: $(cat "$out")"
run 0 "$sonde" show run conv1.weight --summary --format json --step 45
python3 - "$out" <<'END' || fail "show --summary"
import json, math, sys
got = json.load(open(sys.argv[1]))
x = [((7 * i + 3 * 45 + 11) % 19 - 9) / 8 for i in range(45)]
mean = sum(x) / 45
assert got["count"] == 45 and got["min"] == min(x) and got["max"] == max(x), got
assert abs(got["mean"] - mean) < 1e-15 and got["zero"] == x.count(0)
assert abs(got["std"] - math.sqrt(sum((v - mean) ** 2 for v in x) / 45)) < 1e-15
assert got["l1"] == sum(map(abs, x)) and got["l2"] == math.sqrt(sum(v * v for v in x))
END
run 0 "$sonde" show run Gradient___conv1.weight --mode train --step 20 --summary
grep -qx '  mean       nan' "$out" || fail "a mean of NaN: $(cat "$out")"
grep -qx '  nonfinite  2' "$out" || fail "not finite: $(cat "$out")"
run 0 "$sonde" show run Gradient___conv1.weight --mode train --step 20 --histogram
same <(untimed) <(
    cat <<'END'
step 24 (train 20), T
Gradient___conv1.weight: magnitudes of 45 elements
  nan                       1   2.22 %  ██▏
  inf                       1   2.22 %  ██▏
  0                         3   6.67 %  ██████▌
  2^-3 ... 2^-2             5  11.11 %  ██████████▉
  2^-2 ... 2^-1             8  17.78 %  █████████████████▍
  2^-1 ... 2^0             18  40.00 %  ███████████████████████████████████████
  2^0 ... 2^1               9  20.00 %  ███████████████████▌
END
)
run 0 "$sonde" show run Gradient___conv1.weight --mode train --step 20 -g --ascii
! grep -q '[^ -~]' "$out" || fail "--ascii: $(cat "$out")"
grep -qE '^  2\^-1 \.\.\. 2\^0 +18 +40\.00 %  #{39}$' "$out" || fail "bars: $(cat "$out")"
untimed >ascii
run 0 env LC_ALL=C "$sonde" show run Gradient___conv1.weight --mode train --step 20 -g
same <(untimed) ascii
run 0 "$sonde" show run mask -g --step 36 # of raw values: 0, 1, 1
grep -qE '^  2\^0 \.\.\. 2\^1 +2 ' "$out" || fail "bars of a bool: $(cat "$out")"

# --- query ------------------------------------------------------------------------------
run 0 "$sonde" query run 'Gradient*' --steps 20:26 --stat mean,zero,nonfinite
stderr_is ""
same "$out" <(
    cat <<'END'
      step  mode     tensor                            mean           zero      nonfinite
        20  train    Gradient___conv1.weight    -0.01944444              2              0
        21  train    Gradient___conv1.weight     0.03888889              3              0
        24  train    Gradient___conv1.weight            nan              3              2
        25  train    Gradient___conv1.weight    0.008333333              3              0
END
)
run 0 "$sonde" query run @loss --mode eval --steps :2 --stat mean,std --format csv
same <(untimed) <(printf 'step,mode,mode_step,worker,time,tensor,mean,std\n10,eval,0,0,T,loss,0.25,0\n11,eval,1,0,T,loss,0.625,0\n')
run 0 "$sonde" query run '*odd*,loss' --steps 36 --stat max --format jsonl
same <(untimed) <(printf '%s\n' '{"step":36,"mode":"train","mode_step":30,"worker":0,"time":T,"tensor":"loss","max":0.5}' \
    '{"step":36,"mode":"train","mode_step":30,"worker":0,"time":T,"tensor":"scalar/\"odd\", é","max":0.625}')
run 0 "$sonde" query run 'Gradient*' --steps 24:26 --stat mean,nan --format json
python3 - "$out" <<'END' || fail "query --format json"
import json, sys
rows = json.load(open(sys.argv[1]))
assert [row["step"] for row in rows] == [24, 25]
assert rows[0]["mean"] == "NaN" and rows[0]["nan"] == 1, rows
assert isinstance(rows[1]["mean"], float)
END
# Statistics that need values or histograms, where they were saved.
run 0 "$sonde" query run 'Gradient*' --steps 0:13 --stat mean,median,prod,hash --format jsonl
stderr_is "sonde: warning: median needs the value or its histogram, saved at 3 of 11 steps
sonde: warning: median is computed from histograms at 1 of 11 steps, with an error of up to 12.5 %
sonde: warning: prod needs the value, saved at 2 of 11 steps
sonde: warning: hash needs the value, saved at 2 of 11 steps"
python3 - "$out" <<'END' || fail "query of values"
import json, math, statistics, sys
rows = {row["step"]: row for row in map(json.loads, open(sys.argv[1]))}
assert sorted(rows) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12]
for step, row in rows.items():
    values = [((7 * i + 3 * step + 22) % 19 - 9) / 8 for i in range(45)]
    assert math.isclose(row["mean"], statistics.fmean(values), abs_tol=1e-12)
    if step in (0, 12):
        assert row["median"] == statistics.median_low(values)
        assert row["prod"] == math.prod(values) and len(row["hash"]) == 16
    else:
        assert row["prod"] is None and row["hash"] is None
    if step == 5:
        middle = statistics.median_low(values)
        assert abs(row["median"] - middle) <= abs(middle) / 8
END
run 0 "$sonde" query run 'Gradient*' --steps 0:13 --stat p90,abs_prod
same <(cut -c1-49 "$out") <(
    cat <<'END'
      step  mode     tensor                      
         0  train    Gradient___conv1.weight     
         5  train    Gradient___conv1.weight     
        12  train    Gradient___conv1.weight     
END
)
grep -qE '^ +5 .* -$' "$out" || fail "what is not known is not a dash: $(cat "$out")"
run 2 "$sonde" query run 'Gradient*' --steps 1:5 --stat prod
grep -qE "^sonde: error: .*no value" "$err" || fail "said: $(cat "$err")"
run 0 "$sonde" tail run 'Gradient*' -n 1 --stat max,hash,p50
run 0 "$sonde" query run 'nothing*' --format json
stderr_is "sonde: warning: 'nothing*' matches no tensor"
python3 -c 'import json, sys; assert json.load(open(sys.argv[1])) == []' "$out" || fail "not []"

run 2 bash -c "$sonde query run loss >/dev/full"
stderr_is "sonde: error: standard output: cannot be written: No space left on device"

# --- verify -----------------------------------------------------------------------------
run 0 "$sonde" verify run
same "$out" <(echo '84 values (2.6 kB), 80 vital signs, 8 sketches: no damage')
run 0 "$sonde" verify run --quiet
[ ! -s "$out" ] || fail "--quiet is not quiet"

cp -r run bad # a byte of the last value, and one of a row
python3 - bad/w0000/seg-00000000.safetensors bad/w0000/stats-00000000.npy <<'END'
import sys
for path, at in ((sys.argv[1], -1), (sys.argv[2], -30)):
    data = bytearray(open(path, "rb").read())
    data[at] ^= 4
    open(path, "wb").write(data)
END
run 1 "$sonde" verify bad
grep -qE "'loss' at eval step 7.*hash" "$out" || fail "the value is not named: $(cat "$out")"
grep -q 'stats-00000000' "$out" || fail "the row is not named: $(cat "$out")"
grep -qE '^83 values \(2\.6 kB\), 79 vital signs, 8 sketches: intact; 2 damaged$' "$out" ||
    fail "sum: $(tail -1 "$out")"
run 1 "$sonde" verify bad --quiet
run 1 "$sonde" verify bad --format json
python3 - "$out" <<'END' || fail "verify --format json"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["damaged"] == 2 and len(report["messages"]) == 2 and report["records"] == 83, report
assert report["ended"] and not report["crashed"]
END
run 0 "$sonde" ls bad
grep -qx "damage    1 part cannot be read; 'sonde verify' lists it" "$out" ||
    fail "ls of a damaged run: $(cat "$out")"

# a crash costs nothing that was handed over
run 0 "${make[@]}" crashed crash=1
run 0 "$sonde" verify crashed
grep -qx '84 values (2.6 kB), 80 vital signs, 8 sketches: no damage' "$out" ||
    fail "a crash: $(cat "$out")"
grep -q '^the run crashed: ' "$out" || fail "a crash is not reported: $(cat "$out")"
run 0 "$sonde" ls crashed
grep -qx 'status    crashed' "$out" || fail "status: $(cat "$out")"

# two workers, and packed values
run 0 "${make[@]}" two world=2 rank=1 compress=1
run 0 "${make[@]}" two world=2
run 0 "$sonde" ls two
grep -qx 'workers   2 of 2' "$out" || fail "workers: $(cat "$out")"
run 0 "$sonde" show two act --step 36 --format json
grep -q '\[\[-1.125, ' "$out" || fail "of the first worker: $(cat "$out")"
run 0 "$sonde" show two act --step 36 --format json --worker 1
grep -q '\[\[0.5, ' "$out" || fail "of the second worker: $(cat "$out")"
run 0 "$sonde" query two act --steps 36 --stat count,min --worker 1 --format csv
same <(untimed) <(printf 'step,mode,mode_step,worker,time,tensor,count,min\n36,train,30,1,T,act,12,-1\n')

# --- a resumed run ----------------------------------------------------------------------
run 0 "${make[@]}" again crash=1 blocks=3 # to step 35
run 0 "${make[@]}" again resume=20 blocks=4
run 0 "$sonde" ls again
grep -qx 'steps     up to 47: 40 train, 8 eval' "$out" || fail "steps: $(cat "$out")"
untimed | grep -qx 'resumed   from step 20, T' || fail "not said: $(cat "$out")"
grep -qx '          superseded: 16 steps and 51 records' "$out" ||
    fail "not counted: $(cat "$out")"
"$sonde" ls again loss | tail -1 >line
same line <(echo 'loss    loss                float32   ()                       48        0        0  0 ... 47')
run 0 "$sonde" ls again --format json
python3 - "$out" <<'END' || fail "ls --format json of a resumed run"
import json, sys
run = json.load(open(sys.argv[1]))
assert [(r["worker"], r["step"]) for r in run["resumed"]] == [(0, 20)], run["resumed"]
assert (run["superseded"], run["superseded_steps"]) == (51, 16), run
END
run 0 "$sonde" verify again
same "$out" <(printf '%s\n' '109 values (3.3 kB), 104 vital signs, 10 sketches: no damage' \
    'the run was resumed: 51 of these are superseded')
for command in "query RUN re:. --format csv" "query RUN loss" "tail RUN -n 1000" "show RUN act --step 36"; do
    run 0 "$sonde" ${command/RUN/again}
    untimed >of_again
    run 0 "$sonde" ${command/RUN/run}
    same <(untimed) of_again
done
