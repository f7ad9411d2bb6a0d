"""SaveConfig and ReductionConfig: when tensors are saved, and what of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from .exceptions import SMDebugValueError
from .modes import ModeKeys, mode_of

DEFAULT_INTERVAL = 500
REDUCTIONS = ("min", "max", "mean", "std", "variance", "sum", "prod")
NORMS = ("l1", "l2")


def _step(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise SMDebugValueError(f"{name}: {value!r} (expected a whole number, {least} or more)")
    return value


class SaveConfigMode:
    """The steps of one mode at which tensors are saved, counted within the mode.

    With save_steps these and no others; without, every save_interval-th step, counted from 0,
    from start_step on and before end_step (None: no end; 0: never). when_nan: names or patterns
    of tensors; a step at which one of them is not finite is saved too."""

    def __init__(self, save_interval: int | None = None, start_step: int | None = None,
                 end_step: int | None = None, save_steps: Iterable[int] | None = None,
                 when_nan: str | Iterable[str] | None = None):
        self.save_interval = _step("save_interval", DEFAULT_INTERVAL if save_interval is None
                                   else save_interval, 1)
        self.start_step = _step("start_step", start_step or 0, 0)
        self.end_step = None if end_step is None else _step("end_step", end_step, 0)
        if save_steps is not None and not isinstance(save_steps, Iterable):
            raise SMDebugValueError(f"save_steps: {save_steps!r} (expected a list of steps)")
        self.save_steps = sorted({_step("save_steps", step, 0) for step in save_steps or ()})
        self.when_nan = [when_nan] if isinstance(when_nan, str) else list(when_nan or ())

    def should_save_step(self, step_num: int) -> bool:
        """Whether a step is saved, but for when_nan."""
        if self.save_steps:
            return step_num in self.save_steps
        return step_num >= self.start_step and step_num % self.save_interval == 0 and \
            (self.end_step is None or step_num < self.end_step)

    def to_sonde(self) -> dict[str, Any]:
        """The keys of a schedule in a hook's configuration (docs/recording.md)."""
        whole: dict[str, Any] = {"save_steps": self.save_steps} if self.save_steps else \
            {"every": self.save_interval, "start_step": self.start_step}
        if self.end_step is not None and not self.save_steps:
            whole["end_step"] = self.end_step
        if self.when_nan:
            whole["when_nan"] = self.when_nan
        return whole

    def to_json_dict(self) -> dict[str, Any]:
        return {"save_interval": self.save_interval, "start_step": self.start_step,
                "end_step": self.end_step, "save_steps": self.save_steps}

    @classmethod
    def from_dict(cls, params: Mapping[str, Any]) -> "SaveConfigMode":
        unknown = sorted(set(params) - {"save_interval", "start_step", "end_step", "save_steps",
                                        "when_nan"})
        if unknown:
            raise SMDebugValueError(f"{unknown[0]}: unknown key (expected save_interval, "
                                    "start_step, end_step, save_steps or when_nan)")
        return cls(**params)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SaveConfigMode) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"SaveConfigMode({', '.join(f'{key}={value!r}' for key, value in vars(self).items())})"


class SaveConfig:
    """A SaveConfigMode for every mode, or one for each that mode_save_configs names; the others
    are then the hook's, or the default."""

    def __init__(self, save_interval: int | None = None, start_step: int | None = None,
                 end_step: int | None = None, save_steps: Iterable[int] | None = None,
                 mode_save_configs: Mapping[ModeKeys, Any] | None = None,
                 when_nan: str | Iterable[str] | None = None):
        plain = (save_interval, start_step, end_step, save_steps, when_nan)
        self.mode_save_configs: dict[ModeKeys, SaveConfigMode] = {}
        if mode_save_configs is None:
            both = SaveConfigMode(*plain)
            self.mode_save_configs = dict.fromkeys(ModeKeys, both)
            return
        if any(value is not None for value in plain):
            raise SMDebugValueError("mode_save_configs: given with save_interval, start_step, "
                                    "end_step, save_steps or when_nan (expected one of them)")
        for mode, given in mode_save_configs.items():
            self.set_save_config(mode_of(mode), given)

    def set_save_config(self, mode: ModeKeys, save_config_mode: Any) -> None:
        if isinstance(save_config_mode, Mapping):
            save_config_mode = SaveConfigMode.from_dict(save_config_mode)
        if not isinstance(save_config_mode, SaveConfigMode):
            raise SMDebugValueError(f"{mode.name}: {save_config_mode!r} (expected a "
                                    "SaveConfigMode)")
        self.mode_save_configs[mode] = save_config_mode

    def get_save_config(self, mode: ModeKeys) -> SaveConfigMode:
        try:
            return self.mode_save_configs[mode]
        except KeyError:
            raise SMDebugValueError(f"no SaveConfigMode was given for mode {mode.name}") from None

    def should_save_step(self, mode: ModeKeys, step_num: int) -> bool:
        return self.get_save_config(mode).should_save_step(step_num)

    def merged(self, default: "SaveConfig") -> "SaveConfig":
        """This one, with the modes that it lacks from another."""
        return SaveConfig(mode_save_configs={**default.mode_save_configs,
                                             **self.mode_save_configs})

    def to_sonde(self) -> dict[str, Any]:
        return {mode.sonde: config.to_sonde() for mode, config in self.mode_save_configs.items()}

    def to_json_dict(self) -> dict[str, Any]:
        return {mode.name: config.to_json_dict()
                for mode, config in self.mode_save_configs.items()}

    def to_json(self) -> str:
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_dict(cls, params: Mapping[str, Any]) -> "SaveConfig":
        """From the keys of a SaveConfigMode, or {"TRAIN": {"save_interval": 10}, ...}."""
        if params and all(key in ModeKeys.__members__ for key in params):
            return cls(mode_save_configs={ModeKeys[key]: value for key, value in params.items()})
        return cls.parse(SaveConfigMode.from_dict(params))

    @classmethod
    def from_json(cls, json_str: str) -> "SaveConfig":
        return cls.from_dict(json.loads(json_str))

    @classmethod
    def parse(cls, value: Any) -> "SaveConfig":
        """From what a hook and a collection accept."""
        if isinstance(value, SaveConfig):
            return value
        if isinstance(value, SaveConfigMode):
            return cls(mode_save_configs=dict.fromkeys(ModeKeys, value))
        if isinstance(value, Mapping) and all(isinstance(key, ModeKeys) for key in value):
            return cls(mode_save_configs=value)
        if isinstance(value, Mapping):
            return cls.parse(SaveConfigMode.from_dict(value))
        raise SMDebugValueError(f"save_config: {value!r} (expected a SaveConfig, a "
                                "SaveConfigMode, or a dict from modes to SaveConfigMode)")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SaveConfig) and \
            self.mode_save_configs == other.mode_save_configs

    def __repr__(self) -> str:
        return f"SaveConfig(mode_save_configs={self.mode_save_configs!r})"


