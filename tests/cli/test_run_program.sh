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

# a byte of its text changed
python3 - twice <<'END' || fail "no text in the run"
import pathlib, sys
for path in pathlib.Path(sys.argv[1]).rglob("*"):
    data = path.read_bytes() if path.is_file() else b""
    if (at := data.find(b'"producer":"foreign_program"')) >= 0:
        path.write_bytes(data[:at] + b"?" + data[at + 1:])
        break
else:
    sys.exit(1)
END
run 2 "$sonde" program twice
[ "$(wc -l <"$err")" -eq 1 ] || fail "not one line: $(cat "$err")"
grep -qE '^sonde: error: .*(damaged|hash)' "$err" || fail "damage: $(cat "$err")"
