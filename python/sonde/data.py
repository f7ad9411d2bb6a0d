"""Data files that Python packages read for the command: tables in Parquet.

    python -m sonde.data parquet TABLE.parquet TABLE.csv
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


def main(arguments: list[str]) -> None:
    if len(arguments) != 3 or arguments[0] != "parquet":
        raise command.Fault("SONDE_EINVAL", "sonde.data", f"arguments {arguments}",
                            "parquet TABLE.parquet TABLE.csv")
    parquet_to_csv(arguments[1], arguments[2])


if __name__ == "__main__":
    command.run(main)
