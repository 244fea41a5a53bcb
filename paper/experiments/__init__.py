"""One module for each experiment of the paper."""

import importlib
from collections.abc import Mapping
from typing import Any

from paper.protocol import Experiment

#: Names on the command line to modules.
MODULES = {
    "gp": "gp",
    "gp-multiscale": "gp:MULTISCALE",
    "sphere": "sphere",
    "sir": "sir",
    "gneiting": "gneiting",
    "beijing": "beijing",
    "era5-cnw": "era5:CNW",
    "era5-cwn": "era5:CWN",
}


def experiment(name: str) -> Experiment:
    """The experiment of that name.

    Raises:
        ValueError: no such experiment.
    """
    if name not in MODULES:
        raise ValueError(f"`experiment` must be one of {sorted(MODULES)}, got '{name}'.")
    module, _, attribute = MODULES[name].partition(":")
    return getattr(importlib.import_module(f"paper.experiments.{module}"), attribute or "EXPERIMENT")


def title_of(result: Mapping[str, Any]) -> str:
    """The title of a result's experiment; the one in the result where it is none of these."""
    return experiment(result["experiment"]).title if result["experiment"] in MODULES else result["title"]
