"""numbers.py - the limits and defaults of the documentation are those of the program.

    numbers.py [WHAT...]     with arguments, only the rows whose sentence holds one of them

A row of LIMITS is a page, a sentence of it, the file that has the constant, and the constant. `#`
stands for the number in both; a page may spell it out (WORDS); white space is any. Numbers in bytes
are compared in the unit of the page. What the numbers mean is tested elsewhere, with settings that
take less time.
"""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

S3, RECORD, CONTROL, RULES = "src/store/s3/", "src/core/record/", "src/core/control/", "src/core/rules/"
WORDS = {"two": 2, "three": 3, "five": 5, "eight": 8, "ten": 10, "tenth": 10, "twenty": 20, "hundred": 100}
CLOSELY = "define SONDE__CLOSELY SONDE__WHEN("
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
    ("s3.md", "their small files, # at a time", S3 + "copy.c", "THREADS = #"),
    ("s3.md", "in blocks of # KiB", S3 + "copy.h", "SONDE__S3_BLOCK = # * 1024"),
    ("s3.md", "reads ahead, up to # MiB at once", S3 + "copy_files.c", "MOST_AHEAD ((uint64_t)# << 20)"),
    ("s3.md", "files whole, in parts of # MiB", S3 + "objects.h", "SONDE__S3_PART ((size_t)# << 20)"),
    ("s3.md", "`SONDE_S3_READ_SECONDS` | #", S3 + "copy.c", "PATIENCE #.0"),
    ("s3.md", "A reader of a live run tolerates # seconds", S3 + "copy.c", "PATIENCE #.0"),
    ("s3.md", "heartbeat is older than # seconds", "src/core/format/format.h", "SONDE__CRASHED_AFTER = #"),
    ("s3.md", "tried again every # seconds", S3 + "bucket.c", "RENEW_AGAIN #.0"),
    ("s3.md", "sees the request within about # seconds", S3 + "spool.c", "BEAT #.0"),
    ("s3.md", "are renewed # minutes before", S3 + "profile.c", "RENEW #.0", 60),
    ("runs.md", "`tail` checks for new steps every # ms", "src/cli/cmd_tail.c", "POLL_MS = #"),
    ("recording.md", "(weights to # KiB;", "src/core/observe/collections.c", "[SONDE_ROLE_WEIGHT] = # * 1024"),
    ("recording.md", "inputs and outputs to # KiB;", "src/core/observe/collections.c", "[SONDE_ROLE_INPUT] = # * 1024"),
    ("recording.md", "gradients to # KiB)", "src/core/observe/collections.c", "[SONDE_ROLE_GRADIENT] = # * 1024"),
    ("recording.md", "| weights, biases, gradients | # steps", "src/core/rules/builtin/builtin.h", CLOSELY + ".first = #,"),
    ("recording.md", "| weights, biases, gradients | 50 steps | at every #th", "src/core/rules/builtin/builtin.h", CLOSELY + ".first = 50, .every = #"),
    ("recording.md", "(there are # at most)", "src/core/observe/collections.h", "SONDE__MOST_COLLECTIONS = #"),
    ("recording.md", "`segment_bytes`, `segment_seconds` | # MiB", RECORD + "recorder.c", "RING = # * 1024 * 1024"),
    ("recording.md", "`segment_seconds` | 64 MiB, # MiB", RECORD + "recorder.c", "SEGMENT = # * 1024 * 1024"),
    ("recording.md", "`segment_seconds` | 64 MiB, 64 MiB, #", RECORD + "recorder.c", "SECONDS = #,"),
    ("recording.md", "`wait_seconds` | #", RECORD + "writer.h", "SONDE__RECORD_WAIT #.0"),
    ("recording.md", "opening (# s longer)", RECORD + "recorder_spool.c", "SLOW #.0"),
    ("recording.md", "losses at every #th step of each mode", "src/core/observe/saving.c", ".every = #,"),
    ("recording.md", "`every` | # | save at every N-th step", "src/core/observe/saving.c", ".every = #,"),
    ("recording.md", "what was not on the disk: up to # s", RECORD + "recorder.c", "SECONDS = #,"),
    ("recording.md", "lasts longer than `wait_seconds` (#)", RECORD + "writer.h", "SONDE__RECORD_WAIT #.0"),
    ("../include/sonde/recorder.h", "logged once and retried after #, 2, 4 ... 128 ms", RECORD + "writer.c", "RETRY 0.00#"),
    ("../include/sonde/recorder.h", "1, 2, 4 ... # ms", RECORD + "writer.c", "MOST_RETRY 0.#"),
    ("../include/sonde/recorder.h", "0: # MiB. Any size is raised to four", RECORD + "recorder.c", "RING = # * 1024 * 1024"),
    ("../include/sonde/recorder.h", "up to # MiB; a larger value", RECORD + "recorder.c", "MOST_RING = # * 1024 * 1024"),
    ("../include/sonde/recorder.h", "size_t segment_bytes; /* 0: # MiB */", RECORD + "recorder.c", "SEGMENT = # * 1024 * 1024"),
    ("../include/sonde/recorder.h", "double segment_seconds; /* 0: # s */", RECORD + "recorder.c", " SECONDS = #,"),
    ("../include/sonde/recorder.h", "without progress; 0: # s; INFINITY", RECORD + "writer.h", "SONDE__RECORD_WAIT #.0"),
    ("../include/sonde/recorder.h", "zstd level #, bytes shuffled", RECORD + "record_tensors.c", "LEVEL = #,"),
    ("../include/sonde/recorder.h", "long create (# s longer) and close", RECORD + "recorder_spool.c", "SLOW #.0"),
    ("../include/sonde/hook.h", "at most # collections.", "src/core/observe/collections.h", "SONDE__MOST_COLLECTIONS = #"),
    ("python.md", "| weights | the first # steps of a mode", "src/core/rules/builtin/builtin.h", CLOSELY + ".first = #,"),
    ("python.md", "a tensor of more than # elements", "python/extension/python_late.c", "SMALL = #,"),
    ("python.md", "The first # steps of a kind are observed unless", "src/core/observe/schedule.c", "FIRST_OF_ROLE = #"),
    ("tensors.md", "within blocks of # elements", "src/core/tensor/vitals.h", "SONDE__VITALS_BLOCK = #"),
    ("rules.md", "They are compared at every # step", RULES + "progress.h", "SONDE__RULES_SHORT = #"),
    ("rules.md", "over # steps the loss has fallen by", RULES + "progress.h", "SONDE__RULES_LONG = #"),
    ("rules.md", "fallen by less than # % of the first losses,", RULES + "progress.c", "SLIGHT 0.0#"),
    ("rules.md", "none of these within # steps", RULES + "progress.h", "SONDE__RULES_LONG = #"),
    ("rules.md", "the tensor has recovered at # looks in a row", RULES + "suspicions.c", "RECOVERED = #"),
    ("rules.md", "as do # looks in a row", RULES + "suspicions.c", "RECOVERED = #"),
    ("rules.md", "it is not finite at # steps in a row", RULES + "progress.c", "LEAST = #"),
    ("rules.md", "has held at # looks becomes a finding", RULES + "suspicions.c", "UNTRAINED = #"),
    ("rules.md", "of a rule with many findings the first #,", "src/cli/cmd_rules.c", "FEW = #"),
    ("rules.md", "of one rule, the first # are printed", "src/cli/cli_findings.c", "PRINTED = #"),
    ("rules.md", "observe all tensors at the first # steps", "src/core/observe/schedule.c", "FIRST_OF_ALL = #"),
    ("rules.md", "killed after # s", RULES + "actions/actions.c", "taken.command_seconds, #.0)"),
    ("rules.md", "Up to # tries", RULES + "actions/actions.c", "taken.webhook_tries : #;"),
    ("rules.md", "tries of # s each", RULES + "actions/actions.c", "taken.webhook_seconds, #.0)"),
    ("rules.md", "with a queue of #,", "include/sonde/actions.h", "SONDE_ACTIONS_QUEUE = #"),
    ("rules.md", "which the trainer reads every # ms", CONTROL + "control.c", "look_seconds = 0.0#;", 0.1),
    ("own_rules.md", "A call may take # million instructions", RULES + "rule_file.h", "SONDE__RULE_INSTRUCTIONS = #000000"),
    ("own_rules.md", "A rule may use # MB", RULES + "rule_file.h", "SONDE__RULE_MEMORY = # << 20"),
    ("own_rules.md", "instructions and # seconds of processor time", RULES + "rule_file.h", "SONDE__RULE_SECONDS #.0"),
    ("runs.md", "(over the last # steps)", "src/cli/run_reading.c", "RATE_STEPS = #"),
    ("runs.md", "machine # seconds after the last heartbeat", "src/core/format/format.h", "SONDE__CRASHED_AFTER = #"),
    ("format.md", "at least every # s while running", "src/core/format/format.h", "SONDE__HEARTBEAT = #"),
    ("format.md", "heartbeat is older than # s", "src/core/format/format.h", "SONDE__CRASHED_AFTER = #"),
    ("format.md", "at least every # ms between steps", CONTROL + "control.c", "look_seconds = 0.0#;", 0.1),
    ("format.md", "Rows have # bytes:", "src/core/format/format.h", "SONDE__STATS_ROW = #"),
    ("format.md", "The header has # bytes in all", "src/core/format/format.h", "SONDE__STATS_HEAD = #"),
    ("format.md", "a header of # bytes in all", "src/core/format/format.h", "SONDE__STEPS_HEAD = #"),
    ("format.md", "A name has at most # bytes", "src/core/format/format.h", "SONDE__MOST_NAME = #"),
    ("format.md", "a shape at most # dimensions", "include/sonde/tensor.h", "SONDE_MAX_DIMS = #"),
    ("format.md", "line of any `.jsonl` file at most # KiB", "src/core/format/format.h", "SONDE__MOST_LINE = #", 1 / 1024),
]


def pattern(text, digits):
    """A regular expression for a text in which # is a number and white space is any."""
    words = [re.escape(word).replace(r"\#", "#").replace("#", f"({digits})") for word in text.split()]
    return re.compile(r"\s+".join(words))


def number(path, text, problems):
    """The number that the text has in a file; None if the text is not there."""
    digits = "|".join(WORDS) + r"|[\d,]*\d" if path.endswith(".md") else r"\d+"
    with open(os.path.join(ROOT, path), encoding="utf-8") as stream:
        found = pattern(text, digits).search(stream.read())
    if found is None:
        problems.append(f"{path}: no '{text}'")
        return None
    spelt = found.group(1)
    return WORDS[spelt] if spelt in WORDS else int(spelt.replace(",", ""))


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
