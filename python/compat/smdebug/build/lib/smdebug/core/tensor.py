"""StepState and Tensor."""

from ..trials import StepState, Tensor  # noqa: F401
