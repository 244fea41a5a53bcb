"""Let the library's own errors through, which the shape checks of the tests would come before."""

import jaxtyping
import pytest


@pytest.fixture
def no_shape_checks(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
