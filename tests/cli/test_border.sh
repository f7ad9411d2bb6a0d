#!/usr/bin/env bash
# What reaches a terminal and a parser: control characters in names are escaped, NaN has one
# spelling in JSON, a reader that follows a crashed run says so, and verify says what
# smdebug's directories cannot show.
. "$(dirname "$0")/lib.sh"
make=("$SONDE_BIN/tests_export" test_export make)
runs=$SONDE_TEST_DIR/golden/runs

# --- control characters ------------------------------------------------------------------
cp -r "$runs/v1" evil
sed -i 's/"name":"fc1.weight"/"name":"fc1\\u001b]0;owned\\u0007\\u009b31m.weight"/' \
    evil/w*/catalogue.jsonl
raw() { LC_ALL=C grep -q "$(printf '[\033\007\302\233]')" "$1"; }
for command in "ls evil" "show evil * --step 0" "tail evil @weights -n 1" "query evil @weights" \
    "rules evil --no-save" "ls evil fc1*x"; do
    set -f
    # shellcheck disable=SC2086
    "$sonde" $command >"$out" 2>"$err"
    set +f
    raw "$out" && fail "$command: a control character on stdout"
    raw "$err" && fail "$command: a control character on stderr"
done
run 0 "$sonde" ls evil
grep -qF 'fc1\x1b]0;owned\x07\x9b31m.weight' "$out" || fail "not escaped: $(cat "$out")"
"$sonde" ls "$(printf 'no\033[31mrun')" 2>"$err" && fail "no run"
grep -qF 'no\x1b[31mrun' "$err" || fail "a path is not escaped: $(cat "$err")"
"$sonde" ls "$(printf 'no\nrun')" 2>"$err" && fail "no run"
grep -qF 'sonde: error: no\x0arun: ' "$err" || fail "a newline is not escaped: $(cat "$err")"
run 0 "$sonde" ls evil --format json
python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$out" || fail "JSON"

# --- JSON of names that are no words ------------------------------------------------------
# quotes, a backslash, a newline, an escape and a byte that is not UTF-8
hostile=$(printf 'a"b\\c\nd\033e\377f')
mkdir "$hostile"
cp -r evil "$hostile/run"
is_json() {
    python3 - "$out" <<'END' || fail "$*: no JSON: $(cat -v "$out")"
import json, sys
text = open(sys.argv[1], "rb").read().decode("utf-8")
try:
    json.loads(text)
except ValueError:
    for line in text.splitlines():
        json.loads(line)
END
}
for command in "ls" "show fc1.bias --step 0" "tail @weights" "query @weights --format json" "rules --no-save --rules TensorVariance:max_threshold=0" verify; do
    set -f
    # shellcheck disable=SC2086
    set -- $command
    set +f
    case $1 in query) json=() ;; *) json=(--format json) ;; esac
    "$sonde" "$1" "$hostile/run" "${@:2}" "${json[@]}" >"$out" 2>"$err"
    [ -s "$out" ] || fail "$command prints nothing: $(cat "$err")"
    is_json "$command"
done
run 0 "$sonde" ls "$hostile" --format json
is_json "ls of a folder"
run 0 "$sonde" data synth --out "$hostile/data" --train 64 --test 32 --quiet
run 0 "$sonde" train mnist_mlp_small --epochs 1 --data "$hostile/data" --out "$hostile/out" \
    --record "$hostile/trained" --format json
is_json train
run 0 "$sonde" eval mnist_mlp_small --weights "$hostile/out/model.safetensors" --data "$hostile/data" --format json
is_json eval
cp "$images/trousers.jpg" "$hostile/t.jpg"
run 2 "$sonde" predict --model mnist_mlp_small --weights "$hostile/out/model.safetensors" --format json "$hostile/t.jpg" "$hostile/none.jpg"
is_json predict
[ "$(wc -l <"$err")" -eq 1 ] || fail "an error of several lines: $(cat "$err")"

# --- a crash that is followed ------------------------------------------------------------
run 0 "${make[@]}" crashed crash=1
run 1 "$sonde" tail crashed --follow -n 1
run 1 "$sonde" rules crashed --follow --no-save --rules NonFinite
grep -q 'crashed: the writer disappeared without ending the run' "$err" ||
    fail "rules --follow of a crashed run: $(cat "$err")"

