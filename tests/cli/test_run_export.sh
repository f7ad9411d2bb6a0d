#!/usr/bin/env bash
# sonde export and sonde plot: what is written, and that it is written whole or not at all.
# Other people's readers look at the same files in tests/python/test_exports.py.
. "$(dirname "$0")/lib.sh"
make=("$SONDE_BIN/tests_export" test_export make)
run 0 "${make[@]}" run

# --- statistics -------------------------------------------------------------------------
run 0 "$sonde" export run all.csv --format csv
same "$out" <(echo 'all.csv: 8 tensors, 148 rows')
stderr_is ""
run 0 "$sonde" export run all.jsonl --format jsonl
run 0 "$sonde" export run some.jsonl 'Gradient*' --format jsonl --stat mean,l2 --steps 20:30 --quiet
[ ! -s "$out" ] || fail "--quiet is not quiet: $(cat "$out")"
python3 - <<'END' || fail "statistics"
import csv, json
rows = list(csv.DictReader(open("all.csv", encoding="utf-8", newline="")))
lines = [json.loads(line) for line in open("all.jsonl", encoding="utf-8")]
assert len(rows) == len(lines) == 148
for row, line in zip(rows, lines):
    assert list(row) == list(line)
    for key, value in line.items():
        same = row[key] == str(value) if isinstance(value, str) and key in ("mode", "tensor") else (
            float(row[key]) == float(value) or row[key] == "nan" and value == "NaN")
        assert same, (key, row[key], value)
assert rows[-1]["tensor"] == 'scalar/"odd", é'
gradients = [json.loads(line) for line in open("some.jsonl")]
assert [g["step"] for g in gradients] == [20, 21, 24, 25, 26, 27, 28, 29]
assert list(gradients[0]) == ["step", "mode", "mode_step", "worker", "time", "tensor", "mean", "l2"]
assert gradients[2]["l2"] == "NaN"
END

# --- raw values -------------------------------------------------------------------------
run 0 "$sonde" export run values.csv --format csv --values
same "$out" <(echo 'values.csv: 8 tensors, 84 values')
run 0 "$sonde" export run values.jsonl --format jsonl --values --quiet
run 0 "$sonde" export run few.csv 'conv1*' --format csv --values --elements 2 --steps 0:6 --quiet
same <(sed -E '2,$s/^(([^,]*,){4})[0-9]+\.[0-9]{6},/\1then,/' few.csv) <(
    cat <<'END'
step,mode,mode_step,worker,time,tensor,micro_batch,replica,index,value
0,train,0,0,then,conv1.weight,0,0,0,0.25
0,train,0,0,then,conv1.weight,0,0,1,1.125
5,train,5,0,then,conv1.weight,0,0,0,-0.25
5,train,5,0,then,conv1.weight,0,0,1,0.625
END
)
python3 - <<'END' || fail "values"
import csv, json, math
names = ["loss", "conv1.weight", "Gradient___conv1.weight", "fc.bias", "act", "counter", "mask",
         'scalar/"odd", é']
rows = iter(csv.DictReader(open("values.csv", encoding="utf-8", newline="")))
lines = [json.loads(line) for line in open("values.jsonl", encoding="utf-8")]
assert len(lines) == 84
for line in lines:
    tensor, step, batch = names.index(line["tensor"]), line["step"], line["micro_batch"]
    assert len(line["values"]) == math.prod(line["shape"])
    for i, value in enumerate(line["values"]):
        x = ((7 * i + 3 * step + 11 * tensor + 5 * batch) % 19 - 9) / 8
        if tensor == 2 and line["mode_step"] == 20 and i < 3:
            x = ["NaN", "Infinity", 0][i]
        x = int(8 * x) if tensor == 5 else int(x > 0) if tensor == 6 else x
        row = next(rows)
        assert value == x, (line["tensor"], step, i, value, x)
        assert float(row["value"]) == float(x) or x == "NaN" and row["value"] == "nan"
        assert (row["tensor"], int(row["index"]), int(row["micro_batch"]), row["mode"]) == (
            line["tensor"], i, batch, line["mode"])