def _words(name: str, given: Iterable[str] | None, known: tuple[str, ...]) -> list[str]:
    if given is not None and (isinstance(given, str) or not isinstance(given, Iterable)):
        raise SMDebugValueError(f"{name}: {given!r} (expected a list)")
    words = list(given or ())
    for word in words:
        if word not in known:
            raise SMDebugValueError(f"{name}: {word!r} (expected {', '.join(known)})")
    return words


class ReductionConfig:
    """What is saved instead of a tensor: numbers over all of its elements. save_raw_tensor
    saves the tensor too. std and variance are of the population; shapes are always kept, so
    save_shape has no effect."""

    def __init__(self, reductions: Iterable[str] | None = None,
                 abs_reductions: Iterable[str] | None = None,
                 norms: Iterable[str] | None = None, abs_norms: Iterable[str] | None = None,
                 save_raw_tensor: bool = False, save_shape: bool = False):
        known = REDUCTIONS + ("median",)
        self.reductions = _words("reductions", reductions, known)
        self.abs_reductions = _words("abs_reductions", abs_reductions, known)
        self.norms = _words("norms", norms, NORMS)
        self.abs_norms = _words("abs_norms", abs_norms, NORMS)
        self.save_raw_tensor, self.save_shape = bool(save_raw_tensor), bool(save_shape)

    def to_sonde(self) -> dict[str, Any]:
        names = self.reductions + [f"abs_{name}" for name in self.abs_reductions] + \
            self.norms + [f"abs_{name}" for name in self.abs_norms]
        if not names:  # nothing but the raw value, or nothing at all
            return {} if self.save_raw_tensor else {"reductions": ["count"]}
        return {"reductions": names, "save_raw_tensor": self.save_raw_tensor}

    def to_json_dict(self) -> dict[str, Any]:
        names = self.reductions + [f"abs_{name}" for name in self.abs_reductions] + \
            [f"{name}_norm" for name in self.norms] + \
            [f"abs_{name}_norm" for name in self.abs_norms]
        return {"reductions": ",".join(names), "save_raw_tensor": self.save_raw_tensor,
                "save_shape": self.save_shape}

    def to_json(self) -> str:
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_json(cls, json_str: str) -> "ReductionConfig":
        return cls.from_dict(json.loads(json_str))

    @classmethod
    def from_dict(cls, params: Mapping[str, Any]) -> "ReductionConfig":
        """From the keys of this class, or smdebug's JSON: {"reductions": "min,abs_l2_norm"}."""
        listed = params.get("reductions")
        if not isinstance(listed, str):
            return cls(**params)
        parts: dict[str, list[str]] = {"reductions": [], "abs_reductions": [], "norms": [],
                                       "abs_norms": []}
        for word in (part.strip() for part in listed.split(",") if part.strip()):
            plain = word.removeprefix("abs_").removesuffix("_norm")
            key = ("abs_" if word.startswith("abs_") else "") + \
                ("norms" if plain in NORMS else "reductions")
            parts[key].append(plain)
        return cls(**parts, save_raw_tensor=_true(params.get("save_raw_tensor")),
                   save_shape=_true(params.get("save_shape")))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReductionConfig) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"ReductionConfig({', '.join(f'{key}={value!r}' for key, value in vars(self).items())})"


def _true(value: Any) -> bool:
    return value is True or isinstance(value, str) and value.lower() == "true"
