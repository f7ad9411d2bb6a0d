#!/usr/bin/env bash
# sonde demo: the two demos of the seeds, what is said at the end, and what cannot be. Every demo
# by itself: test_demos_*.sh.
. "$(dirname "$0")/lib.sh"

# as the seeds have it
run 0 "$sonde" demo vanishing_grad --record ./demo_vg/ --rules none
grep -q 'The rules' "$out" && fail "judged in spite of --rules none"
run 1 "$sonde" rules ./demo_vg/ --rules VanishingGradient
grep -q '^step [0-9]*: error: VanishingGradient: Gradient___conv1.weight: ' "$out" ||
    fail "$(cat "$out")"
run 0 "$sonde" demo exploding_tensor --record ./demo_eg/
run 1 "$sonde" rules ./demo_eg/ --rules ExplodingTensor
grep -q ': ExplodingTensor: ' "$out" || fail "$(cat "$out")"

# a window that begins after the fault shows it too
late() { # RUN RULE
    local first last
    run 1 "$sonde" rules "$1" --rules "$2" --format json --no-save
    first=$(grep -oE '"step":[0-9]+' "$out" | grep -oE '[0-9]+' | sort -n | tail -1)
    last=$(grep -oE '"last_step":[0-9]+' "$out" | grep -oE '[0-9]+' | sort -n | tail -1)
    [ "$last" -gt $((first + 20)) ] || fail "$2 ends soon: $first $last"
    run 1 "$sonde" rules "$1" --rules "$2" --format json --no-save --steps "$((first + 10)):$last"
    python3 - "$out" $((first + 10)) "$last" <<'END' || fail "$2 in a window: $(cat "$out")"
import json, sys
begin, end = int(sys.argv[2]), int(sys.argv[3])
found = [json.loads(line) for line in open(sys.argv[1])]
assert found and all(begin <= f["step"] <= f["last_step"] < end for f in found)
END
}
late demo_vg VanishingGradient
late demo_eg NonFinite
late demo_eg ExplodingTensor

# what it says at the end can be pasted; without a folder it takes one that is free
for demo in similar_across_runs learning_rate_too_small; do
    for arguments in "" "--record a'b" ""; do
        # where every step costs ten, one of the two demos
        [ -n "${SONDE_SLOWED_BY-}" ] && [ $demo = learning_rate_too_small ] && continue
        # shellcheck disable=SC2086
        run 0 "$sonde" demo $demo $arguments
        sed -n '/^Next steps:/,$p' "$out" | tail -n +2 | grep -v ' demo ' >next
        [ -s next ] || fail "$demo says no next step"
        while read -r line; do
            bash -c "$line" >.next 2>&1
            [ $? -lt 2 ] || fail "$demo: $line: $(cat .next)"
        done <next
        rm -rf "a'b"*
    done
done
[ -n "${SONDE_SLOWED_BY-}" ] || [ -s sonde-demo/learning_rate_too_small-2.html ] ||
    fail "no report: $(ls sonde-demo)"
[ -s sonde-demo/similar_across_runs-2.png ] || fail "no picture: $(ls sonde-demo)"

# the seed's types of hooks: the rules see what the hook recorded
hook_types() {
    for type in weights-bias-gradients module-input-output saveall; do
        # at this rate values pass quickly through the denormal numbers, which are slow
        run 0 "$sonde" demo vanishing_grad --learning-rate 0.4 --hook-type $type --record hook-$type
        grep -q '^  VanishingGradient  Gradient___conv1.weight$' "$out" || fail "$type: $(cat "$out")"
        "$sonde" ls hook-$type --names >$type
    done
    ! grep -qE '^input|_output_0$' <(grep -v '^loss_' weights-bias-gradients) || fail "$(cat weights-bias-gradients)"
    grep -qx 'relu1_output_0' module-input-output && grep -qx 'input' module-input-output || fail "$(cat module-input-output)"
    ! grep -q '^Gradient___relu' module-input-output || fail "$(cat module-input-output)"
    grep -q '^Gradient___relu' saveall || fail "$(cat saveall)"
    run 1 "$sonde" rules hook-weights-bias-gradients --rules VanishingGradient --no-save
    run 3 "$sonde" demo duplicate_batch --hook-type weights-bias-gradients
    grep -qx "DuplicateBatch did not judge (the run has no inputs): '--hook-type weights-bias-gradients' does not record what it needs." "$out" ||
        fail "$(cat "$out")"
    # raw values now and then among vital signs of every step
    run 0 "$sonde" demo duplicate_batch --hook-type saveall
    run 0 "$sonde" demo nan_in_data --hook-type weights-bias-gradients
    grep -qx "'--hook-type weights-bias-gradients' does not record input: the findings are about other tensors." "$out" || fail "$(cat "$out")"
    run 3 "$sonde" demo learning_rate_too_small --hook-type module-input-output
    grep -q "^WeightUpdateRatio judged [0-9]* tensors at [0-9]* steps; '--hook-type module-input-output' records too little of them.$" "$out" ||
        fail "$(cat "$out")"
    run 0 "$sonde" demo healthy --hook-type weights-bias-gradients --quiet --record hook-healthy
}
[ -n "${SONDE_SLOWED_BY-}" ] || hook_types # the same code, ten times slower
run 2 "$sonde" demo healthy --hook-type all
stderr_is "sonde: error: --hook-type: 'all' (expected weights-bias-gradients, module-input-output or saveall)"

# what cannot be
run 2 "$sonde" demo
stderr_is "sonde: error: demo: no name (expected one that 'sonde demo list' lists)"
run 2 "$sonde" demo vanishing_grd
stderr_is "sonde: error: unknown demo 'vanishing_grd' (expected vanishing_grad)"
run 2 "$sonde" demo healthy --rules some
stderr_is "sonde: error: --rules: 'some' (expected default or none)"
run 2 "$sonde" demo healthy --record ./demo_vg --quiet
run 2 "$sonde" demo healthy --data "$work/nowhere"
[ ! -e sonde-demo/healthy ] || fail "a run without data"
