#!/usr/bin/env bash
# sonde rules: the list, the description of a rule, and mistakes in the command line.
. "$(dirname "$0")/lib.sh"

run 0 "$sonde" rules list
grep -qE '^VanishingGradient +' "$out" || fail "no VanishingGradient: $(cat "$out")"
[ "$(cut -d' ' -f1 "$out")" = "$(cut -d' ' -f1 "$out" | LC_ALL=C sort)" ] || fail "not by name"
# every rule can be shown, in any case
for rule in $(cut -d' ' -f1 "$out"); do
    run 0 "$sonde" rules show "${rule,,}"
    grep -q "^$rule - " "$out" || fail "show $rule: $(cat "$out")"
done
run 0 "$sonde" rules show ExplodingTensor
grep -qx 'needs       tensors (norms; each of the first 20 steps, every 50th step)' "$out" || fail "$(cat "$out")"
grep -qx 'only_nan=false: accept infinities' "$out" || fail "$(cat "$out")"

run 0 "$sonde" rules list schedule
grep -qx 'loss                 vital signs  every step' "$out" || fail "$(cat "$out")"
grep -qE '^gradient +raw values +each of the first [0-9]+ steps, .*[0-9]+ in a row at every [0-9]+th$' "$out" ||
    fail "$(cat "$out")"

run 2 "$sonde" rules show VanishingGradent
stderr_is "sonde: error: unknown rule 'VanishingGradent' (expected VanishingGradient)"
run 2 "$sonde" rules
run 2 "$sonde" rules no_such_run
[ "$(wc -l <"$err")" -eq 1 ] || fail "more than a line: $(cat "$err")"
run 2 "$sonde" rules . --rules 'ExplodingTensor:only_nan=perhaps'
stderr_is "sonde: error: ExplodingTensor:only_nan: 'perhaps' (expected true or false)"
run 2 "$sonde" rules . --rules ExplodingTensor --param only_nam=true
stderr_is "sonde: error: ExplodingTensor: unknown parameter 'only_nam' (expected only_nan)"
run 2 "$sonde" rules . --param only_nan=true
run 2 "$sonde" rules . --rules SimilarAcrossRuns
mkdir empty
run 2 "$sonde" rules empty
# a report takes one run
run 2 "$sonde" rules empty empty --report page.html
stderr_is "sonde: error: --report accepts one run"
# a comma in the other run's name is part of it
run 0 "$SONDE_BIN/tests_export" test_export make one,two
run 0 "$SONDE_BIN/tests_export" test_export make three
run 0 "$sonde" rules three --rules SimilarAcrossRuns --other one,two --no-save
same "$out" <(echo "three: nothing found by 1 rule in 48 steps, 0 to 47")
run 2 "$sonde" rules three --rules SimilarAcrossRuns --other one --no-save

# parts that cannot be read are reported
cp -r three hurt
: >hurt/w0000/catalogue.jsonl
run 1 "$sonde" rules hurt --no-save # and it holds a NaN
grep -q "^hurt: [0-9]* parts* cannot be read; 'sonde verify' lists" "$out" || fail "$(cat "$out")"

# a rule that was asked for by name and cannot judge: 3, and what it lacked
run 3 "$sonde" rules three --rules Confusion --no-save
stderr_is "sonde: warning: three: Confusion did not judge: no labels with predictions were recorded during evaluation"
same "$out" <(echo "three: not judged: no rule had the data it needs (no labels with predictions were recorded during evaluation)")
# a finding weighs more
run 1 "$sonde" rules three --rules Confusion --rules NonFinite --no-save
# only the judged steps are named
run 0 "$sonde" rules three --rules AllZero:threshold=100 --param 'tensor_regex=none\,conv1.*' \
    --steps 2:9 --no-save
same "$out" <(echo "three: nothing found by 1 rule in 7 steps, 2 to 8")