# --- NaN in JSON -------------------------------------------------------------------------
"$sonde" rules crashed --no-save --format json --rules NonFinite --rules ExplodingTensor >"$out"
LC_ALL=C grep -Eq '"(nan|inf|-inf)"|: (nan|inf|-inf)' "$out" && fail "NaN: $(cat "$out")"

# --- collections of smdebug --------------------------------------------------------------
run 0 "$sonde" ls "$runs/smdebug-collections" @losses
grep -q '^train-rmse ' "$out" || fail "@losses: $(cat "$out")"
run 0 "$sonde" ls "$runs/smdebug-collections" @mine
grep -q '^train-auc ' "$out" || fail "@mine: $(cat "$out")"
run 0 "$sonde" query "$runs/smdebug-reductions" Net_fc.weight --stat max
[ "$(grep -c 'Net_fc.weight' "$out")" -eq 2 ] || fail "two steps: $(cat "$out")"

# --- no checksums ------------------------------------------------------------------------
run 0 "$sonde" verify "$runs/smdebug"
grep -q 'no checksums of values' "$out" || fail "verify of smdebug: $(cat "$out")"
run 0 "$sonde" verify "$runs/smdebug" --format json
grep -q '"unchecked": true' "$out" || fail "verify --format json: $(cat "$out")"

# --- a path that only a shell expands ----------------------------------------------------
HOME=$work run 2 "$sonde" ls "~/run"
stderr_is "sonde: error: ~/run: '~' is not expanded (expected $work/run, or ./~/run for a folder of that name)"
run 2 "$sonde" rules "~/run" --rules NonFinite
grep -q "'~' is not expanded (expected $HOME/run, or " "$err" || fail "rules ~/run: $(cat "$err")"
run 2 "$sonde" export "$runs/v1" "~/out.csv" --format csv
run 2 "$sonde" train mnist_mlp_small --epochs 1 --no-eval --record "~/run"
grep -q "'~' is not expanded" "$err" || fail "--record ~/run: $(cat "$err")"
[ ! -e "~" ] || fail "a folder called ~"

# --- a run without an end ----------------------------------------------------------------
cp -r "$runs/smdebug" unended
rm unended/training_job_end.ts
python3 - unended/events/*/* <<'END'
import struct, sys, time
for path in sys.argv[1:]:
    with open(path, "r+b") as file:
        bytes, place = bytearray(file.read()), 0
        while place < len(bytes):
            struct.pack_into("<d", bytes, place + 13, time.time() - 3 * 86400 - 7200)
            place += struct.unpack_from("<Q", bytes, place)[0] + 16
        file.seek(0)
        file.write(bytes)
END
run 0 "$sonde" ls unended
grep -q '^status    no end was written; last change 3 d 2 h ago$' "$out" || fail "$(cat "$out")"
run 0 "$sonde" verify unended
tail -1 "$out" | grep -q '^no end was written; last change 3 d 2 h ago$' || fail "$(cat "$out")"
run 1 "$sonde" rules --follow unended --rules StalledTraining
grep -q 'StalledTraining: The run has had no new step for 266[34][0-9][0-9] s' "$out" || fail "$(cat "$out")"
grep -q 'no end was written; last change 3 d 2 h ago$' "$err" || fail "$(cat "$err")"
run 2 "$sonde" rules --follow --stall 1 unended --rules NonFinite
grep -q 'no new step for 1 s' "$err" || fail "$(cat "$err")"
run 1 "$sonde" tail --follow unended
grep -q 'no end was written; last change 3 d 2 h ago$' "$err" || fail "$(cat "$err")"

# --- standard streams that are closed ----------------------------------------------------
# Messages must not reach a file that took the number of a stream.
run 0 "$sonde" data synth --out garments --train 320 --test 40 --quiet
code=0
"$sonde" train mnist_mlp_small --data garments --learning-rate 1e30 --print fc1.bias --no-pictures \
    --record unheard --out unheard-out <&- >&- 2>&- || code=$?
[ "$code" -eq 2 ] || fail "train without standard streams: status $code"
run 0 "$sonde" verify unheard
grep -q 'lost\|crashed' "$out" && fail "a run without streams: $(cat "$out")"
grep -q ' vital signs, .*: no damage$' "$out" || fail "a run without streams: $(cat "$out")"
