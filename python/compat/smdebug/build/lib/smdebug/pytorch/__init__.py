"""The hook for PyTorch, and the names that programs import beside it."""

from .. import CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode, modes
from ..collection import Collection
from ..trials import create_trial
from .hook import (Hook, TornasoleHook, add_to_collection, del_hook, get_collection,
                   get_collections, get_hook, set_hook)

__all__ = ["Collection", "CollectionKeys", "Hook", "ReductionConfig", "SaveConfig",
           "SaveConfigMode", "TornasoleHook", "add_to_collection", "create_trial", "del_hook",
           "get_collection", "get_collections", "get_hook", "modes", "set_hook"]
