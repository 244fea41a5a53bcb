"""Lets the tests of this folder import what they share, and keeps compilation cheap."""

import pathlib
import sys

import jax
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))


@pytest.fixture(autouse=True)
def quick_compilation():
    """Compile without optimisation; a module about compiled code overrides this."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
