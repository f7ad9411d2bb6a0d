"""Data files that Python turns into what the command reads.

    python -m sonde.data parquet TABLE.parquet TABLE.csv     with pyarrow; the command runs it
    python -m sonde.data cifar10 FOLDER ARRAYS.npz           with NumPy: CIFAR-10's binary files
"""

import os
import sys

from sonde import command


def parquet_to_csv(path: str, out: str) -> None:
    """Writes a Parquet table as CSV: texts in quotes, numbers without, missing cells empty.

    Booleans are 0 and 1; dates and times are numbers in the file's unit since 1970. Nested
    columns and bytes that are no text are left out, with a warning.
    """
    try:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        command.needs("pyarrow", "parquet")
    try:
        table = pyarrow.parquet.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise command.Fault("SONDE_EFORMAT", path, str(error), "a Parquet file") from None
    names, columns = [], []
    for name, column in zip(table.column_names, table.columns):
        converted = _column(pa, pc, column)
        if converted is None:
            print(f"{path}: column '{name}' of {column.type} is left out", file=sys.stderr)
        else:
            names.append(name)
            columns.append(converted)
    written = f"{out}.{os.getpid()}"
    try:
        pyarrow.csv.write_csv(pa.table(columns, names=names), written)
        os.replace(written, out)
    finally:
        if os.path.exists(written):
            os.remove(written)


def _column(pa, pc, column):
    """The column as texts or numbers; None: it is neither."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = pc.cast(column, kind.value_type)
        kind = column.type
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_nan(column), None, pc.cast(column, pa.float64()))
    if pa.types.is_decimal(kind):
        return pc.cast(column, pa.float64())
    if pa.types.is_boolean(kind):
        return pc.cast(column, pa.int8())
    if pa.types.is_integer(kind):
        return column
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pc.cast(column, pa.int32() if kind.bit_width == 32 else pa.int64())
    if pa.types.is_null(kind):
        return pc.cast(column, pa.int8())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        try:
            return pc.cast(column, pa.large_string())
        except pa.ArrowInvalid:
            return None
    return None


def cifar10_to_npz(folder: str, out: str) -> None:
    """Writes CIFAR-10's binary files as arrays: images (N, 3, 32, 32) and labels of each split."""
    try:
        import numpy
    except ImportError:
        command.needs("numpy", "numpy")
    names = {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]}
    arrays = {}
    for split, files in names.items():
        records = []
        for path in (os.path.join(folder, name) for name in files):
            content = numpy.fromfile(path, numpy.uint8) if os.path.exists(path) else numpy.empty(0, numpy.uint8)
            if content.size % 3073:
                raise command.Fault("SONDE_EFORMAT", path, "ends within a record",
                                    "records of 3073 bytes")
            records.append(content.reshape(-1, 3073))
        split_records = numpy.concatenate(records)
        if len(split_records) == 0:
            raise command.Fault("SONDE_ENOTFOUND", folder, f"no records of CIFAR-10 for {split}",
                                ", ".join(files))
        if split_records[:, 0].max() > 9:
            raise command.Fault("SONDE_ERANGE", folder, "a label above 9", "CIFAR-10")
        arrays[f"x_{split}"] = split_records[:, 1:].reshape(-1, 3, 32, 32)
        arrays[f"y_{split}"] = split_records[:, 0].astype(numpy.int64)
    numpy.savez(out, **arrays)


def main(arguments: list[str]) -> None:
    verbs = {"parquet": parquet_to_csv, "cifar10": cifar10_to_npz}
    if len(arguments) != 3 or arguments[0] not in verbs:
        raise command.Fault("SONDE_EINVAL", "sonde.data", f"arguments {arguments}",
                            "parquet TABLE.parquet TABLE.csv, or cifar10 FOLDER ARRAYS.npz")
    verbs[arguments[0]](arguments[1], arguments[2])


if __name__ == "__main__":
    command.run(main)
