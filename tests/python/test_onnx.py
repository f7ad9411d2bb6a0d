"""ONNX files in and out: torch's exporters against PyTorch (tests/golden/onnx), every layer written
and run by the package onnx's reference evaluator, written and read again, and what is refused.

Prints "N passed, N failed"; exit status 1 if one failed, 77 without the package onnx.
"""
import contextlib
import glob
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent
BIN = os.environ.get("SONDE_BIN", str(TESTS.parent / "build/release/bin"))
sys.path.insert(0, str(pathlib.Path(BIN).parent / "python"))

try:
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    from onnx.reference import ReferenceEvaluator
    from safetensors.numpy import load_file
    from sonde import onnx as sonde_onnx
    from sonde.command import Fault
    from sonde.onnx.writer import read_weights, write
except (ImportError, Fault) as error:
    print(f"{error}: skipped")
    sys.exit(77)

GOLDEN = sorted(pathlib.Path(TESTS / "golden" / "onnx").glob("*.onnx"))
# What the reference evaluator lacks.
UNEVALUATED = ("bordered", "pad", "pad_number",  # negative pads
               "transposed", "up_conv",          # groups of a ConvTranspose
               "rnn_relu")
# Written, but not read back: places of samples; a scale that the sizes do not say.
OUT_ALONE = ("index_select", "index_add", "up_scaled")


class Tally:
    passed = failed = 0


def check(name, find):
    """Counts a check: find() is None, or what is wrong."""
    try:
        wrong = find()
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"
    if wrong is None:
        Tally.passed += 1
    else:
        Tally.failed += 1
        print(f"FAILED: {name}: {wrong}")


def differs(found, wanted):
    """Sums in another order: 1e-5 of the largest."""
    found, wanted = numpy.asarray(found), numpy.asarray(wanted)
    if found.shape != wanted.shape:
        return f"{found.shape}, not {wanted.shape}"
    found, wanted = found.astype(float), wanted.astype(float)
    most = max(1.0, numpy.abs(wanted[numpy.isfinite(wanted)]).max(initial=0.0))
    worst = numpy.abs(numpy.where(found == wanted, 0, found - wanted)).max(initial=0.0)
    return None if numpy.allclose(found, wanted, rtol=0, atol=1e-5 * most, equal_nan=True) \
        else f"other numbers, {worst:g} of {most:g}"


def evaluate(path, inputs):
    """The first output by the reference evaluator."""
    session = ReferenceEvaluator(path)
    with numpy.errstate(all="ignore"):
        return session.run(None, dict(zip(session.input_names, inputs)))[0]


def inputs_of(golden):
    names = ["x", "x1"] if "x" in golden else [f"x{i}" for i in range(len(golden))]
    return [golden[name] for name in names if name in golden]


def check_step(path, golden):
    """A step of SGD on the mean squared error: every parameter as PyTorch's."""
    network = sonde_onnx.load(path, one_output=True)
    graph, importer = network.graph, network._importer
    output = importer.slots[network.outputs[0]].value.id
    target = numpy.empty(graph.shape(output), numpy.float32)
    graph.loss(graph.function("loss", "mse_loss", (output, graph.input(target)), {}))
    inputs = [*inputs_of(golden), golden["t"]]
    session = graph.session(True, (1, 1, 1, False, 0, 1, 0, 0, None, 0, False, len(inputs[0])),
                            ("sgd", {"learning_rate": 0.1, "momentum": 0.0}, ()), ())
    session.run(tuple(numpy.ascontiguousarray(value) for value in inputs), ())
    after = {name[6:]: value for name, value in golden.items() if name.startswith("after.")}
    trained = {name: index for index, name in enumerate(importer.tensors.values)
               if importer.tensors.roles[importer.tensors.values[name].id] != "buffer"}
    if after and trained.keys() != after.keys():
        return f"parameters {sorted(trained.keys() ^ after.keys())}"
    wrong = {name: differs(importer.tensors.arrays[trained[name]], value)
             for name, value in after.items()}
    return next((f"{name} after a step: {text}" for name, text in wrong.items() if text), None)


