#!/usr/bin/env bash
# ONNX files where job files may stand: train, eval, tensors; taps, rules and recording by the
# names of the file; mistakes.
. "$(dirname "$0")/lib.sh"

# The extension is beside the programs, or not built (under sanitizers); onnx is an extra.
[ -e "$SONDE_BIN/../python/sonde/_sonde.abi3.so" ] &&
    "${SONDE_PYTHON:-python3}" -c 'import numpy, onnx' 2>/dev/null || exit 77
golden=$SONDE_TEST_DIR/golden/onnx
cp "$golden/digits_new.onnx" digits.onnx
run 0 "$sonde" data synth --out data --train 600 --test 200

# listed under the file's names, and PyTorch's
run 0 "$sonde" tensors digits.onnx --names
for name in input 1.weight linear relu Gradient___linear_1 1_output_0 Gradient___3.bias; do
    grep -qxF "$name" "$out" || fail "tensors lacks $name: $(cat "$out")"
done

# trained and recorded
run 0 "$sonde" train digits.onnx --data-name fashion-synth --data data --out one --epochs 8 \
    --learning-rate 0.1 --record one/run --save-all --record-every 10
accuracy=$(grep '^Eval accuracy' "$out")
percent=${accuracy//[!0-9.]/}
[ "${percent%.*}" -ge 30 ] || fail "$accuracy after eight epochs"
run 0 "$sonde" verify one/run
run 0 "$sonde" query one/run relu --step 10 --stat mean
run 0 "$sonde" rules one/run

# the program of its steps: PyTorch's names, the file's values and modules
run 0 "$sonde" program one/run
stderr_is ""
for line in 'linear = linear(view, 1.weight, 1.bias): float32 [32, 8] in 1' 'relu = relu(linear): float32 [32, 8] in 2' \
    'loss_output_0: cross_entropy of linear_1 against input/1' '1.weight: 6,272 elements, in optimizer'; do
    grep -qxF "  $line" "$out" || fail "the program lacks '$line': $(cat "$out")"
done
run 0 "$sonde" program one/run --mode eval
grep -qx '  forward of the model, evaluation mode, without gradients' "$out" || fail "$(cat "$out")"

# modules are the scopes of the older exporter's nodes; rules read the program, here of a file
# that ends in a softmax
"${SONDE_PYTHON:-python3}" - <<'END' || fail "no file"
import numpy as np, onnx
from onnx import helper as h, numpy_helper as nh, TensorProto as T
rng = np.random.default_rng(1)
def weight(name, *shape):
    return nh.from_array((rng.standard_normal(shape) * 0.1).astype(np.float32), name)
nodes = [
    h.make_node("Conv", ["input", "features.conv.weight", "features.conv.bias"], ["/features/conv/Conv_output_0"],
                name="/features/conv/Conv", kernel_shape=[3, 3], strides=[2, 2]),
    h.make_node("LeakyRelu", ["/features/conv/Conv_output_0"], ["/features/act/LeakyRelu_output_0"],
                name="/features/act/LeakyRelu", alpha=0.2),
    h.make_node("MaxPool", ["/features/act/LeakyRelu_output_0"], ["/features/pool/MaxPool_output_0"],
                name="/features/pool/MaxPool", kernel_shape=[2, 2], strides=[2, 2]),
    h.make_node("Flatten", ["/features/pool/MaxPool_output_0"], ["/Flatten_output_0"], name="/Flatten"),
    h.make_node("Gemm", ["/Flatten_output_0", "head.fc.weight", "head.fc.bias"], ["/head/fc/Gemm_output_0"],
                name="/head/fc/Gemm", transB=1),
    h.make_node("Softmax", ["/head/fc/Gemm_output_0"], ["/head/Softmax_output_0"], name="/head/Softmax", axis=1),
]
graph = h.make_graph(nodes, "net", [h.make_tensor_value_info("input", T.FLOAT, ["batch", 1, 28, 28])],
    [h.make_tensor_value_info("/head/Softmax_output_0", T.FLOAT, ["batch", 10])],
    [weight("features.conv.weight", 4, 1, 3, 3), weight("features.conv.bias", 4),
     weight("head.fc.weight", 10, 144), weight("head.fc.bias", 10)])
onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)]), "net.onnx")
END
cat >twice.yaml <<'END'
model: {onnx: net.onnx, loss: {cross_entropy: {label_smoothing: 0.1}}}
data: {name: fashion-synth}
optimizer: {kind: adam, learning_rate: 0.002}
END
run 0 "$sonde" train twice.yaml --data data --out twice --epochs 1 --record twice/run
run 0 "$sonde" program twice/run --format json
"${SONDE_PYTHON:-python3}" - "$out" <<'END' || fail "$(cat "$out")"
import json, sys
program = json.load(open(sys.argv[1]))
modules = [module.get("name", "") for module in program["modules"]]
found = [(node["op"], modules[node["module"]]) for node in program["nodes"]]
assert found == [("conv2d", "features.conv"), ("leaky_relu", "features.act"), ("max_pool2d", "features.pool"),
                 ("reshape", ""), ("linear", "head.fc"), ("softmax", "head"), ("cross_entropy", "loss")], found
