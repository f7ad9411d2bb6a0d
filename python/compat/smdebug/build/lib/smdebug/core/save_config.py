"""SaveConfig and SaveConfigMode."""

from ..config import SaveConfig, SaveConfigMode  # noqa: F401