def check_golden(folder):
    for path in GOLDEN:
        golden = load_file(path.with_suffix(".safetensors"))
        inputs, copy = inputs_of(golden), os.path.join(folder, path.name)
        check(path.stem, lambda: differs(sonde_onnx.run(path, inputs)[0], golden["y"]))
        check(f"{path.stem}, trained", lambda: check_step(path, golden))
        sonde_onnx.save(sonde_onnx.load(path), copy)
        check_written(path.stem, copy, inputs, golden["y"])


def check_written(name, path, inputs, wanted):
    onnx.checker.check_model(path, full_check=True)
    if name.removesuffix("_new").removesuffix("_old") not in UNEVALUATED:
        check(f"{name}, written", lambda: differs(evaluate(path, inputs), wanted))
    if name not in OUT_ALONE:
        check(f"{name}, read again",
              lambda: differs(sonde_onnx.run(path, inputs)[0], wanted))


def check_layers(folder):
    """What the engine computed for every layer, against the reference evaluator and again."""
    subprocess.run([os.path.join(BIN, "tests_nn"), "test_description"], check=True,
                   env={**os.environ, "SONDE_DESCRIBE_OUT": folder}, capture_output=True)
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        stem, name = path[:-5], os.path.basename(path)[:-5]
        tensors = load_file(f"{stem}.tensors")
        inputs = inputs_of(tensors)
        with open(path, encoding="utf-8") as file:
            graph = json.load(file)
        write(graph, read_weights(f"{stem}.weights"), f"{stem}.onnx")
        check_written(name, f"{stem}.onnx", inputs, tensors["y"])


# --- small graphs ------------------------------------------------------------------------

def small(nodes, tensors=(), shape=("batch", 3, 4), outputs=("y",), path=None):
    """A file of nodes over x and int64 classes t."""
    graph = helper.make_graph(
        nodes, "small", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
                         helper.make_tensor_value_info("t", TensorProto.INT64, ["batch"])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["any"]) for name in outputs],
        [numpy_helper.from_array(numpy.array(value, dtype), name)
         for name, value, dtype in tensors])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


NODE = helper.make_node
X = (numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4) - 9) / 7
T = numpy.array([2, 0])
I64, F32 = numpy.int64, numpy.float32

# Name: nodes, constants, what they compute of X and T.
COMPUTED = {
    "the last step": ([NODE("Gather", ["x", "i"], ["y"], axis=1)], [("i", -1, I64)], X[:, -1]),
    "steps from the end": ([NODE("Gather", ["x", "i"], ["y"], axis=1)],
                           [("i", [-1, 0, -2], I64)], X[:, [-1, 0, -2]]),
    "many negative places": (
        [NODE("Gather", ["x", "i"], ["y"], axis=2)], [("i", [[-1, 0], [-4, 2]], I64)],
        X[:, :, [[-1, 0], [-4, 2]]]),
    "elements from the end": (
        [NODE("Shape", ["x"], ["s"], start=0, end=1), NODE("Concat", ["s", "r"], ["w"], axis=0),
         NODE("Expand", ["i", "w"], ["e"]), NODE("GatherND", ["x", "p"], ["y"], batch_dims=0)],
        [("r", [1, 1], I64), ("i", [[[-1]]], I64), ("p", [[0, -1, -2]], I64)],
        X[0, -1, -2].reshape(1)),
    "a slice from the end": ([NODE("Slice", ["x", "b", "e", "a"], ["y"])],
                             [("b", [-2], I64), ("e", [2 ** 62], I64), ("a", [1], I64)],
                             X[:, -2:]),
    "a slice backwards": ([NODE("Slice", ["x", "b", "e", "a", "s"], ["y"])],
                          [("b", [-1], I64), ("e", [-2 ** 62], I64), ("a", [2], I64),
                           ("s", [-2], I64)], X[:, :, ::-2]),
    "a sequence": ([NODE("SplitToSequence", ["x", "n"], ["q"], axis=1),
                    NODE("SequenceAt", ["q", "i"], ["y"])],
                   [("n", [1, 2], I64), ("i", -1, I64)], X[:, 1:]),
    "a sequence of parts": ([NODE("SplitToSequence", ["x"], ["q"], axis=1, keepdims=0),
                             NODE("ConcatFromSequence", ["q"], ["y"], axis=1)], [],
                            X.reshape(2, 12)),
}


