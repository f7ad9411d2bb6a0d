#!/usr/bin/env bash
# The program of a step, which examples/foreign_program declares: printed, read by rules, and
# the line in all that is printed of a finding.
. "$(dirname "$0")/lib.sh"
example=$SONDE_BIN/../examples/foreign_program

run 0 "$example" sound
grep -q '^0 findings; loss after 200 steps: 0\.1' "$out" || fail "$(cat "$out")"
run 1 "$example" twice twice
line=$(grep -n 'CALL(SOFTMAX, ' "$SONDE_TEST_DIR/../examples/foreign_program.c" | cut -d: -f1)
where="loss (foreign_program.c:$line)"
grep -qF "step 0: SoftmaxMisuse: $where: softmax at foreign_program.c:$line makes" "$out" ||
    fail "no line: $(cat "$out")"

# --- sonde program; golden files: remove the numbers of lines
strip() { sed -E 's/\.c:[0-9]+/.c:N/' "$out" >stripped; }
run 0 "$sonde" program twice
stderr_is ""
strip
same stripped "$golden/program.txt"
grep -qF "%6 = softmax(fc_output_0, dim=1): float32 [96, 3] (foreign_program.c:$line)" "$out" ||
    fail "no operation: $(cat "$out")"
cp "$out" whole
for words in '--mode train' '--step 0' '--step 150 --format text'; do
    # shellcheck disable=SC2086
    run 0 "$sonde" program twice $words
    same "$out" whole
done
run 0 "$sonde" program twice --format json
python3 - "$out" <<'END' || fail "the JSON text"
import json, sys
program = json.load(open(sys.argv[1]))
assert program["producer"] == "foreign_program" and program["complete"] is True
assert [node["op"] for node in program["nodes"]] == ["linear", "softmax", "cross_entropy"]
assert [event["event"] for event in program["events"]] == ["forward", "loss", "backward", "step"]
END

# --- the line in what is printed of a finding
run 1 "$sonde" rules twice --report page.html
grep -qF "error: SoftmaxMisuse: $where: softmax" "$out" || fail "no finding: $(cat "$out")"
grep -qF "twice: wrong: SoftmaxMisuse in $where at step 0: softmax" "$out" ||
    fail "no verdict: $(cat "$out")"
grep -qF "<code>loss</code> (foreign_program.c:$line): <a href=\"#r0\">SoftmaxMisuse</a>" page.html ||
    fail "the page's head has no line"
[ "$(grep -cF "(foreign_program.c:$line)" page.html)" -ge 2 ] || fail "the card has no line"
run 1 "$sonde" rules twice --format json
grep -qF "\"place\":\"foreign_program.c:$line\"" "$out" || fail "no place: $(cat "$out")"

# --- a rule in Lua that reads all of it
cat >all.lua <<'END'
local rule = {name = "All", summary = "s", condition = "c", advice = "a",
              params = {{name = "bad", help = "h", default = false}}}
local function same(given, wanted)
    if given ~= wanted then
        error(string.format("%s, not %s", given, wanted), 2)
    end
end
function rule.program(ctx, program)
    local softmax, loss = program.nodes[2], program.losses[1]
    local value = program.values[softmax.inputs[1]]

    same(program.producer .. program.mode .. program.gap, "foreign_programtrain")
    same(program.complete, true)
    same(#program.values .. #program.nodes .. #program.modules .. #program.parameters, "7312")
    same(value.tensor .. value.kind .. value.dtype, "fc_output_0computedfloat32")
    same(value.shape[1] * 10 + value.shape[2], 963)
    same(value.node, 1)
    same(value.parameter, 0)
    same(program.values[3].parameter, 1)
    same(softmax.attributes.dim, 1.0)
    same(softmax.module, 0)
    same(program.modules[program.nodes[1].module].kind, "Linear")
    same(program.modules[1].place, nil)
    same(program.parameters[2].name .. program.parameters[2].count, "fc.bias3")
    same(program.optimizers[program.parameters[1].optimizer].kind, "SGD")
    same(program.nodes[loss.node].op, "cross_entropy")
    same(program.values[loss.targets].tensor, "labels")
    same(program.events[loss.backward].event, "backward")
    same(program.events[1].training and program.events[1].grad, true)
    same(program.facts.labels_min, nil)
    same(ctx.step, 0)
    ctx:found{tensor = value.tensor, place = ctx.params.bad and 7 or softmax.place,
              statistic = "dim", value = softmax.attributes.dim, threshold = 0,
              message = "softmax at " .. softmax.place.text}
end
return rule
END
run 1 "$sonde" rules twice --rules ./all.lua --no-save
grep -qF "step 0: warning: All: fc_output_0 (foreign_program.c:$line): softmax at foreign_program.c:$line" \
    "$out" || fail "the rule in Lua: $(cat "$out")"
run 1 "$sonde" rules twice --rules ./all.lua:bad=true --no-save
grep -q "found: place is no place of a program" "$out" || fail "no place: $(cat "$out")"

# --- what cannot be
check() { # TEXT COMMAND...
    local text=$1
    shift
    run 2 "$sonde" program "$@"
    [ ! -s "$out" ] || fail "$*: stdout: $(cat "$out")"
    stderr_is "sonde: error: $text"
}
none='(expected a run whose writer described its steps)'
check "program: no program of mode eval up to this step $none" twice --mode eval
run 0 "$SONDE_BIN/../examples/foreign_loop" plain 5
check "program: no program of mode train up to this step $none" plain
run 2 "$sonde" program twice --mode evil
grep -q "evil.*eval" "$err" || fail "$(cat "$err")"
run 2 "$sonde" program nowhere
grep -q '^sonde: error: nowhere: ' "$err" || fail "$(cat "$err")"
run 2 "$sonde" program twice --step -2
grep -q -- "--step: '-2'" "$err" || fail "$(cat "$err")"

# a damaged run says so: files cut short, gone, or changed by a byte
damaged() { # PATTERN
    run 2 "$sonde" program broken
    [ "$(wc -l <"$err")" -eq 1 ] || fail "not one line: $(cat "$err")"
    grep -qE "^sonde: error: broken: no program can be read, and the run $1" "$err" || fail "$(cat "$err")"
    rm -r broken
    cp -r twice broken
}
cp -r twice broken
for file in seg-00000000.jsonl seg-00000000.safetensors; do
    truncate -s 10 "broken/w0000/$file"
    damaged 'is damaged: .*(10 bytes|lines)'
    rm "broken/w0000/$file"
    damaged 'is damaged: .*(No such file|lines)'
done
rm -r broken/w0000
damaged 'has the folders of 0 of 1 workers'

# ... and one byte of its text changed
python3 - broken <<'END' || fail "no text in the run"
import pathlib, sys
for path in pathlib.Path(sys.argv[1]).rglob("*"):
    data = path.read_bytes() if path.is_file() else b""
    if (at := data.find(b'"producer":"foreign_program"')) >= 0:
        path.write_bytes(data[:at] + b"?" + data[at + 1:])
        break
else:
    sys.exit(1)
END
damaged 'is damaged: .*hash'
