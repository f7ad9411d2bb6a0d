#!/usr/bin/env bash
# sonde train judges itself: the verdict, findings as they come, stopping on one; requests from
# outside: sonde stop, sonde checkpoint, sonde rules --follow --on-finding.
. "$(dirname "$0")/lib.sh"

run 0 "$sonde" data synth --out data --train 800 --test 100
train() { # CODE ARGUMENT...
    local want=$1
    shift
    run "$want" "$sonde" train --data data --no-pictures --epochs 1 "$@"
}

# healthy: one line behind the accuracy, and not a bit different from a run that nobody judges
train 0 --out one --quiet
[ ! -s "$err" ] || fail "a healthy run: $(cat "$err")"
[ "$(wc -l <"$out")" -eq 2 ] || fail "not two lines: $(cat "$out")"
tail -1 "$out" | grep -qE '^nothing found by [0-9]+ rules in [0-9,]+ steps, 0 to [0-9]+; [0-9]+ rules had no data \(no ' || fail "$(cat "$out")"
train 0 --out none --quiet --rules none
[ "$(wc -l <"$out")" -eq 1 ] || fail "--rules none: $(cat "$out")"
train 0 --out each --quiet --rules-every 1
for other in none each; do
    same <(cksum <one/model.safetensors) <(cksum <$other/model.safetensors)
done
train 0 --out named --quiet --no-eval --rules NonFinite,VanishingGradient:threshold=1e-9,patience=2
same "$out" <(echo "nothing found by 2 rules in 50 steps, 0 to 49")

# a run that goes wrong: findings at once on stderr, kept with the run, summed up
train 0 --out hot --quiet --learning-rate 1e6 --record hot-run --vitals-every 10
tail -1 "$out" | grep -qE '^wrong: [A-Za-z]+ in [^ ]+ at [a-z0-9 ()]+: .*; [0-9]+ more findings follow from it.*; sonde rules show [A-Za-z]+$' ||
    fail "$(cat "$out")"
grep -qE '^step 1 \(epoch 1\): error: WeightUpdateRatio: ' "$err" || fail "nobody spoke: $(cat "$err")"
! grep -qE 'NonFinite|ExplodingTensor' "$err" || fail "what follows is printed: $(cat "$err")"
[ "$(wc -l <hot-run/findings/ExplodingTensor.jsonl)" -gt 20 ] || fail "few findings are kept"
# each names the finding that it follows from, which has no cause
cause=$(sed -n '1s/.*"id": *"\([0-9a-f]*\)".*/\1/p' hot-run/findings/WeightUpdateRatio.jsonl)
[ -n "$cause" ] && ! grep -qhv "\"because_of\": *\"$cause\"" hot-run/findings/{NonFinite,ExplodingTensor}.jsonl ||
    fail "not because of $cause: $(head -1 hot-run/findings/ExplodingTensor.jsonl)"
grep -q '"because_of": *null' hot-run/findings/WeightUpdateRatio.jsonl || fail "no cause: $(cat hot-run/findings/*)"
# its lines have numbers: one that is missing is reported
run 0 "$sonde" verify hot-run
cp hot-run/findings/ExplodingTensor.jsonl kept.jsonl
sed 3d kept.jsonl >hot-run/findings/ExplodingTensor.jsonl
run 1 "$sonde" verify hot-run
grep -q 'ExplodingTensor.jsonl: 1 lines before the one of number 4 are missing' "$out" "$err" || fail "$(cat "$out" "$err")"
mv kept.jsonl hot-run/findings/ExplodingTensor.jsonl
# the tensor is named, not only the loss, although everything is looked at every tenth step
! grep -q 'NonFinite: loss_output_0' "$err" || fail "the loss is blamed: $(cat "$err")"
# as the recorded run says, where that has the evidence; it says that more was found, and judging
# it again adds nothing
run 1 "$sonde" rules hot-run
grep -qE '^hot-run: wrong: [A-Za-z]+ in [^ ]+ at step [0-9]+: ' "$out" || fail "$(cat "$out")"
tail -1 "$out" | grep -qE '^hot-run/findings: [0-9]+ more findings? of these rules, made from data that was not recorded or with other parameters$' ||
    fail "$(tail -2 "$out")"