def log_softmax(x, axis):
    return x - numpy.log(numpy.exp(x).sum(axis, keepdims=True))


def check_computed(folder):
    path = os.path.join(folder, "small.onnx")
    for name, (nodes, tensors, wanted) in COMPUTED.items():
        small(nodes, tensors, path=path)
        check(name, lambda: differs(sonde_onnx.run(path, {"x": X, "t": T})[0], wanted))


def check_losses(folder):
    """Of logits, of log-probabilities, and of those over another axis."""
    path, flat = os.path.join(folder, "loss.onnx"), X[:, 0]
    for name, axis, text in (("logits", None, ""), ("log-probabilities", 1, ""),
                             ("another axis", 0, "node 'l': SoftmaxCrossEntropyLoss")):
        nodes = [NODE("LogSoftmax", ["x"], ["p"], axis=axis)] if axis is not None else []
        nodes.append(NODE("SoftmaxCrossEntropyLoss", ["x" if axis is None else "p", "t"], ["y"],
                          name="l"))
        small(nodes, shape=("batch", 4), path=path)
        p = log_softmax(flat, 1 if axis is None else axis)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            check(f"loss of {name}", lambda: differs(
                sonde_onnx.run(path, {"x": flat, "t": T})[0].reshape(()), -p[[0, 1], T].mean()))
        check(f"loss of {name}, warning",
              lambda: None if (text in said.getvalue() if text else not said.getvalue())
              else said.getvalue())


def refusal(path):
    try:
        sonde_onnx.load(path)
    except Fault as fault:
        return str(fault).replace(os.path.dirname(path) + "/", "")
    return "nothing"


def check_refused(folder):
    """Each error is one line that names the file, and the nodes."""
    path = os.path.join(folder, "bad.onnx")
    rows = {
        "bad.onnx: 3 nodes with unsupported ops: NonZero (a), Loop (b, y) "
        "(expected the ops of docs/onnx.md)":
            [NODE("NonZero", ["x"], ["k"], name="a"), NODE("Loop", ["k"], ["m"], name="b"),
             NODE("Loop", ["m"], ["y"])],
        "bad.onnx: node 'g' (Gather): place 3 of 3":
            [NODE("Constant", [], ["i"], value_int=3),
             NODE("Gather", ["x", "i"], ["y"], axis=1, name="g")],
        "bad.onnx: node 'r' (Reshape): its shape is computed from values "
        "(expected numbers that are known before the network runs)":
            [NODE("Cast", ["x"], ["k"], to=7), NODE("Reshape", ["x", "k"], ["y"], name="r")],
    }
    for wanted, nodes in rows.items():
        small(nodes, path=path)
        check(wanted, lambda: None if refusal(path) == wanted else refusal(path))
    small([NODE("Relu", ["gone"], ["y"])], path=path)
    check("a value that nothing makes",
          lambda: None if "bad.onnx: " in refusal(path) and "gone" in refusal(path)
          else refusal(path))
    with open(path, "wb") as file:
        file.write(GOLDEN[0].read_bytes()[:1000])
    wanted = "bad.onnx: damaged, cut short, or not an ONNX file (expected an ONNX file)"
    check("a file that is cut short",
          lambda: None if refusal(path) == wanted else refusal(path))


def main():
    with tempfile.TemporaryDirectory() as folder:
        check_computed(folder)
        check_losses(folder)
        check_refused(folder)
        check_golden(folder)
        check_layers(folder)
    print(f"{Tally.passed} passed, {Tally.failed} failed")
    return 1 if Tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