assert next(rows, None) is None
END
run 2 "$sonde" export run no.npz --format npz --values
stderr_is "sonde: error: --values: not for npz (expected csv or jsonl)"
run 2 "$sonde" export run no.npz --format npz --stat mean
stderr_is "sonde: error: --stat: not for npz (expected tensorboard, csv or jsonl)"
run 2 "$sonde" export run no.csv --format csv --weights w.safetensors
stderr_is "sonde: error: --weights: not for csv (expected --format onnx)"
run 2 "$sonde" export run no.csv/ --format csv
stderr_is "sonde: error: no.csv/: names a folder (expected a file)"
run 2 "$sonde" export run '~/no.npz' --format npz
grep -q "'~' is not expanded" "$err" || fail "$(cat "$err")"
run 2 "$sonde" export lenet5 no.onnx --format onnx --steps 1:
stderr_is "sonde: error: --steps: not for onnx"
run 2 "$sonde" export lenet5 no.onnx '*.weight' --format onnx
stderr_is "sonde: error: TENSORS: not for onnx"
: >there.onnx
run 2 "$sonde" export lenet5 there.onnx --format onnx
stderr_is "sonde: error: there.onnx: exists already (expected a path where nothing is)"
run 2 "$sonde" export run no.csv --format csv --values --stat mean
run 2 "$sonde" export run no.csv --format csv --elements 3
[ ! -e no.csv ] && [ ! -e no.npz ] || fail "something was written"
run 0 "$sonde" export run all.npz --format npz
same "$out" <(echo 'all.npz: 8 tensors, 84 values')
run 0 "$sonde" export run all.safetensors --format safetensors
same "$out" <(echo 'all.safetensors: 8 tensors, 84 values')
run 0 "$sonde" export run one.npz loss --format npz --mode eval --steps 3
same "$out" <(echo 'one.npz: 1 tensors, 1 values')
python3 - <<'END' || fail "raw values"
import json, struct, zipfile
with zipfile.ZipFile("all.npz") as archive:
    assert archive.testzip() is None
    names = archive.namelist()
    assert len(names) == 84 and names[0] == "0000000000/train/loss.npy"
    bytes_of = {name[:-4]: archive.read(name) for name in names}
data = open("all.safetensors", "rb").read()
head = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + head])
assert header.pop("__metadata__")["model"] == "small"
assert set(header) == set(bytes_of) and (8 + head) % 8 == 0
for name, entry in header.items():
    begin, end = entry["data_offsets"]
    value = data[8 + head + begin:8 + head + end]
    npy = bytes_of[name]
    length = struct.unpack("<H", npy[8:10])[0]
    if entry["dtype"] == "BF16":  # NumPy has none: float32 of the same numbers
        value = b"".join(b"\0\0" + value[i:i + 2] for i in range(0, len(value), 2))
    assert npy[10 + length:] == value, name
    assert f"'shape': ({', '.join(map(str, entry['shape']))}" in npy[:10 + length].decode("latin1")
with zipfile.ZipFile("one.npz") as archive:
    assert archive.namelist() == ["0000000023/eval/loss.npy"]
    assert struct.unpack("<f", archive.read(archive.namelist()[0])[-4:])[0] == (23 * 3 % 19 - 9) / 8
END

