#!/usr/bin/env python3
"""Makes tests/golden/tables: one table in CSV and as Parquet files of other writers.

    python3 make_table_golden.py FOLDER       with pandas, pyarrow, fastparquet and polars
"""
import decimal
import os
import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 90


def make_frame():
    """Numbers, texts and booleans, with and without missing values."""
    random = np.random.default_rng(0)
    size = random.integers(-1000, 1000, ROWS)
    frame = pd.DataFrame({
        "size": size,
        "area": random.integers(100, 300, ROWS).astype(np.float32) / 4,
        "heat": np.array(["gas", "oil", "w\u00e4rme"])[random.integers(0, 3, ROWS)],
        "balcony": random.integers(0, 2, ROWS).astype(bool),
        "storeys": random.integers(1, 4, ROWS).astype(np.int32),
        "price": size * 0.01,
        "rooms": pd.array([None if i % 3 == 0 else i for i in range(ROWS)], dtype="Int64"),
        "lift": pd.array([None if i % 4 == 0 else i % 3 == 0 for i in range(ROWS)],
                         dtype="boolean"),
        "all": np.full(ROWS, 7.0),
    })
    frame.loc[::7, "heat"] = None
    frame.loc[::5, "area"] = np.nan
    frame.loc[40:, "price"] = np.round(frame.loc[40:, "price"])
    return frame


def write_csv(frame, path):
    """Booleans as 0 and 1, which they are in Parquet."""
    frame = frame.copy()
    frame["balcony"] = frame["balcony"].astype(int)
    frame["lift"] = frame["lift"].astype("Int64")
    frame.to_csv(path, index=False)


def write_types():
    """Types that are numbers or texts by a logical type."""
    dec = [decimal.Decimal("1.25"), decimal.Decimal("-3.50"), None,
           decimal.Decimal("12345678901.5")]
    columns = {
        "decimal": pa.array(dec, pa.decimal128(24, 2)),
        "half": pa.array(np.array([.5, 1, 2, -3], np.float16)),
        "unsigned": pa.array([0, 1, 2, 2**32 - 1], pa.uint32()),
        "long": pa.array([0, 1, 2, 2**64 - 2048], pa.uint64()),
        "byte": pa.array([-128, 1, 2, 127], pa.int8()),
        "date": pa.array([0, 1, 2, 3], pa.date32()),
        "time": pa.array([0, 1, 2, 3], pa.timestamp("us")),
        "binary": pa.array([b"a", b"b", b"c", b"a"]),
        "nothing": pa.nulls(4),
        "word": pa.array(["p", "q", "p", None]).dictionary_encode(),
        "y": [1., 2., 3., 4.],
    }

    pq.write_table(pa.table(columns), "types.parquet")


def write_mixed():
    """Columns that are left out, and values that are errors."""
    pq.write_table(pa.table({
        "list": pa.array([[1, 2]] * 3), "record": pa.array([{"a": 1, "b": 2}] * 3),
        "id": pa.array([b"0123456789abcdef"] * 3, pa.binary(16)),
        "x": [1., 2., 3.], "inf": [1., float("inf"), 2.], "bytes": [b"a", b"\xff", b"c"],
        "y": [1., None, 3.],
    }), "mixed.parquet")


def main():
    os.makedirs(sys.argv[1], exist_ok=True)
    os.chdir(sys.argv[1])
    warnings.simplefilter("ignore")
    frame = make_frame()
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
    write_csv(frame, "table.csv")
    pq.write_table(table, "arrow_snappy.parquet")
    pq.write_table(table.slice(0, 0), "empty.parquet")
    write_types()
    write_mixed()
    frame.to_parquet("fast.parquet", engine="fastparquet")
    pl.from_pandas(frame).write_parquet("polars.parquet")


if __name__ == "__main__":
    main()
