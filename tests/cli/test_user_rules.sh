#!/usr/bin/env bash
# sonde rules with files of rules: the page docs/own_rules.md does what it says, block by block;
# --plugin, its errors, and a rule that crashes while a run is followed.
. "$(dirname "$0")/lib.sh"
root=$SONDE_TEST_DIR/..
command -v cc >/dev/null && command -v pkg-config >/dev/null || exit 77
mkdir pc
printf 'Name: sonde\nDescription: -\nVersion: 0\nCflags: -I%s/include\n' "$(cd "$root" && pwd)" \
    >pc/sonde.pc
export PKG_CONFIG_PATH=$work/pc
run 0 "$SONDE_BIN/../examples/foreign_loop" run 60

# --- the page ---------------------------------------------------------------------------
# Its blocks are block-1.lua, block-2.sh ...; the first line of a source names its file.
awk -v OFS= '/^```[a-z]+$/ { n++; kind = substr($0, 4); next } /^```$/ { kind = ""; next }
    kind != "" { print > ("block-" n "." kind) }' "$root/docs/own_rules.md"
[ "$(ls block-*.lua | wc -l)" -ge 2 ] && [ -n "$(ls block-*.c)" ] || fail "blocks: $(ls)"
for block in $(ls block-* | sort -t- -k2 -n); do
    case $block in
    *.sh)
        while IFS= read -r line; do
            want=0
            [[ $line != *'# finds something' ]] || want=1
            run "$want" bash -c "${line/RUN/run}" 
        done < <(sed "s|^sonde |$sonde |" "$block")
        ;;
    *) cp "$block" "$(sed -n '1s/^[^a-z]*\([a-z_]*\.[a-z]*\).*/\1/p' "$block")" ;;
    esac
done
grep -q '^step [0-9]*: warning: LossJump: loss: It is ' "$out" || fail "$(cat "$out")"

# --- list, show, plugin -----------------------------------------------------------------
run 0 "$sonde" rules list --plugin ./loss_jump.so
grep -qx 'LossJump  *the loss is far above its best' "$out" || fail "$(cat "$out")"
grep -q '^DeadRelu ' "$out" || fail "no built-in rules: $(cat "$out")"
run 0 "$sonde" rules show lossjump --plugin ./loss_jump.lua
same "$out" <(
    cat <<'END'
LossJump - the loss is far above its best

loss > `factor` times its smallest value so far.
Lower the learning rate, or go on from a checkpoint before this step.

needs    losses: vital signs
factor=10: times the best
END
)
run 1 "$sonde" rules run --plugin ./thin_row.lua --rule ThinRow:share=0.9 --no-save
run 0 "$sonde" rules run --plugin ./loss_jump.lua --explain --no-save
grep -qE '^LossJump +judged 1 tensors at 60 steps, 0 findings$' "$out" || fail "$(cat "$out")"
grep -qE '^NonFinite +judged ' "$out" || fail "the defaults are gone: $(cat "$out")"

# --- errors -----------------------------------------------------------------------------
check() { # LINE ARGUMENT...
    local line=$1
    shift
    run 2 "$sonde" rules "$@"
    stderr_is "sonde: error: $line"
}
echo 'return {' >bad.lua
check "./none.lua: a file of rules cannot be read: No such file or directory" run --plugin ./none.lua
check "./bad.lua:2: unexpected symbol near <eof>" run --rule ./bad.lua
check "./bad.lua:2: unexpected symbol near <eof>" list --plugin ./bad.lua
check "./bad.lua:2: unexpected symbol near <eof>" show X --plugin ./bad.lua
check "LossJump:factor: 'x' (expected a finite number from 0 to 1e+06)" run \
    --rule ./loss_jump.so --param factor=x
check "LossJump: unknown parameter 'faktor' (expected factor)" run --rule ./loss_jump.lua:faktor=1
check "./loss_jump.so: rule LossJump: another file has a rule of this name (expected a unique name)" \
    run --plugin ./loss_jump.lua --plugin ./loss_jump.so
check "--rule-seconds: '0' (expected more than 0)" run --rule-seconds 0
check "$SONDE_TEST_PLUGINS/bad_1.so: it was built for rule interface 99 (expected rule interface 1)" \
    run --plugin "$SONDE_TEST_PLUGINS/bad_1.so"

# --- a rule that goes wrong, and one that never ends, live --------------------------------
run 1 "$sonde" rules run --rule "$SONDE_TEST_PLUGINS/faulty.so:at=10" --rule ./loss_jump.lua --json
grep -q '"rule":"Faulty".*"step":10.*it crashed with signal 11 (Segmentation fault) at step 10' \
    "$out" || fail "$(cat "$out")"
"$SONDE_BIN/trial_test_export" make live pause=10 &
for _ in $(seq 100); do [ ! -f live/run.json ] || break; sleep 0.05; done
sleep 0.1
started=$(date +%s)
run 1 "$sonde" rules live --follow --stall 20 --rule-seconds 0.5 \
    --rule "$SONDE_TEST_PLUGINS/faulty.so:how=loop,at=12" --rule ExplodingTensor
wait
grep -q 'Faulty: The rule itself cannot go on: it took longer than 0.5 s at step 12\.' "$out" ||
    fail "$(cat "$out")"
grep -q 'ExplodingTensor: Gradient___conv1.weight' "$out" || fail "$(cat "$out")"
[ $(($(date +%s) - started)) -lt 60 ] || fail "it took too long"
ls live/findings/Faulty.jsonl >/dev/null || fail "the finding is not kept"
