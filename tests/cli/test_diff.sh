#!/usr/bin/env bash
# sonde diff: text, JSON and exit codes, over a run and over sets of weights.
. "$(dirname "$0")/lib.sh"
export COLUMNS=80 LC_ALL=C.UTF-8

# weights FILE NAME BYTES: a file with one float32 tensor of shape (2, 2); BYTES as printf
# takes them.
weights() {
    local header="{\"$2\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}"
    local length
    length=$(printf '\\x%02x' ${#header})
    {
        # shellcheck disable=SC2059
        printf "$length\\0\\0\\0\\0\\0\\0\\0"
        printf '%s' "$header"
        # shellcheck disable=SC2059
        printf "$3"
    } >"$1"
}
one='\0\0\x80\x3f' two='\0\0\0\x40' near='\x01\0\x80\x3f' nan='\0\0\xc0\x7f'
weights a.safetensors w "$one$two$two$one"
weights near.safetensors w "$one$two$two$near"
weights far.safetensors w "$one$two$one$one"
weights nan.safetensors model.w "$one$two$nan$one"

# --- a run ------------------------------------------------------------------------------
run 0 "$SONDE_BIN/tests_export" test_export make run
cp -r run copy
run 0 "$sonde" diff run copy
stderr_is ""
same "$out" <(
    cat <<'END'
compared: 152 values of 8 tensors at 48 steps, 84 by their hashes
Nothing differs.
END
)
run 0 "$sonde" diff run copy --steps 0:10 --mode train --tensors loss
grep -q '^compared: 10 values of 1 tensors at 10 steps' "$out" || fail "$(cat "$out")"
run 2 "$sonde" diff run copy --steps 900:
stderr_is "sonde: error: nothing was compared (expected a step that both have)"

# --- weights ----------------------------------------------------------------------------
run 0 "$sonde" diff a.safetensors a.safetensors
run 1 "$sonde" diff a.safetensors near.safetensors
same "$out" <(
    cat <<'END'
first difference: w
  1 of 4 elements differ, most at [1, 1]: 1 and 1.00000012
  rms of the difference over rms of A: 3.77e-08; rounding explains 4.77e-07

tensor                                    largest ratio
w                                              3.77e-08  rounding

compared: 1 values of 1 tensors
They differ by no more than rounding or the tolerance explains.
END
)
run 0 "$sonde" diff a.safetensors near.safetensors --rounding
run 0 "$sonde" diff a.safetensors far.safetensors --atol 1
run 1 "$sonde" diff a.safetensors far.safetensors --rounding
grep -q '^They differ\.$' "$out" || fail "$(cat "$out")"
run 1 "$sonde" diff a.safetensors nan.safetensors --rename '^model\.' --to '' --format json
grep -q '"nonfinite": 1' "$out" || fail "$(cat "$out")"
grep -q '"first": {"kind": "beyond", "tensor": "w", "other": "model.w"' "$out" || fail "$(cat "$out")"
run 2 "$sonde" diff a.safetensors nan.safetensors
grep -q "it has 'w'; the second has 'model.w'" "$err" || fail "$(cat "$err")"
run 2 "$sonde" diff a.safetensors run
grep -q 'safetensors files, as the first side is' "$err" || fail "$(cat "$err")"
run 2 "$sonde" diff a.safetensors near.safetensors --rename x
stderr_is "sonde: error: --rename: one of them (expected --rename and --to, both)"
run 2 "$sonde" diff a.safetensors none.safetensors
run 2 "$sonde" diff a.safetensors "$out"
