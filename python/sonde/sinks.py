"""Where findings go besides the terminal: functions for sonde.watch(on_finding=...).

    sonde.watch(model, optimizer, on_finding=sonde.sinks.wandb(wandb.init(...)))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .records import Finding


def wandb(run: Any) -> Callable[[Finding], None]:
    """Findings in the summary of a run of Weights & Biases, as sonde/<rule>/<tensor>."""
    def send(finding: Finding) -> None:
        place = f"sonde/{finding.rule}" + (f"/{finding.tensor}" if finding.tensor else "")
        run.summary[place] = str(finding)

    return send


def mlflow(client: Any, run_id: str) -> Callable[[Finding], None]:
    """Findings as tags sonde.<rule>.<tensor> of a run of MLflow; client: an MlflowClient."""
    def send(finding: Finding) -> None:
        name = f"sonde.{finding.rule}" + (f".{finding.tensor}" if finding.tensor else "")
        client.set_tag(run_id, name[:250], str(finding)[:5000])

    return send
