#!/usr/bin/env bash
# The whole way: draw data, train, evaluate, predict; resume and Ctrl-C; JSON.
. "$(dirname "$0")/lib.sh"

run 0 "$sonde" data synth --out data --train 2000 --test 500
same "$out" <(echo "drawn into data")
run 0 "$sonde" data info fashion-synth --data data --format json
python3 - "$out" <<'END' || fail "data info --format json: $(cat "$out")"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert [(row["split"], row["count"], row["classes"]) for row in rows] == [
    ("train", 2000, 10), ("test", 500, 10)], rows
END

# an epoch
run 0 "$sonde" train fashion_cnn --data data --out one --epochs 1
[ ! -s "$err" ] || fail "training warns: $(cat "$err")"
grep -qE '^epoch 1/1: loss [0-9.]+, test loss [0-9.]+, test accuracy [0-9.]+%, [0-9.]+ s, [0-9]+ samples/s$' \
    "$out" || fail "$(cat "$out")"
# the set is small: the epoch's evaluation has taken all of it, and is the score
loss=$(sed -nE 's/^Eval loss: //p' "$out")
grep -q ", test loss $loss, test $(sed -nE 's/^Eval (accuracy): (.*)/\1 \2/p' "$out")," "$out" || fail "$(cat "$out")"
grep -qE '^Eval accuracy: [0-9.]+%$' "$out" || fail "$(cat "$out")"
tail -1 "$out" | grep -qx "Saved to one: model.safetensors, checkpoint.safetensors, samples.png, loss.png, confusion.png" ||
    fail "$(tail -1 "$out")"
same <(cd one && ls) <(printf '%s\n' checkpoint.safetensors confusion.png loss.png \
    model.safetensors samples.png)
