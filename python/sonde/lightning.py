"""Watches a training run of Lightning.

    from sonde.lightning import SondeCallback
    trainer = Trainer(callbacks=[SondeCallback(run="runs/first")])

A LightningModule's training_step is the forward pass, whether it calls forward or not.
"""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from .watching import Watch, watch


class SondeCallback(Callback):
    """options: those of sonde.watch but for model, optimizer, scaler, rank and world.

    watch is the Watch, from the start of fit until the next; findings stay in it."""

    def __init__(self, **options: Any):
        self.options = options
        self.watch: Watch | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self.watch = watch(pl_module, trainer.optimizers, rank=trainer.global_rank,
                           world=trainer.world_size,
                           scaler=getattr(trainer.precision_plugin, "scaler", None),
                           **self.options)

    def _begin(self, trainer: Any, pl_module: Any, batch: Any, *place: int) -> None:
        if self.watch is not None:
            self.watch.forward_begins(pl_module)

    def _end(self, trainer: Any, pl_module: Any, *result: Any) -> None:
        if self.watch is not None:
            self.watch.forward_ends()

    on_train_batch_start = on_validation_batch_start = _begin
    on_before_backward = on_validation_batch_end = _end

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if self.watch is not None:
            self.watch.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self.watch is not None:
            self.watch.close("interrupted" if isinstance(exception, KeyboardInterrupt)
                             else "failed", type(exception).__name__)
