#!/usr/bin/env bash
# sonde predict: names of classes, several files, equal scores, color.
. "$(dirname "$0")/lib.sh"

# more classes than the data set names; scores that are all equal
cat >wide.yaml <<'END'
model: {input: [1, 28, 28], layers: [flatten, linear: {name: fc, out_features: 1000}], loss: cross_entropy}
data: {name: fashion-mnist}
END
python3 - <<'END'
import json, struct
header, data = {}, b""
for name, shape in (("fc.weight", [1000, 784]), ("fc.bias", [1000])):
    size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + size]}
    data += bytes(size)
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open("zero.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
END
run 0 "$sonde" predict --model wide.yaml --weights zero.safetensors "$images/trousers.jpg" --top 1000
[ "$(wc -l <"$out")" -eq 1001 ] || fail "--top 1000 prints $(wc -l <"$out") lines"
[ "$(sed -n 2p "$out")" = "  T-shirt        0.1%" ] || fail "$(sed -n 2p "$out")"
[ "$(sed -n 12p "$out")" = "  10             0.1%" ] || fail "$(sed -n 12p "$out")"
[ "$(tail -1 "$out")" = "  999            0.1%" ] || fail "$(tail -1 "$out")"

# a bad file among good ones; a picture for each; names that JSON escapes
cp "$images/trousers.jpg" 'my "x".jpg'
echo "no image" >bad.png
run 2 "$sonde" predict --model wide.yaml --weights zero.safetensors bad.png 'my "x".jpg' "$images/trousers.jpg" --picture p.png --format json
grep -q '^sonde: error: bad.png: ' "$err" || fail "$(cat "$err")"
python3 - "$out" <<'END' || fail "predict --format json: $(cat "$out")"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert len(rows) == 2 and rows[0]["image"] == 'my "x".jpg', rows
END
run 0 "$sonde" predict --model wide.yaml --weights zero.safetensors "$images/trousers.jpg" --format json --top 2
[ "$(cat "$out")" = '{"image": "'"$images/trousers.jpg"'", "label": 0, "class": "T-shirt", "probability": 0.001000, "top": [{"label": 0, "class": "T-shirt", "probability": 0.001000}, {"label": 1, "class": "Trouser", "probability": 0.001000}]}' ] ||
    fail "predict --format json --top 2: $(cat "$out")"
[ ! -e p.png ] && [ -s p-2.png ] && [ -s p-3.png ] || fail "pictures: $(ls)"
cat >names.yaml <<'END'
model: {input: [1, 28, 28], layers: [flatten, linear: {name: fc, out_features: 2}], loss: cross_entropy}
END
run 0 "$sonde" tensors names.yaml --format json
python3 -c 'import json, sys; [json.loads(line) for line in open(sys.argv[1])]' "$out" || fail "tensors --format json"

# one image has no batch to normalize over
run 0 "$sonde" data synth --out data --train 400 --test 40 --quiet
run 0 "$sonde" train mnist_mlp --data data --epochs 1 --batch-size 100 --out mlp --no-pictures --quiet
run 0 "$sonde" predict --model mnist_mlp --weights mlp/model.safetensors "$images/trousers.jpg" --top 10
[ "$(sed 1d "$out" | sort -u -k2 | awk '{print $2}' | sort -u | wc -l)" -gt 3 ] || fail "all scores are alike: $(cat "$out")"

# outputs without a class: counted, not listed; the classes in JSON
run 0 "$sonde" eval wide.yaml --weights zero.safetensors --data data
[ "$(tail -1 "$out")" = "990 more outputs of the model are not classes of the data" ] || fail "$(tail -1 "$out")"
[ "$(wc -l <"$out")" -eq 14 ] || fail "eval prints $(wc -l <"$out") lines"
run 0 "$sonde" eval wide.yaml --weights zero.safetensors --data data --format json
grep -q '"classes": \["T-shirt", "Trouser", .*"Ankle boot", null, ' "$out" || fail "$(head -c 300 "$out")"

# a pickle
printf 'PK\3\4 and so on: model/data.pkl' >model.pth
run 2 "$sonde" predict --model wide.yaml --weights model.pth "$images/trousers.jpg"
grep -q '^sonde: error: model.pth: a pickle of PyTorch.* (expected .*safetensors.*)$' "$err" || fail "$(cat "$err")"
