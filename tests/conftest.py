"""Checks that are on for every test: shapes at run time, strict promotion, no implicit rank broadcasting."""

import os
import pathlib

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
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
hypothesis.settings.load_profile(PROFILE)

#: Rooms whose tests spend their time in compiling: there XLA does not optimise, but for the nightly profile.
COMPILING = {
    "bias",
    "checkpoint",
    "compat",
    "groups",
    "invariance",
    "likelihoods",
    "models",
    "numerics",
    "predict",
    "tasks",
}

#: Compiled code takes many small pieces of memory, and Linux ends a process that asks for more than 65,530 of them.
MOST_MAPPED = 30_000


@pytest.fixture(scope="module", autouse=True)
def quick_compilation(request: pytest.FixtureRequest):
    """Compile without optimisation; a module about compiled code overrides this."""
    room = request.path.relative_to(pathlib.Path(__file__).parent).parts[0]
    jax.config.update("jax_disable_most_optimizations", room in COMPILING and PROFILE != "nightly")
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    if mapped() > MOST_MAPPED:
        jax.clear_caches()


def mapped() -> int:
    """Pieces of memory that this process has mapped; 0 where the system does not say."""
    maps = pathlib.Path("/proc/self/maps")
    return maps.read_bytes().count(b"\n") if maps.exists() else 0


@pytest.fixture
def x64() -> bool:
    """Whether this run computes in double precision."""
    return bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]
