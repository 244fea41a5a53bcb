"""The quickstart as printed learns something, and by how much: against one normal distribution for all values."""

import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from bsatnp.simulate import GPTasks
from bsatnp.train import evaluate

ROOT = Path(__file__).parents[2]


def margin(scope):
    """How many nats a value the model of a scope is better than a constant, on tasks that it has not seen."""
    tasks, key = GPTasks(dim=1, n_ctx=(4, 48), ctx_sizes=(48,), n_tgt=64), jax.random.key(9)
    nll = evaluate(scope["model"], tasks, batches=4, key=key)["nll"]
    values = np.concatenate([np.asarray(tasks(n, key=jax.random.fold_in(key, n)).tgt.f).ravel() for n in range(4)])
    return 0.5 + 0.5 * np.log(2 * np.pi * values.var()) - nll


@pytest.mark.parametrize(("steps", "least"), [(60, 0.3), pytest.param(200, 0.6, marks=pytest.mark.slow)])
def test_c13_the_example_of_the_readme_beats_a_constant(steps, least, capsys):
    """At its 200 steps by 0.82 nats when this was written."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert "steps=200" in code
    scope: dict = {}
    exec(compile(code.replace("steps=200", f"steps={steps}"), "README.md", "exec"), scope)
    assert scope["forecast"].mean.shape == (50, 1) and (scope["forecast"].std > 0).all()
    assert capsys.readouterr().out
    gained = margin(scope)
    print(f"README example, {steps} steps: {gained:.3f} nats better than a constant")
    assert gained > least


@pytest.mark.slow
def test_c13_the_quickstart_as_printed_beats_a_constant(tmp_path):
    """By 1.5 nats, 82 % of the way to the exact posterior, when this was written; wherever the inputs are moved."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", "SMOKE": ""}
    command = [sys.executable, str(ROOT / "examples" / "quickstart.py")]
    run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=3600)
    assert run.returncode == 0, run.stderr
    nll = {
        name.strip(): float(value) for name, value in re.findall(r"^  (.+?) +(-?\d+\.\d+)$", run.stdout, re.MULTILINE)
    }
    assert (tmp_path / "quickstart.png").stat().st_size > 10_000
    assert nll["constant predictor"] - nll["BSA-TNP"] > 1.0, nll
    for name in ("all inputs shifted by 10", "all inputs shifted by 1e4"):
        assert abs(nll[name] - nll["BSA-TNP"]) < 1e-3, nll
    assert nll["exact posterior, true kernel"] < nll["BSA-TNP"], nll
