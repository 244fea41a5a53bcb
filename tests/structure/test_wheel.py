"""The wheel: builds, carries what it should, and works in an empty environment away from the repository."""

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def call(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=1800, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from the checkout."""
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


def test_it_holds_the_package_its_types_and_its_licence_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "bsatnp/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"bsatnp"}
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "bsatnp").rglob("*.py")}
    assert modules <= set(names)
    data = {
        str(path.relative_to(ROOT)) for path in (ROOT / "bsatnp").rglob("*") if path.suffix in (".npz", ".md", ".json")
    }
    assert data <= set(names), "weights and their cards"


def test_its_name_has_the_version(wheel):
    (version,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert wheel.name.startswith(f"bsatnp-{version}-py3-none-any")


def test_in_an_empty_environment_it_runs_the_example_of_the_readme(wheel, tmp_path):
    """Every dependency that the example needs is declared, and no file of the repository is needed."""
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / ("Scripts" if os.name == "nt" else "bin") / "python"
    call(python, "-m", "pip", "install", "-q", wheel)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    away = tmp_path / "away"
    away.mkdir()
    script = away / "example.py"
    script.write_text(code.replace("steps=200", "steps=3") + "\nimport bsatnp\nprint(bsatnp.__file__)\n")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JAX", "XLA"))}
    said = call(python, script, cwd=away, env=clean)
    assert str(tmp_path / "empty") in said.splitlines()[-1]
    for module in ("plot", "joint", "frames", "cli"):  # import without their extras
        call(python, "-c", f"import bsatnp.{module}", cwd=away, env=clean)
