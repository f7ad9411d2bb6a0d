"""numbers.py - the limits and defaults of the documentation are those of the program.

    numbers.py [WHAT...]     with arguments, only the rows whose sentence holds one of them

A row of LIMITS is a page, a sentence of it, the file that has the constant, and the constant. `#`
stands for the number in both; white space is any. Numbers in bytes are compared in the unit of the
page. What the numbers mean is tested elsewhere, with settings that take less time.
"""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

S3, RECORD, CONTROL = "src/s3/", "src/record/", "src/control/"
LIMITS = [
    ("s3.md", "Files are closed after # seconds", RECORD + "recorder_spool.c", "STORED_SECONDS = #,"),
    ("s3.md", "(`segment_seconds`) or # MiB", RECORD + "recorder.c", "SEGMENT = # * 1024 * 1024"),
    ("s3.md", "Files of more than # MiB are sent in parts", S3 + "objects.h", "SONDE__S3_PART ((size_t)# << 20)"),
    ("s3.md", "opening the run ends after `wait_seconds` (#)", RECORD + "writer.h", "SONDE__RECORD_WAIT #.0"),
    ("s3.md", "and # seconds more, and closing", RECORD + "recorder_spool.c", "SLOW #.0"),
    ("s3.md", "is tried # times", S3 + "bucket.h", "SONDE__S3_TRIES = #"),
    ("s3.md", "sending is tried again after up to # seconds", S3 + "spool.c", "LONGEST #.0"),
    ("s3.md", "If nothing was sent for # minutes", S3 + "spool.c", "PATIENCE #.0", 60),
    ("s3.md", "`SONDE_SPOOL_BYTES` | # GiB", S3 + "spool.c", "MOST_SPOOL ((uint64_t)# << 30)"),
    ("s3.md", "`SONDE_S3_CLOSE_SECONDS` | #", S3 + "spool.c", "PATIENCE #.0"),
    ("s3.md", "`SONDE_S3_STOP_SECONDS` | #", S3 + "spool.c", "SLOW #.0"),
    ("s3.md", "`SONDE_S3_PART_BYTES` | # MiB", S3 + "objects.h", "SONDE__S3_PART ((size_t)# << 20)"),
    ("s3.md", "bytes of a part, at most # MiB", S3 + "objects.h", "SONDE__S3_PART ((size_t)# << 20)"),
    ("s3.md", "`SONDE_S3_LONGEST_WAIT` | #,", S3 + "bucket.c", "LONGEST #.0"),
    ("s3.md", "`SONDE_S3_LONGEST_WAIT` | 5, #", S3 + "spool.c", "LONGEST #.0"),
    ("s3.md", "`SONDE_S3_CACHE_BYTES` | # GiB", S3 + "copy_evict.c", "MOST_CACHE (#.0 * 1024.0"),
    ("s3.md", "`SONDE_S3_CACHE_BYTES` (# GiB)", S3 + "copy_evict.c", "MOST_CACHE (#.0 * 1024.0"),
    ("s3.md", "not in the copy, # at a time", S3 + "copy.c", "THREADS = #"),
    ("s3.md", "in blocks of # KiB", S3 + "copy.h", "SONDE__S3_BLOCK = # * 1024"),
    ("s3.md", "read ahead, up to # MiB at once", S3 + "copy_files.c", "MOST_AHEAD ((uint64_t)# << 20)"),
    ("s3.md", "A reader of a live run bears # seconds", S3 + "copy.c", "PATIENCE #.0"),
    ("s3.md", "heartbeat is older than # seconds", RECORD + "format.h", "SONDE__CRASHED_AFTER = #"),
    ("s3.md", "tried again every # seconds", S3 + "bucket.c", "RENEW_AGAIN #.0"),
    ("s3.md", "sees the request within about # seconds", S3 + "spool.c", "BEAT #.0"),
    ("recording.md", "`segment_bytes`, `segment_seconds` | # MiB", RECORD + "recorder.c", "RING = # * 1024 * 1024"),
    ("recording.md", "`segment_seconds` | 64 MiB, # MiB", RECORD + "recorder.c", "SEGMENT = # * 1024 * 1024"),
    ("recording.md", "`segment_seconds` | 64 MiB, 64 MiB, #", RECORD + "recorder.c", "SECONDS = #,"),
    ("recording.md", "`wait_seconds` | #", RECORD + "writer.h", "SONDE__RECORD_WAIT #.0"),
    ("recording.md", "opening (# s longer)", RECORD + "recorder_spool.c", "SLOW #.0"),
    ("recording.md", "losses at every #th step of each mode", "src/observe/saving.c", ".every = #,"),
    ("recording.md", "`every` | # | save at every N-th step", "src/observe/saving.c", ".every = #,"),
    ("recording.md", "what was not on the disk: up to # s", RECORD + "recorder.c", "SECONDS = #,"),
    ("recording.md", "lasts longer than `wait_seconds` (#)", RECORD + "writer.h", "SONDE__RECORD_WAIT #.0"),
    ("../include/sonde/recorder.h", "logged once and retried after #, 2, 4 ms", RECORD + "writer.c", "RETRY 0.00#"),
    ("../include/sonde/recorder.h", "0: # MiB. Raised to four", RECORD + "recorder.c", "RING = # * 1024 * 1024"),
    ("../include/sonde/recorder.h", "up to # * MiB", RECORD + "recorder.c", "MOST_RING = # * 1024 * 1024"),
    ("../include/sonde/recorder.h", "size_t segment_bytes; /* 0: # MiB */", RECORD + "recorder.c", "SEGMENT = # * 1024 * 1024"),
    ("../include/sonde/recorder.h", "double segment_seconds; /* 0: # s */", RECORD + "recorder.c", " SECONDS = #,"),
    ("../include/sonde/recorder.h", "without progress; 0: # s; INFINITY", RECORD + "writer.h", "SONDE__RECORD_WAIT #.0"),
    ("../include/sonde/recorder.h", "long create (# s longer) and close", RECORD + "recorder_spool.c", "SLOW #.0"),
    ("../include/sonde/hook.h", "A collection that is saved; at most #.", "src/observe/collections.h", "SONDE__MOST_COLLECTIONS = #"),
    ("runs.md", "machine # seconds after the last heartbeat", RECORD + "format.h", "SONDE__CRASHED_AFTER = #"),
    ("format.md", "at least every # s while running", RECORD + "format.h", "SONDE__HEARTBEAT = #"),
    ("format.md", "heartbeat is older than # s", RECORD + "format.h", "SONDE__CRASHED_AFTER = #"),
    ("format.md", "at least every # ms between steps", CONTROL + "control.c", "look_seconds = 0.0#;", 0.1),
    ("format.md", "Rows have # bytes:", RECORD + "format.h", "SONDE__STATS_ROW = #"),
    ("format.md", "The header has # bytes in all", RECORD + "format.h", "SONDE__STATS_HEAD = #"),
    ("format.md", "a header of # bytes in all", RECORD + "format.h", "SONDE__STEPS_HEAD = #"),
    ("format.md", "A name has at most # bytes", RECORD + "format.h", "SONDE__MOST_NAME = #"),
    ("format.md", "a shape at most # dimensions", "include/sonde/tensor.h", "SONDE_MAX_DIMS = #"),
    ("format.md", "line of any `.jsonl` file at most # KiB", RECORD + "format.h", "SONDE__MOST_LINE = #", 1 / 1024),
]


def pattern(text):
    """A regular expression for a text in which # is a number and white space is any."""
    words = [re.escape(word).replace(r"\#", "#").replace("#", r"(\d+)") for word in text.split()]
    return re.compile(r"\s+".join(words))


def number(path, text, problems):
    """The number that the text has in a file; None if the text is not there."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as stream:
        found = pattern(text).search(stream.read())
    if found is None:
        problems.append(f"{path}: no '{text}'")
        return None
    return int(found.group(1))


def main():
    """Prints what differs."""
    problems = []
    for page, sentence, path, constant, *unit in LIMITS:
        if len(sys.argv) > 1 and not any(word in sentence for word in sys.argv[1:]):
            continue
        told = number("docs/" + page, sentence, problems)
        real = number(path, constant, problems)
        factor = unit[0] if unit else 1
        told = told * factor if told is not None and factor >= 0.1 else told
        real = real * factor if real is not None and factor < 0.1 else real
        if None not in (told, real) and told != real:
            problems.append(f"docs/{page}: '{sentence}' is {told}, and {path} has {real}")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