accuracy=$(grep '^Eval accuracy' "$out")
# ten classes, drawn to be told apart: an epoch gets four times better than chance
percent=${accuracy//[!0-9.]/}
[ "${percent%.*}" -ge 40 ] || fail "$accuracy after an epoch"

# evaluation of what was saved says the same
run 0 "$sonde" eval --weights one/model.safetensors --data data --quiet
same "$out" <(echo "$accuracy")
run 0 "$sonde" eval --weights one/model.safetensors --data data --format json --confusion matrix.svg
grep -q '<svg' matrix.svg || fail "no picture of the confusion matrix"
python3 - "$out" "$accuracy" "$loss" <<'END' || fail "eval --format json: $(cat "$out")"
import json, sys
row, = [json.loads(line) for line in open(sys.argv[1])]
matrix = row["confusion"]
assert sum(map(sum, matrix)) == row["samples"] == 500
assert "%.4f" % row["loss"] == sys.argv[3]
assert abs(sum(matrix[i][i] for i in range(10)) / 500 - row["accuracy"]) < 1e-6
assert "Eval accuracy: %.2f%%" % (100 * row["accuracy"]) == sys.argv[2]
END
run 0 "$sonde" eval --weights one/model.safetensors --data data --quiet --batch-size 7 # 500 = 71*7 + 3
same "$out" <(echo "$accuracy")

run 0 "$sonde" eval --weights one/model.safetensors --data data
grep -qx "Eval loss: $loss" "$out" || fail "$(cat "$out")"

# the weights that training leaves where nothing else is said; those of another model
run 2 "$sonde" eval --data data
grep -q '^sonde: error: sonde-out/model.safetensors: ' "$err" || fail "$(cat "$err")"
mkdir sonde-out && cp one/model.safetensors sonde-out
run 0 "$sonde" eval --data data --quiet
same "$out" <(echo "$accuracy")
for command in "eval mnist_mlp" "predict $images/trousers.jpg --model mnist_mlp"; do
    # shellcheck disable=SC2086
    run 2 "$sonde" $command
    grep -qE '^sonde: error: sonde-out/model.safetensors: .* \(expected .* of the model mnist_mlp\)$' "$err" ||
        fail "$(cat "$err")"
done

# images: a JPEG, and a PNG
cp "$images/trousers.jpg" .
run 0 "$sonde" predict --weights one/model.safetensors trousers.jpg one/loss.png \
    --picture seen.png
[ "$(grep -cE '^[a-z/]+\.(jpg|png): ' "$out")" -eq 2 ] || fail "predict: $(cat "$out")"
[ "$(grep -cE '^  .* [0-9.]+%$' "$out")" -eq 6 ] || fail "predict: $(cat "$out")"
[ -s seen-1.png ] && [ -s seen-2.png ] && [ ! -e seen.png ] || fail "no picture of the image"
run 0 "$sonde" predict --weights one/model.safetensors trousers.jpg --format json
python3 - "$out" <<'END' || fail "predict --format json: $(cat "$out")"
import json, sys
row = json.load(open(sys.argv[1]))
assert row["image"] == "trousers.jpg" and 0 <= row["label"] <= 9 and 0 < row["probability"] <= 1
END

# two epochs at once, and one that goes on to two: the same bits
train() {
    run 0 "$sonde" train fashion_cnn --data data --no-eval --no-pictures --format json "$@"
}
train --out two --epochs 2
python3 - "$out" <<'END' || fail "train --format json: $(cat "$out")"
import json, sys
*rows, latency, verdict = [json.loads(line) for line in open(sys.argv[1])]
assert latency["event"] == "latency" and latency["calls"] == 250, latency
assert verdict["event"] == "verdict" and verdict["verdict"] == "nothing found", verdict
assert [row["epoch"] for row in rows] == [1, 2] and rows[1]["step"] == 250, rows
assert all(row["event"] == "epoch" and row["loss"] > 0 for row in rows)
END
train --out first --epochs 1
same <(cksum <first/model.safetensors) <(cksum <one/model.safetensors) # and quietly the same
train --out second --epochs 2 --resume first/checkpoint.safetensors
same <(cksum <second/model.safetensors) <(cksum <two/model.safetensors)
same <(cksum <second/checkpoint.safetensors) <(cksum <two/checkpoint.safetensors)
# looking does not change them; nor does another number of threads
train --out watched --epochs 2 --threads 2 --print 'Gradient___fc2.bias'
grep -q '^Gradient___fc2.bias: ' "$err" || fail "--print prints nothing"
same <(cksum <watched/model.safetensors) <(cksum <two/model.safetensors)
train --out seeded --epochs 1 --seed 1
! cmp -s seeded/model.safetensors one/model.safetensors || fail "the seed changes nothing"
# calls of several steps, steps of several micro-batches
train --out loops --epochs 1 --device-iterations 5 --batch-size 8 --gradient-accumulation 2
grep -q '"step": 125,' "$out" || fail "D = 5, G = 2: $(cat "$out")"

# Ctrl-C: a checkpoint, code 130; what goes on from it ends as if nothing had been
train --out whole --epochs 25
code=0
"$sonde" train fashion_cnn --data data --out cut --epochs 25 --no-eval --no-pictures \
    --format json >"$out" 2>"$err" </dev/null &
child=$!
for _ in $(seq 6000); do # it is stopped while one looks: on a busy machine it may be over before
    sleep 0.005
    kill -STOP "$child" || fail "it was over before it could be interrupted"
    [ "$(wc -l <"$out")" -ge 3 ] && break
    kill -CONT "$child"
done
kill -INT "$child"
kill -CONT "$child"
wait "$child" || code=$?
[ "$code" -eq 130 ] || fail "Ctrl-C ends with $code: $(cat "$err")"
grep -qE '^sonde: warning: interrupted at step [0-9]+; resume with --resume cut/checkpoint\.safetensors$' \
    "$err" || fail "Ctrl-C says $(cat "$err")"
[ ! -e cut/model.safetensors ] || fail "Ctrl-C left a model"
train --out cut --epochs 25 --resume cut/checkpoint.safetensors
same <(cksum <cut/model.safetensors) <(cksum <whole/model.safetensors)
