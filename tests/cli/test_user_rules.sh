#!/usr/bin/env bash
# sonde rules with files of rules, those of docs/own_rules.md among them: --plugin, its errors, and
# a rule that never ends while a run is followed.
. "$(dirname "$0")/lib.sh"
root=$SONDE_TEST_DIR/..
command -v cc >/dev/null && command -v pkg-config >/dev/null || exit 77
mkdir pc
printf 'Name: sonde\nDescription: -\nVersion: 0\nCflags: -I%s/include\n' "$(cd "$root" && pwd)" \
    >pc/sonde.pc
export PKG_CONFIG_PATH=$work/pc
run 0 "$SONDE_BIN/../examples/foreign_loop" run 60

# --- the rules on the page, which tests/docs runs block by block -----------------------------
run 0 python3 -B "$root/tests/docs/pages.py" files docs/own_rules.md .
run 0 sh -c "cc -shared -fPIC -o loss_jump.so loss_jump.c \$(pkg-config --cflags sonde)"
run 1 "$sonde" rules run --rules ./loss_jump.lua:factor=0.5
grep -q '^step [0-9]*: warning: LossJump: loss: It is ' "$out" || fail "$(cat "$out")"

# --- list, show, plugin -----------------------------------------------------------------
run 0 "$sonde" rules list --plugin ./loss_jump.so
grep -qx 'LossJump  *the loss is far above its best' "$out" || fail "$(cat "$out")"
grep -q '^DeadRelu ' "$out" || fail "no built-in rules: $(cat "$out")"
run 0 "$sonde" rules show lossjump --plugin ./loss_jump.lua
same "$out" <(
    cat <<'END'
LossJump - the loss is far above its best

Fires when:  The loss is above `factor` times its smallest value so far.
What to do:  Lower the learning rate, or resume from a checkpoint before this step.

needs       losses (vital signs; each of the first 20 steps, every 10th step)
factor=10: multiple of the smallest loss so far
END
)
run 1 "$sonde" rules run --plugin ./thin_row.lua --rules ThinRow:share=0.9 --no-save
run 0 "$sonde" rules run --plugin ./loss_jump.lua --explain --no-save
grep -qE '^LossJump +checked 1 tensor at 60 steps: 0 findings$' "$out" || fail "$(cat "$out")"
grep -qE '^NonFinite +checked ' "$out" || fail "the defaults are gone: $(cat "$out")"

# --- errors -----------------------------------------------------------------------------
check() { # LINE ARGUMENT...
    local line=$1
    shift
    run 2 "$sonde" rules "$@"
    stderr_is "sonde: error: $line"
}
echo 'return {' >bad.lua
check "./none.lua: a file of rules cannot be read: No such file or directory" run --plugin ./none.lua
check "./bad.lua:2: unexpected symbol near <eof>" run --rules ./bad.lua
check "./bad.lua:2: unexpected symbol near <eof>" list --plugin ./bad.lua
check "./bad.lua:2: unexpected symbol near <eof>" show X --plugin ./bad.lua
check "LossJump:factor: 'x' (expected a finite number from 0 to 1e+06)" run \
    --rules ./loss_jump.so --param factor=x
check "LossJump: unknown parameter 'faktor' (expected factor)" run --rules ./loss_jump.lua:faktor=1
check "./loss_jump.so: rule LossJump: another file has a rule of this name (expected a unique name)" \
    run --plugin ./loss_jump.lua --plugin ./loss_jump.so
check "--rule-seconds: '0' (expected more than 0)" run --rule-seconds 0
check "$SONDE_TEST_PLUGINS/bad_1.so: it was built for rule interface 99 (expected rule interface 2)" \
    run --plugin "$SONDE_TEST_PLUGINS/bad_1.so"

# --- the memory of a rule in Lua
cat >hungry.lua <<'END'
local rule = {name = "Hungry", summary = "it takes 40 MB", condition = "Always.", advice = "None.",
              needs = {{what = "losses"}}}
function rule.wants(ctx, tensor)
    return tensor.role == "loss"
end
function rule.step(ctx)
    ctx.memory = string.rep("x", 40 * 1024 * 1024)
end
return rule
END
run 0 "$sonde" rules run --rules ./hungry.lua
run 1 "$sonde" rules run --rules ./hungry.lua --rule-memory 24
grep -q 'Hungry: The rule was switched off because of an error: it exceeds its memory limit' "$out" || fail "$(cat "$out")"

# --- a rule that never ends, live ---------------------------------------------------------
cat >endless.lua <<'END'
local rule = {name = "Endless", summary = "it never ends", condition = "Always.", advice = "None.",
              needs = {{what = "losses"}}}
function rule.wants(ctx, tensor)
    return tensor.role ~= "gradient"
end
function rule.step(ctx)
    local text = string.rep("x", 1024 * 1024)
    while ctx.step == 12 do
        local copy = text .. text
    end
end
return rule
END
"$SONDE_BIN/tests_export" test_export make live pause=10 &
for _ in $(seq 3000); do [ ! -f live/run.json ] || break; sleep 0.02; done
run 1 "$sonde" rules live --follow --stall 20 --rule-seconds 0.5 \
    --rules ./endless.lua --rules ExplodingTensor
wait
grep -q 'Endless: The rule was switched off because of an error: .*more than 0.5 s of processor time in one call\.' "$out" ||
    fail "$(cat "$out")"
grep -q 'ExplodingTensor: Gradient___conv1.weight' "$out" || fail "$(cat "$out")"
ls live/findings/Endless.jsonl >/dev/null || fail "the finding is not kept"
