#!/usr/bin/env bash
# The table of docs/onnx.md is that of the code (tools/onnx-ops --fix writes it).
. "$(dirname "$0")/lib.sh"

root=$(cd "$SONDE_TEST_DIR/.." && pwd)
run 0 "$root/tools/onnx-ops"
same "$out" "$root/docs/onnx.md"
for op in Conv ConvTranspose LSTM ThresholdedRelu Gather TopK Trilu; do
    grep -q "^|.*[ |]$op\(,\| |\)" "$out" || fail "no $op in the table"
done
