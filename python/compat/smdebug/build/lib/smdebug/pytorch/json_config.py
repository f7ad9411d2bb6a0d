"""smdebug's JSON configuration of a hook."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ..collection import Collection
from ..config import ReductionConfig, SaveConfig, SaveConfigMode
from ..exceptions import SMDebugValueError
from ..modes import ModeKeys

DEFAULT_FILE = "/opt/ml/input/config/debughookconfig.json"
DEFAULT_PLACE = "/opt/ml/output/tensors"
_KEYS = ("save_interval", "save_steps", "start_step", "end_step", "when_nan")


def config_path(path: str | None = None) -> str:
    return path or os.environ.get("SMDEBUG_CONFIG_FILE_PATH") or DEFAULT_FILE


def _flag(value: Any) -> bool:
    return value is True or isinstance(value, str) and value.lower() == "true"


def _number(key: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise SMDebugValueError(f"{key}: {value!r} (expected a whole number)") from None


def _value(key: str, value: Any) -> Any:
    if key == "when_nan":
        return value.split(",") if isinstance(value, str) else value
    if key != "save_steps":
        return _number(key, value)
    parts = value.split(",") if isinstance(value, str) else value
    return [_number(key, part) for part in parts]


def _schedule(*layers: Mapping[str, Any]) -> SaveConfig | None:
    """The schedule of each mode; a later layer wins, and in a layer the key of the mode."""
    modes: dict[ModeKeys, SaveConfigMode] = {}
    for mode in ModeKeys:
        found: dict[str, Any] = {}
        for layer in layers:
            for prefix in ("", mode.sonde + "."):
                found.update({key: _value(key, layer[prefix + key]) for key in _KEYS
                              if layer.get(prefix + key) is not None})
        if found:
            modes[mode] = SaveConfigMode(**found)
    return SaveConfig(mode_save_configs=modes) if modes else None


def _reductions(layer: Mapping[str, Any]) -> ReductionConfig | None:
    return ReductionConfig.from_dict(layer) if layer.get("reductions") else None


def hook_arguments(path: str | None = None) -> tuple[dict[str, Any], list[Collection]]:
    """The arguments of Hook, and the collections that the file lists."""
    with open(config_path(path), encoding="utf-8") as file:
        try:
            whole = json.load(file)
        except ValueError as problem:
            raise SMDebugValueError(f"{config_path(path)}: {problem}") from None
    top = whole.get("HookParameters") or {}
    made = []
    for entry in whole.get("CollectionConfigurations") or ():
        keys = entry.get("CollectionParameters") or {}
        patterns = keys.get("include_regex")
        made.append(Collection(
            entry["CollectionName"], patterns.split(",") if patterns else None,
            reduction_config=_reductions(keys), save_config=_schedule(top, keys),
            save_histogram=_flag(keys.get("save_histogram"))))
    patterns = top.get("include_regex")
    return {"out_dir": whole.get("LocalPath", DEFAULT_PLACE), "save_config": _schedule(top),
            "reduction_config": _reductions(top), "save_all": _flag(top.get("save_all")),
            "include_regex": patterns.split(",") if patterns else None,
            "include_workers": top.get("include_workers", "one"),
            "include_collections": [collection.name for collection in made],
            "export_tensorboard": _flag(top.get("export_tensorboard"))}, made
