"""What is written as ONNX, checked by the package onnx and run by onnxruntime: every layer, and
layers with other keys (tests/nn/test_onnx_out.c), and the networks of tests/golden/onnx.

Prints "N passed, N failed"; exit status 1 if one failed. Without the packages onnx and
onnxruntime it says so, with exit status 77: pip install onnx onnxruntime.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent
BIN = os.environ.get("SONDE_BIN", str(TESTS.parent / "build/release/bin"))
# Those whose output is no class of each sample need a job that says their target.
NAMES = ("mlp_new", "cnn_new", "normed_old", "encoder_old", "attention_new", "norms_old", "gru_old",
         "lstm_old", "rnn_old", "volume_new", "bordered_new", "moved_new")


def differs(path, inputs, wanted):
    """What is wrong with a file; None: nothing. Sums in another order: 1e-5 of the largest."""
    import numpy
    import onnx
    import onnxruntime
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = session.run(None, {one.name: value
                               for one, value in zip(session.get_inputs(), inputs)})[0]
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype} {found.shape}, not {wanted.dtype} {wanted.shape}"
    found, wanted = found.astype(float), wanted.astype(float)
    most = max(1.0, numpy.abs(wanted[numpy.isfinite(wanted)]).max(initial=0.0))
    same = numpy.allclose(found, wanted, rtol=0, atol=1e-5 * most, equal_nan=True)
    return None if same else "onnxruntime computes other numbers"


def main():
    try:
        import onnx  # noqa: F401
        import onnxruntime
        from safetensors.numpy import load_file
    except ImportError as error:
        print(f"{error}: skipped")
        return 77
    onnxruntime.set_default_logger_severity(3)
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([os.path.join(BIN, "tests_nn"), "test_onnx_out"], check=True,
                       env={**os.environ, "SONDE_ONNX_OUT": folder}, capture_output=True)
        for name in NAMES:
            source = TESTS / "golden" / "onnx" / f"{name}.onnx"
            made = os.path.join(folder, f"{name}.onnx")
            subprocess.run([os.path.join(BIN, "sonde"), "export", source, made, "--format", "onnx",
                            "-q"], check=True)
            os.symlink(source.with_suffix(".safetensors"),
                       os.path.join(folder, f"{name}.safetensors"))
        for made in sorted(pathlib.Path(folder).glob("*.onnx")):
            golden = load_file(made.with_suffix(".safetensors"))
            inputs = [golden["x"]] if "x" in golden else \
                [golden[f"x{i}"] for i in range(len(golden) - 1)]
            wrong = differs(str(made), inputs, golden["y"])
            if wrong is not None:
                print(f"FAILED: {made.stem}: {wrong}")
                failed += 1
            else:
                passed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
