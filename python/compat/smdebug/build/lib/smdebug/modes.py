"""Modes of a step, with smdebug's numbers and Sonde's names."""

from enum import Enum


class ModeKeys(Enum):
    TRAIN = 1
    EVAL = 2
    PREDICT = 3
    GLOBAL = 4  # of hooks: no mode was set; of readers: all modes, by global step

    @property
    def sonde(self) -> str:
        """The name that Sonde has for it."""
        return self.name.lower()


def mode_of(value: "ModeKeys | str") -> ModeKeys:
    """A mode, or the mode of a name."""
    from .exceptions import SMDebugValueError
    if isinstance(value, ModeKeys):
        return value
    if isinstance(value, str) and value.upper() in ModeKeys.__members__:
        return ModeKeys[value.upper()]
    raise SMDebugValueError(f"mode: {value!r} (expected modes.TRAIN, modes.EVAL, modes.PREDICT "
                            "or modes.GLOBAL)")
