"""Documentation is true: blocks of Python run, commands parse, every room has its reference, pictures are there."""

import importlib
import re
import shlex
import shutil
import subprocess
import sys
import types
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

import bsatnp
from bsatnp.bias import Sum
from bsatnp.cli.options import parser
from bsatnp.frames import fitting
from bsatnp.models import BSATNP

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = ROOT.parent / "shared" / "reference" / "bsatnp_s2.npz"
PAGES = sorted(page.name for page in DOCS.glob("*.md"))
ROOMS = sorted(
    path.stem
    for path in (ROOT / "bsatnp").iterdir()
    if not path.name.startswith("_")
    and path.stem != "cli"
    and (path.suffix == ".py" or (path / "__init__.py").exists())
)


def blocks(page, language="python"):
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


def run(page, language="python"):
    """The blocks of a page one after another in one namespace, with two steps of training instead of many."""
    scope: dict = {"__name__": page}
    for number, code in enumerate(blocks(page, language)):
        program = compile(re.sub(r"\bsteps=\d+", "steps=2", code), f"{page}, block {number + 1}", "exec")
        if not re.match(r"# \w+\.py ", code):  # a program of its own, for several machines
            exec(program, scope)
    return scope


def untrained(model, stream, **options):
    """In the place of `fit`, where a test is about something else."""
    return types.SimpleNamespace(model=model)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the reader works: the first page has left its model there, untrained, since the README's test trains it."""
    folder = tmp_path_factory.mktemp("reader")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(bsatnp, "fit", untrained)
        run("index.md")
    return folder


def test_the_first_page_has_the_example_of_the_readme():
    """Line by line, with the lines that save the model besides; the README's own test runs it as printed."""
    readme = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0].splitlines()
    (page,) = blocks("index.md")
    added = [line for line in page.splitlines() if line and line not in readme]
    assert added == ["from bsatnp import BSATNP, Points, fit, save", 'save("model.npz", model)']
    assert [line for line in readme if line and line not in page.splitlines()] == [
        "from bsatnp import BSATNP, Points, fit"
    ]


def tiny(columns, index, head, *, key):
    """The default model of a data set in the smallest size."""
    biases = [role.bias(index[role.component], heads=2) for role in columns.roles]
    sizes = {"depth": 1, "dim": 8, "heads": 2, "width": 8, "embed_sizes": (8,), "hidden": 8}
    return BSATNP(bias=Sum(*biases), head=head, **sizes, key=key)


@pytest.mark.parametrize("train", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["untrained", "trained"])
@pytest.mark.parametrize("page", [page for page in PAGES if page != "index.md"])
def test_the_blocks_of_a_page_run(page, train, folder, monkeypatch, capsys):
    """Trained for two steps, or where models are made without `bsatnp.frames`, not at all."""
    monkeypatch.chdir(folder)
    if not train:
        monkeypatch.setattr(bsatnp, "fit", untrained)
    monkeypatch.setattr(fitting, "default_model", tiny)
    if page == "from-dl4bi.md":
        if not REFERENCE.exists():
            pytest.skip(
                f"{REFERENCE.name} is not there: parameters of the authors' model are not part of the repository"
            )
        arrays = np.load(REFERENCE)
        named = {name.removeprefix("param/"): arrays[name] for name in arrays if name.startswith("param/")}
        np.savez("theirs.npz", **named)
    run(page)
    plt.close("all")
    said = capsys.readouterr().out
    assert "nan" not in said.lower().split()
    if page == "groups.md":
        assert "invariant" in said
    if page == "tutorial.md":  # with the same table, and what is compiled already
        (folder / "map.png").unlink()
        run("../README.md", "py")
        plt.close("all")
        assert (folder / "map.png").stat().st_size > 10_000


def test_a_block_that_fails_is_noticed(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\ntext\n\n```python\nassert x == 2\n```\n")
    monkeypatch.setattr(sys.modules[__name__], "DOCS", tmp_path)
    with pytest.raises(AssertionError):
        run("page.md")


def test_commands_in_the_shell_parse():
    commands = [line for page in PAGES for block in blocks(page, "sh") for line in block.splitlines()]
    ours = [shlex.split(line)[1:] for line in commands if line.startswith("bsatnp ")]
    assert len(ours) >= 3
    for command in ours:
        assert parser().parse_args(command).command == command[0]


def exported(room):
    """What a room brings, by the names under which its users import it."""
    module = importlib.import_module(f"bsatnp.{room}")
    package = hasattr(module, "__path__")
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and callable(value)
        and not isinstance(value, types.ModuleType)
        and str(getattr(value, "__module__", "")).startswith("bsatnp." if package else f"bsatnp.{room}")
    }


@pytest.mark.parametrize("room", ROOMS)
def test_the_reference_of_a_room_names_all_it_brings(room):
    text = (DOCS / "api" / f"{room}.md").read_text().split("\n## ")[0]
    assert f"::: bsatnp.{room}\n" in text
    assert set(re.findall(r"^        - (\w+)$", text, re.MULTILINE)) == exported(room)
    assert f"api/{room}.md" in (ROOT / "mkdocs.yml").read_text()


def test_every_page_is_in_the_navigation_and_pictures_are_there():
    nav = (ROOT / "mkdocs.yml").read_text()
    for page in PAGES:
        assert f" {page}\n" in nav, page
        for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", (DOCS / page).read_text()):
            assert (DOCS / picture).exists(), (page, picture)


def test_versions_agree():
    """That of the package, of the citation and of the newest entry of the changelog."""
    (version,) = re.findall(r'^version = "(\d+\.\d+\.\d+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE) == [version]
    assert re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == version


def test_the_citation_is_valid():
    yaml = pytest.importorskip("yaml", reason="PyYAML, which comes with mkdocs, is not installed")
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "version", "license"} <= set(found)
    paper = found["preferred-citation"]
    assert {"type", "title", "authors"} <= set(paper) and len(paper["authors"]) == 7


@pytest.mark.slow
def test_the_site_builds_strictly(tmp_path):
    if shutil.which("mkdocs", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("mkdocs is not installed: pip install 'bsatnp[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert built.returncode == 0, built.stderr
    reference = (tmp_path / "site" / "api" / "groups" / "index.html").read_text()
    assert 'id="bsatnp.groups.SO3.invariants"' in reference and "great-circle" in reference
