"""create_trial."""

from .trial import create_trial  # noqa: F401
