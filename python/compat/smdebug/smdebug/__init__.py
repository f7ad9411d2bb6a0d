"""smdebug's names on Sonde: programs written for smdebug run as they stand.

    from smdebug import SaveConfig, modes
    import smdebug.pytorch as smd

    hook = smd.Hook(out_dir="runs/first", save_config=SaveConfig(save_interval=10))
    hook.register_module(net)
    hook.set_mode(modes.TRAIN)

What is written is a run of Sonde's; what is read is either's. docs/smdebug.md lists what is
different and what is left out.
"""

from .collection import CollectionKeys
from .config import ReductionConfig, SaveConfig, SaveConfigMode
from .core.logger import set_level_from_environment
from .modes import ModeKeys as modes

__version__ = "1.0.34"  # whose interface this is
__all__ = ["CollectionKeys", "ReductionConfig", "SaveConfig", "SaveConfigMode", "modes"]

set_level_from_environment()
