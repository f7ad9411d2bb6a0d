"""ModeKeys."""

from ..modes import ModeKeys  # noqa: F401
