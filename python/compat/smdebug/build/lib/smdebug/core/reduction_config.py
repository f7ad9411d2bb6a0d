"""ReductionConfig."""

from ..config import ReductionConfig  # noqa: F401
