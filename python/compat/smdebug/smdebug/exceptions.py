"""smdebug's exceptions."""

from .modes import ModeKeys


class SMDebugError(Exception):
    """The base of all."""


class SMDebugCustomerError(SMDebugError):
    pass


class SMDebugTypeError(SMDebugError, TypeError):
    pass


class SMDebugRuntimeError(SMDebugError, RuntimeError):
    pass


class SMDebugNotImplementedError(SMDebugError, NotImplementedError):
    pass


class SMDebugValueError(SMDebugError, ValueError):
    pass


class InvalidCollectionConfiguration(SMDebugError):
    """A collection is to be saved, and nothing says which tensors belong to it."""

    def __init__(self, c_name: str):
        self.c_name = c_name
        super().__init__(f"collection '{c_name}' is empty (expected include_regex, a tensor's "
                         "name or a module)")


class _AtStep(SMDebugError):
    what = ""

    def __init__(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL):
        self.step, self.mode = step, mode
        super().__init__(f"step {step} of mode {mode.name} {self.what}")


class StepNotYetAvailable(_AtStep):
    what = "is not there yet"


class StepUnavailable(_AtStep):
    what = "was not saved"


class NoMoreData(SMDebugError):
    """The run ended before a step."""

    def __init__(self, step: int, mode: ModeKeys, last_step: int):
        self.step, self.mode, self.last_step = step, mode, last_step
        super().__init__(f"step {step} of mode {mode.name}: the run ended at step {last_step}")


class NoMoreProfilerData(SMDebugError):
    """Never raised: profiles are not recorded."""


class TensorUnavailable(SMDebugError):
    def __init__(self, tname: str):
        self.tname = tname
        super().__init__(f"tensor '{tname}' was not saved")


class TensorUnavailableForStep(SMDebugError):
    def __init__(self, tname: str, step: int, mode: ModeKeys = ModeKeys.GLOBAL,
                 has_reductions: bool = False):
        self.tname, self.step, self.mode, self.has_reductions = tname, step, mode, has_reductions
        more = "; reductions of it were: reduction_value()" if has_reductions else ""
        super().__init__(f"tensor '{tname}' was not saved at step {step} of mode "
                         f"{mode.name}{more}")


class ShapeUnavailableForStep(SMDebugError):
    def __init__(self, tname: str, step: int, mode: ModeKeys = ModeKeys.GLOBAL):
        self.tname, self.step, self.mode = tname, step, mode
        super().__init__(f"tensor '{tname}' was not saved at step {step} of mode {mode.name}")


class InvalidWorker(SMDebugError):
    def __init__(self, worker: str):
        self.worker = worker
        super().__init__(f"there is no worker '{worker}'")


class MissingCollectionFiles(SMDebugError):
    """Never raised: a run of Sonde's has its collections in its catalogue."""


class IndexReaderException(SMDebugError):
    pass


class RuleEvaluationConditionMet(SMDebugError):
    """A rule fired."""

    def __init__(self, rule_name: str, step: int, end_of_rule: bool = False):
        self.rule_name, self.step, self.end_of_rule = rule_name, step, end_of_rule
        super().__init__(f"rule {rule_name} fired at step {step}")


class InsufficientInformationForRuleInvocation(SMDebugError):
    def __init__(self, rule_name: str, message: str):
        self.rule_name = rule_name
        super().__init__(f"rule {rule_name}: {message}")