assert program["nodes"][1]["attributes"] == {"negative_slope": 0.2}
assert program["nodes"][0]["attributes"]["stride"] == "[2, 2]"
assert program["values"][program["nodes"][5]["outputs"][0]]["tensor"] == "/head/Softmax_output_0"
END
run 1 "$sonde" rules twice/run --rules SoftmaxMisuse
grep -q '^step 0: error: SoftmaxMisuse: /head/Softmax_output_0: softmax makes numbers of 0 to 1' "$out" ||
    fail "$(cat "$out")"

# the weights that were saved, and the file's own
run 0 "$sonde" eval digits.onnx --weights one/model.safetensors --data data --quiet
[ "$(cat "$out")" = "$accuracy" ] || fail "eval says $(cat "$out"), training said $accuracy"
run 0 "$sonde" eval digits.onnx --data data --quiet
[ "$(cat "$out")" != "$accuracy" ] || fail "the file's own weights are not evaluated"

# a job around it, in a folder of its own
mkdir jobs
mv digits.onnx jobs
cat >jobs/job.yaml <<END
model: {onnx: digits.onnx, loss: {cross_entropy: {label_smoothing: 0.1}}}
data: {name: fashion-synth}
optimizer: {kind: adam, learning_rate: 0.002}
observe:
  - {tensors: Gradient___3.bias, every: 1000, print: true}
rules: {judge: [LossNotDecreasing], stop_on: error}
END
run 0 "$sonde" train jobs/job.yaml --data data --out two
grep -q 'Gradient___3.bias' "$out" "$err" || fail "the tap printed nothing: $(cat "$out" "$err")"

# mistakes
printf 'model: {onnx: gone.onnx}\n' >gone.yaml
run 2 "$sonde" tensors gone.yaml
grep -q 'gone.onnx: cannot open: No such file' "$err" || fail "$(cat "$err")"
head -c 1000 jobs/digits.onnx >short.onnx
run 2 "$sonde" tensors short.onnx
stderr_is "sonde: error: short.onnx: damaged, cut short, or not an ONNX file (expected an ONNX file)"
SONDE_PYTHON=/nowhere/python3 run 2 "$sonde" tensors jobs/digits.onnx
grep -q '/nowhere/python3: cannot start Python: No such file or directory (expected .*pip install' \
    "$err" || fail "$(cat "$err")"
printf 'model: {onnx: jobs/digits.onnx, layers: []}\n' >both.yaml
run 2 "$sonde" tensors both.yaml
grep -q "both.yaml:1: unknown key 'layers'" "$err" || fail "$(cat "$err")"
