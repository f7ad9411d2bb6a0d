"""What `sonde export --to onnx` writes, checked by the package onnx and run by onnxruntime.

Prints "N passed, N failed"; exit status 1 if one failed. Without the packages onnx and
onnxruntime it says so and passes: pip install onnx onnxruntime.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent
SONDE = os.path.join(os.environ.get("SONDE_BIN", str(TESTS.parent / "build/release/bin")), "sonde")
NAMES = ("mlp_new", "cnn_new", "normed_old", "encoder_old", "attention_new", "norms_old")


def main():
    try:
        import numpy
        import onnx
        import onnxruntime
        from safetensors.numpy import load_file
    except ImportError as error:
        print(f"0 passed, 0 failed (skipped: {error})")
        return 0
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            source = TESTS / "golden" / "onnx" / f"{name}.onnx"
            made = os.path.join(folder, f"{name}.onnx")
            subprocess.run([SONDE, "export", source, made, "--to", "onnx", "-q"], check=True)
            onnx.checker.check_model(made, full_check=True)
            golden = load_file(source.with_suffix(".safetensors"))
            session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
            found = session.run(None, {session.get_inputs()[0].name: golden["x"]})[0]
            if not numpy.allclose(found, golden["y"], rtol=1e-5, atol=1e-5):
                print(f"FAILED: {name}: onnxruntime computes something else than PyTorch")
                failed += 1
    print(f"{len(NAMES) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
