#!/usr/bin/env bash
# A network that learns its few samples by heart is told so while it trains, and stopped if that is
# wanted; its record, judged again, says the same. One that has samples enough is told nothing.
. "$(dirname "$0")/lib.sh"

run 0 "$sonde" data synth --out few --train 320 --test 500 --quiet
run 0 "$sonde" data synth --out enough --train 6400 --test 500 --quiet
cat >job.yaml <<'END'
model:
  input: [1, 28, 28]
  layers:
    - flatten: {start_dim: 1}
    - linear: {name: fc1, out_features: 128}
    - relu
    - linear: {name: fc2, out_features: 10}
  loss: {cross_entropy: {name: loss}}
data: {name: fashion-synth, mean: 0.286, std: 0.353}
optimizer: {kind: adam, learning_rate: 0.001}
options: {epochs: 100, batch_size: 64, eval_batch_size: 100}
END
train=("$sonde" train job.yaml --no-pictures)

run 0 "${train[@]}" --data few --record few-run --out few-out
line=$(grep ': Overfit: ' "$err")
[ "$(echo "$line" | wc -l)" -eq 1 ] || fail "told more than once: $line"
echo "$line" | grep -qE '^training step [0-9]+ \(step [0-9]+, epoch [0-9]+\): warning: Overfit: loss_output_0: At evaluation [0-9]+ the evaluation loss is ' ||
    fail "not told while it trains: $(cat "$err")"
# an evaluation behind every epoch: it is found as the next one begins
epoch=$(echo "$line" | sed -E 's/.*, epoch ([0-9]+)\).*/\1/')
echo "$line" | grep -q ": At evaluation $((epoch - 1)) the evaluation loss is " || fail "$line"
[ "$epoch" -le 80 ] || fail "found late: $line"
grep -q ': Overtraining: loss_output_0: ' "$err" || fail "no Overtraining: $(cat "$err")"
tail -2 "$out" | grep -q '^doubtful: Overfit in loss_output_0 at training step ' || fail "$(tail -2 "$out")"

# the record says the same: rule, tensor, step and id
ids() {
    python3 - "$1" <<'END'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
print(sorted({(r["id"], r["rule"], r["tensor"], r["step"], r["mode_step"]) for r in rows
              if r["rule"] in ("Overfit", "Overtraining")}))
END
}
cat few-run/findings/Overfit.jsonl few-run/findings/Overtraining.jsonl >live.jsonl
run 1 "$sonde" rules few-run --rules Overfit --rules Overtraining --format json
same <(ids live.jsonl) <(ids "$out")
[ "$(ids live.jsonl | grep -o "'Over[a-z]*', 'loss_output_0'" | wc -l)" -eq 2 ] || fail "$(ids live.jsonl)"

# stopped in the epoch that it is found in
run 1 "${train[@]}" --data few --out stopped --stop-on Overfit
[ "$(grep -c '^epoch ' "$out")" -eq $((epoch - 1)) ] || fail "$(cat "$out")"
# and without evaluations between epochs nobody can tell, which is said of the record
run 0 "${train[@]}" --data few --eval-every 0 --rules Overfit,Overtraining --quiet --out blind --record blind
grep -q '^not judged: ' "$out" || fail "$(cat "$out")"

# 20 times as many samples: not a word
run 0 "${train[@]}" --data enough --epochs 7 --out enough-out --record enough-run
[ ! -s "$err" ] || fail "a healthy run: $(cat "$err")"
grep -qE '^(doubtful|wrong|nothing found)' "$out" || fail "$(cat "$out")"
run 0 "$sonde" rules enough-run --rules Overfit --rules Overtraining
