"""RequiredTensors."""

from .rule import RequiredTensors  # noqa: F401
