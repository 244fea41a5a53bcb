"""Checks that are on for every test: shapes at run time, strict promotion, no implicit rank broadcasting."""

import os

os.environ.setdefault("MPLBACKEND", "Agg")

from jaxtyping import install_import_hook

# an int is welcome where a float is asked for
install_import_hook("bsatnp", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

common = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow], "print_blob": True}
hypothesis.settings.register_profile("default", max_examples=20, **common)
hypothesis.settings.register_profile("nightly", max_examples=2000, **common)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture
def x64() -> bool:
    """Whether this run computes in double precision."""
    return bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]
