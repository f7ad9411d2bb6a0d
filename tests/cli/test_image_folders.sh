#!/usr/bin/env bash
# Folders of images: labels of both splits, data without a test set, color.
. "$(dirname "$0")/lib.sh"

python3 - <<'END'
import os, random, struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
def draw(path, level, channels):
    noise = random.Random(path)
    rows = b"".join(b"\0" + bytes(level + noise.randint(-20, 20) for _ in range(8 * channels)) for _ in range(8))
    head = struct.pack(">IIBBBBB", 8, 8, 8, 0 if channels == 1 else 2, 0, 0, 0)
    open(path, "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
levels = {"cat": 40, "dog": 120, "eel": 210}
for root, splits in (("partial", {"train": "cat dog eel", "test": "cat eel"}), ("flat", {"": "cat dog eel"}),
                     ("trainonly", {"train": "cat dog eel"}), ("color", {"train": "cat dog eel", "test": "cat dog eel"})):
    for split, names in splits.items():
        for name in names.split():
            folder = os.path.join(root, split, name)
            os.makedirs(folder)
            for i in range(16):
                draw("%s/%d.png" % (folder, i), levels[name], 3 if root == "color" else 1)
    open(root + ".yaml", "w").write(
        "model: {input: [%d, 8, 8], layers: [flatten, linear: {name: fc, out_features: 3}], loss: cross_entropy}\n"
        "data: {path: %s}\noptimizer: {learning_rate: 0.1}\noptions: {epochs: 15, batch_size: 8}\n"
        % (3 if root == "color" else 1, root))
END
train=("$sonde" train --no-pictures --rules none)

# a class that test lacks: the labels are those of training
run 0 "${train[@]}" partial.yaml --out partial-out
grep -qx "Eval accuracy: 100.00%" "$out" || fail "$(cat "$out")"
grep -qE '^dog +0 ' "$out" && grep -qE '^eel +16 ' "$out" || fail "$(cat "$out")"
run 0 "$sonde" predict --model partial.yaml --weights partial-out/model.safetensors partial/test/eel/1.png
grep -qx "partial/test/eel/1.png: eel" "$out" || fail "$(cat "$out")"

# no test set: nothing is called test accuracy; held-out samples score
for data in flat trainonly; do
    run 0 "${train[@]}" $data.yaml --out $data-out
    ! grep -qE 'test|Eval' "$out" || fail "$(cat "$out")"
    stderr_is "sonde: warning: $data: no folder test, so nothing is evaluated; 'validation' holds out samples to evaluate on"
done
run 0 "${train[@]}" flat.yaml --out held --validation 0.25 --format json
stderr_is ""
grep '"event": "eval"' "$out" | tail -1 | grep -q '"eval_set": "val".*"samples": 12}' || fail "$(cat "$out")"
run 0 "$sonde" eval flat.yaml --weights held/model.safetensors --quiet
stderr_is "sonde: warning: flat has no folder test: all of its images are evaluated, those of training too"
run 2 "$sonde" eval trainonly.yaml --weights trainonly-out/model.safetensors --quiet
stderr_is "sonde: error: trainonly: has no folder 'test' (expected train and test)"

# a color model, of color and gray images
run 0 "${train[@]}" color.yaml --out color-out --quiet
run 0 "$sonde" predict --model color.yaml --weights color-out/model.safetensors color/test/eel/1.png flat/cat/3.png --top 1
same <(grep -v '^ ' "$out") <(printf '%s: %s\n' color/test/eel/1.png eel flat/cat/3.png cat)

# names of data sets
printf 'model: mnist_mlp_small\ndata: {name: fashion-minst}\n' >misspelt.yaml
run 2 "$sonde" train misspelt.yaml
stderr_is "sonde: error: data set: no data set is called 'fashion-minst' (expected fashion-mnist)"
run 2 "$sonde" eval misspelt.yaml --weights partial-out/model.safetensors
run 2 "$sonde" train --data-name cifar10
grep -q "no data set is called 'cifar10'" "$err" || fail "$(cat "$err")"

# a set that cannot be fetched: the stand-in is announced, in JSON too
export http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9 SONDE_CACHE=$work/cache
run 0 "$sonde" data synth --out cache/data/fashion-synth --train 200 --test 50 --quiet # small
run 0 "$sonde" train mnist_mlp_small --epochs 0 --no-pictures --no-eval --format json --out none
grep -qE '^sonde: warning: mnist cannot be fetched \(.*\); a drawn stand-in is used' "$err" || fail "$(cat "$err")"
grep -qx '{"event": "stand_in", "data": "fashion-synth", "stands_for": "mnist"}' "$out" || fail "$(cat "$out")"
run 0 "$sonde" eval mnist_mlp_small --weights none/model.safetensors --format json
grep -q '"stand_in": "fashion-synth", "stands_for": "mnist"' "$out" || fail "$(cat "$out")"

# the name of a class may hold a newline: it stays on its line of every table
cp -r flat lines && mv lines/dog $'lines/dog\nand\tcat'
sed 's/path: flat/path: lines/' flat.yaml >lines.yaml
shown='dog\\x0aand\\x09cat'
run 0 "${train[@]}" lines.yaml --out lines-out
run 0 "$sonde" eval lines.yaml --weights lines-out/model.safetensors
grep -qE "^$shown +[0-9]+ " "$out" || fail "$(cat "$out")"
run 0 "$sonde" predict --model lines.yaml --weights lines-out/model.safetensors --top 3 lines/dog*/1.png
grep -qxF 'lines/dog\x0aand\x09cat/1.png: dog\x0aand\x09cat' "$out" || fail "$(cat "$out")"
[ "$(wc -l <"$out")" = 4 ] || fail "$(cat "$out")"