cat hot-run/findings/* | sort >kept
cp "$out" first
run 1 "$sonde" rules hot-run
same "$out" first
same <(cat hot-run/findings/* | sort) kept
train 0 --out hot --format json --learning-rate 1e6
python3 - "$out" <<'END' || fail "train --format json: $(cat "$out")"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
found = [row for row in rows if row["event"] == "finding"]
assert found and all(row["epoch"] == 1 and row["rule"] and row["severity"] and row["message"] for row in found)
verdict, = [row for row in rows if row["event"] == "verdict"]
assert 0 < verdict["following"] < len(found)
assert verdict["verdict"] == "wrong" and verdict["errors"] + verdict["warnings"] + verdict["notes"] + verdict["resolved"] == len(found)
END

# --stop-on: after that step, with weights and a checkpoint, and a status of its own
train 1 --out stopped --learning-rate 1e6 --record stopped-run --stop-on NonFinite --epochs 3
grep -qE '^sonde: warning: stopped after [0-9]+ steps: NonFinite at step [0-9]+ in .*; resume with --resume stopped/checkpoint.safetensors$' \
    "$err" || fail "$(cat "$err")"
grep -q '"reason":"rule"' stopped-run/end.json || fail "$(cat stopped-run/end.json)"
grep -q '"text":"NonFinite at step ' stopped-run/end.json || fail "$(cat stopped-run/end.json)"
step=$(grep -oE 'NonFinite at step [0-9]+' stopped-run/end.json | grep -oE '[0-9]+')
grep -q "\"last_step\":$step," stopped-run/end.json || fail "not at the next step: $(cat stopped-run/end.json)"
[ -s stopped/model.safetensors ] && [ -s stopped/checkpoint.safetensors ] || fail "nothing is saved"
! grep -q '^Eval' "$out" || fail "evaluated all the same"
train 0 --out healthy --quiet --stop-on any --stop-on error

# what is done is told as the command tells all else, and a finding that stands there not once more
run 1 env -u SONDE_LOG_LEVEL "$sonde" train --data data --no-pictures --quiet --out spoken \
    --learning-rate 1e6 --on-finding log --stop-on error --on-finding 'command:cat >/dev/null'
! grep -vE '^(step [0-9]+ \(epoch 1\)|sonde: warning|sonde): ' "$err" || fail "$(cat "$err")"
grep -qE '^sonde: stop requested: [A-Za-z]+ at step [0-9]+ in ' "$err" || fail "$(cat "$err")"
grep -qE "^sonde: command 'cat >/dev/null' for .*: status 0\$" "$err" || fail "$(cat "$err")"
first=$(sed -nE '1s/^step [0-9]+ \(epoch 1\): [a-z]+: ([A-Za-z]+): .*/\1/p' "$err")
! grep -q "^sonde: error: $first at step" "$err" || fail "told twice: $(cat "$err")"
# with a level it is a log, of its own
SONDE_LOG_LEVEL=info run 1 "$sonde" train --data data --no-pictures --quiet --out spoken \
    --learning-rate 1e6 --stop-on error
grep -qE '^\[[0-9:.]+\] \[actions\] \[info\] stop requested: ' "$err" || fail "$(cat "$err")"

# the same in a job, and what a command is given
cat >job.yaml <<'END'
model: fashion_cnn
rules:
  judge: [NonFinite, "ExplodingTensor:only_nan=true"]
  every: 5
  stop_on: error
  on_finding: ["NonFinite=command:cat >finding.json", "checkpoint"]
END
SONDE_LOG_LEVEL=info train 1 job.yaml --out job --learning-rate 1e6 --record job-run
python3 - <<'END' || fail "the command had no finding"
import json
assert json.load(open("finding.json"))["rule"] == "NonFinite"
END
ls job-run/checkpoints/step-*.safetensors >/dev/null || fail "no checkpoint"
grep -q '\[actions\] \[info\] stop requested: ' "$err" || fail "actions say nothing: $(cat "$err")"
train 0 job.yaml --out job-quiet --rules none --quiet --learning-rate 1e6
[ ! -s "$err" ] || fail "--rules does not win over the job: $(cat "$err")"

