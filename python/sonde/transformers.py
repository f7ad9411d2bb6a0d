"""Watches a training run of Hugging Face's Trainer.

    from sonde.transformers import SondeCallback
    trainer = Trainer(..., callbacks=[SondeCallback(run="runs/first")])
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from .watching import Watch, watch


class SondeCallback(TrainerCallback):
    """options: those of sonde.watch but for model, optimizer, rank and world.

    watch is the Watch, from the start of training; findings stay in it. What the trainer
    logs is recorded as scalar/<name>."""

    def __init__(self, **options: Any):
        self.options = options
        self.watch: Watch | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None,
                       optimizer: Any = None, **more: Any) -> None:
        plain = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
        self.watch = watch(model, plain, rank=args.process_index, world=args.world_size,
                           **self.options)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        if self.watch is not None and not self.watch.closed and self.watch.step >= 0:
            for name, value in (logs or {}).items():
                if isinstance(value, (int, float)):
                    self.watch.scalar(name, value)

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if self.watch is not None:
            self.watch.close()
