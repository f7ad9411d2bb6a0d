"""The part of libsonde's C interface that the benchmark needs, over ctypes."""

import ctypes
import os
import shutil

import tracing as traces

P, I64, U32, U64, STR = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint32, ctypes.c_uint64,
                         ctypes.c_char_p)
INT, REAL = ctypes.c_int, ctypes.c_double
SEVERITIES = ("note", "warning", "error")


class Info(ctypes.Structure):
    _fields_ = [("name", STR), ("module", STR), ("op", STR), ("role", INT), ("in_pass", INT),
                ("dtype", INT), ("rank", INT), ("shape", I64 * 8), ("same_as", U32), ("note", STR)]


class WatchOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("hook", P), ("rules", P), ("rules_every", I64),
                ("rules_raw_every", I64), ("micro_batches", INT), ("replicas", INT)]


class Finding(ctypes.Structure):
    _fields_ = [("id", U64), ("rule", STR), ("severity", INT), ("tensor", STR), ("mode", INT),
                ("step", I64), ("mode_step", I64), ("last_step", I64), ("steps", U64),
                ("statistic", STR), ("value", REAL), ("threshold", REAL), ("message", STR),
                ("advice", STR), ("because_of", U64), ("raised_from", INT), ("raised_step", I64),
                ("resolved_step", I64), ("file", STR), ("line", INT)]


class Diag(ctypes.Structure):
    _fields_ = [("err", INT), ("where", ctypes.c_char * 256), ("found", ctypes.c_char * 384),
                ("expected", ctypes.c_char * 256)]


class Sonde:
    def __init__(self, library):
        self.lib = ctypes.CDLL(library)
        self.lib.sonde_rules_findings.restype = ctypes.POINTER(Finding)
        self.diag = Diag()

    def call(self, name, *arguments):
        if getattr(self.lib, name)(*arguments, ctypes.byref(self.diag)) != 0:
            raise RuntimeError(f"{name}: {self.diag.where} {self.diag.found} {self.diag.expected}")

    def make(self, name, *arguments):
        made = P()
        self.call(name, *arguments, ctypes.byref(made))
        return made

    def rules(self, text="default"):
        rules = self.make("sonde_rules_create")
        self.call("sonde_rules_add_list", rules, text.encode())
        return rules

    def findings(self, rules):
        count = ctypes.c_size_t()
        found = self.lib.sonde_rules_findings(rules, ctypes.byref(count))
        result = [{"rule": f.rule.decode(), "severity": SEVERITIES[f.severity],
                   "tensor": f.tensor.decode(), "mode": f.mode, "step": f.step,
                   "mode_step": f.mode_step, "steps": f.steps, "statistic": f.statistic.decode(),
                   "value": f.value, "threshold": f.threshold, "message": f.message.decode(),
                   "follows": f.because_of != 0}
                  for f in (found[i] for i in range(count.value))]
        self.lib.sonde_rules_destroy(rules)
        return result

    def replay(self, trace, hook=None, rules=None, named=False, every=1):
        count = 1 if trace.replicas is None else int(trace.replicas.max()) + 1
        options = WatchOptions(ctypes.sizeof(WatchOptions), hook, rules, every, every, 0, count)
        watch = self.make("sonde_watch_create", ctypes.byref(options))
        slot = U32()
        for info in trace.infos:
            shape = (I64 * 8)(*info["shape"])
            made = (Info(info["name"].encode(), b"", b"", traces.ROLES["other"], 0, info["dtype"],
                         len(info["shape"]), shape) if named else
                    Info(info["name"].encode(), info["module"].encode(), info["op"].encode(),
                         traces.ROLES[info["role"]], traces.PASSES[info["pass"]], info["dtype"],
                         len(info["shape"]), shape))
            self.call("sonde_watch_add", watch, ctypes.byref(made), ctypes.byref(slot))
        slots, views = trace.slots.ctypes.data, trace.views.ctypes.data
        for (mode, first), (_, end) in zip(trace.steps, trace.steps[1:]):
            first, end = int(first), int(end)
            self.call("sonde_watch_begin_step", watch, int(mode))
            if trace.replicas is None:
                self.lib.sonde_watch_see_all(watch, P(slots + 4 * first),
                                             P(views + traces.VIEW.itemsize * first),
                                             ctypes.c_size_t(end - first))
            for i in range(first, end if trace.replicas is not None else first):
                self.lib.sonde_watch_see_replica(watch, U32(trace.slots[i]),
                                                 P(views + traces.VIEW.itemsize * i), 0,
                                                 int(trace.replicas[i]))
            self.lib.sonde_watch_end_step(watch)
        self.call("sonde_watch_close", watch, 0, None)

    def judge(self, trace, named=False, every=1):
        """In process, at every step, or (every 0) when the rules look."""
        rules = self.rules()
        self.replay(trace, rules=rules, named=named, every=every)
        return self.findings(rules)

    def judge_recorded(self, trace, folder, configuration="{}"):
        """Recorded by a hook, and judged afterwards."""
        shutil.rmtree(folder, ignore_errors=True)
        text = configuration.replace("PATH", folder).encode()
        hook = self.make("sonde_hook_parse", text, ctypes.c_size_t(len(text)), b"hook.json", None,
                         None)
        self.replay(trace, hook=hook)
        opened = self.make("sonde_trial_open", os.fsencode(folder), None)
        rules = self.rules()
        self.call("sonde_rules_judge", rules, opened, None)
        self.lib.sonde_trial_close(opened)
        shutil.rmtree(folder, ignore_errors=True)
        return self.findings(rules)
