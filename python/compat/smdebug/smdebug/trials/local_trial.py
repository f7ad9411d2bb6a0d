"""LocalTrial."""

from .trial import LocalTrial  # noqa: F401
