"""How much to fuzz, and what counts as the package's own error."""

import pathlib
import traceback

import hypothesis

import bsatnp

HERE = str(pathlib.Path(bsatnp.__file__).parent)
#: Examples of each fuzz test: 60 by default, 6,000 in the nightly profile.
MANY = hypothesis.settings(
    max_examples=3 * hypothesis.settings().max_examples,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
)


def own(error: BaseException) -> bool:
    """Whether an error is a ValueError that the package raised, in a sentence, and no library underneath it."""
    frames = traceback.extract_tb(error.__traceback__)
    says = str(error)
    return (
        isinstance(error, ValueError)
        and frames[-1].filename.startswith(HERE)
        and says.endswith(".")
        and len(says) < 400
    )
