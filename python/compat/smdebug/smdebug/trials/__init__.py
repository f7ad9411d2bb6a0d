"""Reading a run: while it is written, or later."""

from .trial import LocalTrial, S3Trial, StepState, Tensor, Trial, create_trial

__all__ = ["LocalTrial", "S3Trial", "StepState", "Tensor", "Trial", "create_trial"]
