#!/usr/bin/env bash
# sonde demo: every network goes wrong as it says, the right rule names the right tensor, and
# of the network put right no rule says anything.
. "$(dirname "$0")/lib.sh"
unset COLUMNS

run 0 "$sonde" demo list
demos=$(cut -d' ' -f1 "$out")
[ "$(wc -l <"$out")" -ge 15 ] || fail "few demos: $demos"

# the sanitizers' machines see the mechanisms, not every network
case ${SONDE_SANITIZE-} in
?*) demos="healthy overfit frozen_layer nan_in_data similar_across_runs" ;;
esac
# the status tells whether the rules said what they should
for demo in $demos; do
    run 0 "$sonde" demo "$demo" --record wrong
    [ ! -s "$err" ] || fail "$demo: $(cat "$err")"
    rule=$(sed -n 's/^  rule  *//p' "$out")
    if [ -n "$rule" ]; then
        grep -q "^  $rule  " "$out" || fail "$demo: no finding of $rule: $(cat "$out")"
        ls wrong/findings/"$rule".jsonl >/dev/null || fail "$demo: findings are not kept"
    else
        grep -qx 'The rules found nothing.' "$out" || fail "$demo: $(cat "$out")"
    fi
    # what it says at the end can be pasted
    sed -n '/^Go on with:/,$p' "$out" | tail -n +2 | grep -v ' demo ' >next
    [ -s next ] || fail "$demo says no next step"
    while read -r line; do
        bash -c "$line" >.next 2>&1
        [ $? -lt 2 ] || fail "$demo: $line: $(cat .next)"
    done <next
    [ -s wrong.html ] && [ -s wrong.png ] || fail "$demo: no report or no picture"
    run 0 "$sonde" demo "$demo" --fixed --record right --quiet
    grep -qx 'The rules found nothing.' "$out" || fail "$demo --fixed: $(cat "$out")"
    rm -rf wrong* right*
done

# as the seeds have it
run 0 "$sonde" demo vanishing_grad --record ./demo_vg/ --rules none
grep -q 'The rules' "$out" && fail "judged in spite of --rules none"
run 1 "$sonde" rules ./demo_vg/ --rule VanishingGradient
grep -q '^step [0-9]*: error: VanishingGradient: Gradient___conv1.weight: ' "$out" ||
    fail "$(cat "$out")"
run 1 "$sonde" rules --trial-dir ./demo_vg/ --rule-name VanishingGradient
run 0 "$sonde" demo --rule_type exploding_tensor --output-uri ./demo_eg/
run 1 "$sonde" rules --trial-dir ./demo_eg/ --rule-name ExplodingTensor
grep -q ': ExplodingTensor: ' "$out" || fail "$(cat "$out")"

# without a folder: one that is free
run 0 "$sonde" demo learning_rate_too_small --quiet
run 0 "$sonde" demo learning_rate_too_small --quiet
[ -d sonde-demo/learning_rate_too_small-2 ] || fail "$(ls sonde-demo)"

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