# requests from outside
wait_for_steps() { # RUN
    for _ in $(seq 3000); do
        [ "$(wc -l <"$out")" -ge 1 ] && [ -e "$1/w0000/state.json" ] && return
        sleep 0.02
    done
    fail "$1 never began: $(cat "$err")"
}
start() { # RUN ARGUMENT...
    "$sonde" train --data data --out live --no-pictures --no-eval --epochs 100000 --format json \
        --record "$@" >"$out" 2>"$err" </dev/null &
    child=$!
    wait_for_steps "$1"
}
ended() { # CODE
    local code=0
    wait "$child" || code=$?
    [ "$code" -eq "$1" ] || fail "status $code, not $1: $(cat "$err")"
}
# --- a run that stalls, and the parameters that stop it -------------------------------------
stall() { # PREFIX
    run 2 "$sonde" rules run --follow --stall 2 --no-save \
        --rules "StalledTraining:threshold=1,stop_training_on_fire=True,training_job_name_prefix=$1"
    grep -q 'StalledTraining' "$out" || fail "$(cat "$out" "$err")"
}
"$SONDE_BIN/tests_export" test_export make run pause=5000 >/dev/null 2>&1 &
staller=$!
for _ in $(seq 3000); do
    [ "$(wc -l 2>/dev/null <run/w0000/seg-00000000.jsonl || echo 0)" -ge 1 ] && break
    sleep 0.02
done
stall other
[ ! -s run/control.jsonl ] || fail "asked to stop a job of another name: $(cat run/control.jsonl)"
stall ru
grep -q '"stop"' run/control.jsonl || fail "no request: $(cat run/control.jsonl)"
kill "$staller"
wait "$staller" || true
rm -r run

start run
"$sonde" checkpoint run >/dev/null || fail "checkpoint"
for _ in $(seq 3000); do
    ls run/checkpoints/step-*.safetensors >/dev/null 2>&1 && break
    sleep 0.02
done
ls run/checkpoints/step-*.safetensors >/dev/null || fail "no checkpoint of a live run"
[ "$("$sonde" stop run --text 'enough "of it"')" = "run: stop requested" ] || fail "stop"
ended 130
grep -q '"reason":"interrupted","text":"enough \\"of it\\""' run/end.json || fail "$(cat run/end.json)"
grep -q '"event": "stopped"' "$out" || fail "$(tail -1 "$out")"
run 2 "$sonde" stop run
stderr_is "sonde: error: run: the run has ended (expected a run that has not ended)"
run 2 "$sonde" checkpoint data
run 2 "$sonde" stop

# another terminal judges, and stops it
start followed --learning-rate 1e6 --rules none --record-every 1 --vitals-every 1
run 1 "$sonde" rules --follow followed --rules NonFinite --on-finding error=stop
ended 1
grep -q '"reason":"rule"' followed/end.json || fail "$(cat followed/end.json)"
grep -qE '^step [0-9]+: error: NonFinite: ' <("$sonde" rules followed --rules NonFinite) || fail "no finding"
# and of a run that has ended nothing can be stopped, which is said
run 1 "$sonde" rules followed --rules NonFinite --on-finding stop
grep -q 'stop for NonFinite .* failed: followed: the run has ended' "$err" || fail "$(cat "$err")"

# mistakes
check() { # PATTERN ARGUMENT...
    local pattern=$1
    shift
    run 2 "$sonde" train --data data --out bad --quiet "$@"
    grep -qE "^sonde: error: $pattern\$" "$err" || fail "$*: $(cat "$err")"
}
check "unknown rule 'NonFinte' \(expected NonFinite\)" --rules NonFinte
check "action: no rule 'NonFinte' is in use \(expected NonFinite\)" --stop-on NonFinte
check "--stop-on: 'a=b' .*" --stop-on a=b
check "action: 'dance' .*" --on-finding dance
check "webhook: 'nowhere' \(expected http.*" --on-finding webhook:nowhere
check "--rules: no rule judges, .*" --rules none --stop-on any
check "--action-timeout: '-1' .*" --action-timeout -1 --on-finding log
printf 'model: fashion_cnn\nrules: [NonFinte]\n' >bad.yaml
check "bad\.yaml:2: unknown rule 'NonFinte' \(expected NonFinite\)" bad.yaml
printf 'model: fashion_cnn\nrules: {judge: default,\n  stop: error}\n' >bad.yaml
check "bad\.yaml:3: unknown key 'stop' \(expected stop_on\)" bad.yaml
