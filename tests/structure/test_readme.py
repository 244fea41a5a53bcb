"""The example of the README runs as printed, with fewer steps."""

import re
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_example_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert "steps=200" in code
    scope: dict = {}
    exec(compile(code.replace("steps=200", "steps=2"), "README.md", "exec"), scope)
    assert scope["forecast"].mean.shape == (50, 1)
    assert (scope["forecast"].std > 0).all()
    assert capsys.readouterr().out
