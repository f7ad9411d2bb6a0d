"""Reading a run: while it is written, or later."""

from .trial import StepState, Tensor, Trial, create_trial

__all__ = ["StepState", "Tensor", "Trial", "create_trial"]
