"""The map of the paper's tables and figures: complete, and no better than what was run."""

import re
from pathlib import Path

import pytest

from paper import contents, published
from paper.__main__ import _parser
from paper.drawing import curves, style
from paper.experiments import experiment
from paper.folders import ROOT
from paper.report import load

PAPER = ROOT / "paper"
SOURCE = ROOT.parent / "shared" / "paper.tex"


def numbers(kind):
    return sorted(
        int(number) for item in contents.ITEMS if item.name.startswith(kind) for number in re.findall(r"\d+", item.name)
    )


def test_the_readme_says_what_was_run_and_no_more():
    text = (PAPER / "README.md").read_text()
    rewritten = contents.rewrite(text, load(PAPER / "results"), PAPER)
    assert rewritten == text, "the results have changed: run `python -m paper report`"


def test_every_table_and_figure_has_its_place():
    assert sorted(set(numbers("Table"))) == list(range(1, 28)) and numbers("Figure") == list(range(1, 8))
    if SOURCE.exists():
        source = SOURCE.read_text()
        assert len(re.findall(r"\\begin\{table\*?\}", source)) == 27
        assert len(re.findall(r"\\begin\{figure\*?\}", source)) == 7


def test_a_model_has_one_look_that_no_other_of_its_picture_has():
    drawn: dict[tuple, set] = {}
    for one in load(PAPER / "results"):
        if curves._drawn(one):
            drawn.setdefault((one["experiment"], one["preset"]), set()).add(one["model"])
    for picture, models in drawn.items():
        looks = {curves._look(model, sorted(models)) for model in models}
        assert len(looks) == len(models) and max(looks) < len(curves._LOOKS), picture
    assert [curves._look(name, ["a", "tnp-d", "b"]) for name in ("a", "tnp-d", "b")] == [7, 1, 9]


def test_commands_are_those_of_the_command_line():
    for item in contents.ITEMS:
        if item.command:
            options = _parser().parse_args(item.command.replace("…", "x").split())
            if hasattr(options, "experiment"):
                assert experiment(options.experiment)
        for row in item.rows:
            assert row in published.numbers(), item.name
            assert contents._models(item, *row), item.name


def result(experiment, model, preset, seed=0, domains=("original",), mapping=None):
    return {
        "experiment": experiment,
        "model": model,
        "preset": preset,
        "seed": seed,
        "tests": dict.fromkeys(domains, {}),
        "published": mapping or {},
    }


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([], "not run: tnp-d, pt-te-tnp-32, bsa-tnp-embed, bsa-tnp-bias, bsa-tnp-embed-bias"),
        (
            [result("gneiting", "tnp-d", "full"), result("gneiting", "bsa-tnp-bias", "lite")],
            "run in full: tnp-d; run lite: bsa-tnp-bias; not run: pt-te-tnp-32, bsa-tnp-embed, bsa-tnp-embed-bias",
        ),
        (
            [result("gneiting", "tnp-d", "full", seed) for seed in (0, 1)],
            "run in full: tnp-d ×2; not run: pt-te-tnp-32, bsa-tnp-embed, bsa-tnp-bias, bsa-tnp-embed-bias",
        ),
        (
            [result("gneiting", "tnp-d", "hour")],
            "run for an hour: tnp-d; not run: pt-te-tnp-32, bsa-tnp-embed, bsa-tnp-bias, bsa-tnp-embed-bias",
        ),
        (
            [result("gneiting", "tnp-d", "full", domains=("elsewhere",)), result("gp", "tnp-d", "full")],
            "not run: tnp-d, pt-te-tnp-32, bsa-tnp-embed, bsa-tnp-bias, bsa-tnp-embed-bias",
        ),
    ],
)
def test_states_follow_from_results(results, expected, tmp_path):
    (item,) = (item for item in contents.ITEMS if item.what == "Gneiting GP")
    assert contents.state(item, results, tmp_path) == expected


def test_a_picture_says_what_it_was_drawn_from(tmp_path):
    import matplotlib.pyplot as plt

    (item,) = (item for item in contents.ITEMS if item.name == "Figure 2")
    assert contents.state(item, [], tmp_path) == "not made: no trained model yet"
    style.save(plt.figure(), tmp_path / "figures" / "sphere.png", "lite budget, 3 updates")
    older = "made; lite budget, 3 updates; drawn before pictures named their weights"
    assert contents.state(item, [], tmp_path) == older
    style.save(plt.figure(), tmp_path / "figures" / "sphere.png", "a, weights 12ab\nb, weights 34cd")
    rows = [result("sphere", name, "lite") | {"weights": weights} for name, weights in (("a", "12ab"), ("b", "34cd"))]
    assert contents.state(item, rows, tmp_path) == "made; a, weights 12ab; b, weights 34cd"
    assert contents.state(item, rows[:1], tmp_path).endswith("are not those of a row of the report")


def test_a_picture_says_which_models_it_shows(tmp_path):
    import matplotlib.pyplot as plt

    (item,) = (item for item in contents.ITEMS if item.name == "Figure 4")
    for number, name in enumerate(("bsa-tnp", "tnp-d", "pt-te-tnp-32")):
        style.save(plt.figure(), tmp_path / "figures" / f"era5-{name}.png")
        expected = ("made for bsa-tnp of tnp-d, pt-te-tnp-32, bsa-tnp", "made for tnp-d, bsa-tnp of tnp-d, ", "made")
        assert contents.state(item, [], tmp_path).startswith(expected[number])
    assert contents.state(item, [], tmp_path) == "made"


def test_a_text_without_marks_is_refused():
    with pytest.raises(ValueError, match="`text` must hold"):
        contents.rewrite("no map", [], Path())