# --- TensorBoard ------------------------------------------------------------------------
run 0 "$sonde" export run board --format tensorboard
same "$out" <(echo 'board: 8 tensors, 628 scalars, 32 histograms')
[ "$(ls board)" = "$(printf 'eval\ntrain')" ] || fail "board: $(ls board)"
[ "$(find board -type f -name 'events.out.tfevents.*' | wc -l)" -eq 2 ] || fail "$(find board)"
python3 - board/*/events* <<'END' || fail "events"
import struct, sys
def masked(data):  # bit by bit
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
count, means, versions = 0, 0, 0
for path in sys.argv[1:]:
    data, at = open(path, "rb").read(), 0
    while at < len(data):
        length, check = struct.unpack_from("<QI", data, at)
        event = data[at + 12:at + 12 + length]
        assert masked(data[at:at + 8]) == check and \
            masked(event) == struct.unpack_from("<I", data, at + 12 + length)[0]
        at += 16 + length
        count += 1
        means += b"\x0a\x11conv1.weight/mean" in event
        versions += b"brain.Event:2" in event
assert (count, versions, means) == (628 + 32 + 2, 2, 40), (count, versions, means)
END
run 0 "${make[@]}" two world=2 rank=1
run 0 "${make[@]}" two world=2
run 0 "$sonde" export two board2 --format tensorboard
[ "$(ls board2 | tr '\n' ' ')" = "w0000-eval w0000-train w0001-eval w0001-train " ] ||
    fail "two workers: $(ls board2)"
run 0 "$sonde" export two one.safetensors act --format safetensors --steps 12 --worker 1
same "$out" <(echo 'one.safetensors: 1 tensors, 2 values')
grep -qa '"w0001/0000000012/train/act@1.0"' one.safetensors || fail "no worker in the key"

# --- damage -----------------------------------------------------------------------------
cp -r run bad
python3 - bad/w0000/seg-00000000.safetensors <<'END'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[-1] ^= 4
open(sys.argv[1], "wb").write(data)
END
run 1 "$sonde" export bad bad.npz --format npz
same "$out" <(echo 'bad.npz: 8 tensors, 83 values, 1 left out')
grep -qE "^sonde: warning: left out: .*'loss' at eval step 7" "$err" || fail "not named: $(cat "$err")"
[ "$(wc -l <"$err")" -eq 1 ] || fail "more than a line: $(cat "$err")"
run 1 "$sonde" export bad bad.csv loss --format csv
same "$out" <(echo 'bad.csv: 1 tensors, 47 rows, 1 left out')

run 1 "$sonde" query bad loss --steps 45: --stat mean --format csv
same <(untimed) <(printf 'step,mode,mode_step,worker,time,tensor,mean\n45,train,39,0,T,loss,-0.875\n46,eval,6,0,T,loss,-0.5\n')
grep -qE "^sonde: warning: left out: .*'loss' at eval step 7" "$err" || fail "not named: $(cat "$err")"
run 1 "$sonde" tail bad -n 1
same "$out" <(echo 'step 47  eval 7')
run 1 "$sonde" plot bad loss -o bad.svg
run 1 "$sonde" plot bad loss --histogram -o bad.svg
run 2 "$sonde" show bad loss
grep -qE "^sonde: error: .*'loss' at eval step 7.*hash" "$err" || fail "shown: $(cat "$err")"

# --- pictures ---------------------------------------------------------------------------
run 0 "$sonde" plot run loss -o loss.svg
stderr_is ""
grep -q 'loss, train' loss.svg || fail "modes are not distinguished"
grep -q 'loss, eval' loss.svg || fail "modes are not distinguished"
run 0 "$sonde" plot run loss --mode eval -o loss.svg --title 'A title'
! grep -q 'loss, eval' loss.svg || fail "a mode is named where there is one"
grep -q 'A title' loss.svg || fail "no title"
run 0 "$sonde" plot run '*.weight' 'conv1.*' --stat mean,std --log -o stats.svg
for curve in 'conv1.weight, mean' 'conv1.weight, std' 'Gradient___conv1.weight, std'; do
    grep -q "$curve" stats.svg || fail "no curve of $curve"
done
run 0 "$sonde" plot run Gradient___conv1.weight --histogram -o heat.svg
grep -q 'Gradient___conv1.weight' heat.svg || fail "no title"
grep -q 'log2 |x|' heat.svg || fail "no axis"
grep -q 'Not drawn: 5.28 % zeros, 2 elements that are NaN or infinite' heat.svg ||
    fail "zeros: $(grep -o 'Not drawn[^<]*' heat.svg)"
run 0 "$sonde" plot run loss -o loss.png --smooth 0.9 --width 400
head -c 8 loss.png | od -An -c | grep -q 'P   N   G' || fail "no PNG"

# --- Ctrl-C: nothing is left. The export is stopped while one looks whether it has begun --------
run 0 "${make[@]}" long blocks=1000
for attempt in $(seq 10); do # on a busy machine it may be over before
    rm -f cut.csv
    "$sonde" export long cut.csv --format csv >"$out" 2>"$err" </dev/null &
    child=$!
    for _ in $(seq 6000); do
        sleep 0.002
        kill -STOP "$child" 2>/dev/null || break
        ls .sonde-*.tmp >.listed 2>/dev/null && break
        kill -CONT "$child"
    done
    kill -INT "$child" 2>/dev/null
    kill -CONT "$child" 2>/dev/null
    code=0
    wait "$child" || code=$?
    [ "$code" -ne 0 ] && break
done
[ "$code" -eq 130 ] || fail "Ctrl-C ends an export with $code: $(cat "$err")"
[ ! -e cut.csv ] || fail "a part of an export is left"
! ls .sonde-*.tmp >.listed 2>/dev/null || fail "left: $(cat .listed)"
