"""The tests of C and of the command whose files Python reads: Parquet, byte pairs, ONNX. Where the
packages are missing they skip themselves; here they must run.

Needs the release build's programs (SONDE_BIN), pyarrow, tokenizers and onnx; without: skipped (77).
"""
import os
import pathlib
import subprocess
import sys

try:
    import onnx  # noqa: F401
    import pyarrow  # noqa: F401
    import tokenizers  # noqa: F401
except ImportError as problem:
    print(problem)
    sys.exit(77)

TESTS = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(os.environ.get("SONDE_BIN", TESTS.parent / "build/release/bin"))
PROGRAMS = [[str(BIN / "tests_nn"), name] for name in ("test_data_parquet", "test_tokenizer",
                                                       "test_onnx")]
PROGRAMS += [["bash", str(TESTS / "cli" / name)] for name in ("test_table.sh", "test_text.sh",
                                                              "test_onnx.sh")]


def main():
    if not (BIN / "tests_nn").exists():
        print(f"{BIN} has no tests_nn")
        return 77
    environment = {**os.environ, "SONDE_PYTHON": sys.executable, "SONDE_BIN": str(BIN),
                   "SONDE_TEST_DIR": str(TESTS)}
    failed = 0
    for program in PROGRAMS:
        done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            failed += 1
            print(f"FAILED: {' '.join(program)}: {done.returncode}\n{done.stdout[-3000:]}"
                  f"{done.stderr[-3000:]}")
    print(f"{len(PROGRAMS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
