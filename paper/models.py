"""Named constructors of the models that the paper compares, at its sizes."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from bsatnp.bias import RBFNetwork, Sum
from bsatnp.groups import SO3, On, Product, TimeShift, Translation
from bsatnp.layers import Identity, grid_between
from bsatnp.likelihoods import AbstractHead
from bsatnp.models import BSATNP, PTTETNP, TETNP, TNPD, AbstractModel, ConvCNP
from paper.protocol import Make

#: Initial length scales of the bases, from the shortest to the longest, in the units of the experiments' coordinates.
SPACE, TIME, DEGREES = (0.1, 2.0), (0.1, 2.0), (0.5, 20.0)

#: Where the authors' bases start, all of them: weight and rate 1.
EQUAL = (0.5**0.5, 0.5**0.5)


def bsa_tnp(
    widths: Mapping[str, int],
    *,
    embed: tuple[str, ...] = (),
    bias: bool = True,
    basis: Mapping[str, int] | None = None,
    lengths: Mapping[str, tuple[float, float]] | None = None,
    also: Callable[[Any], Any] | None = None,
    geodesic: bool = False,
    head: AbstractHead | None = None,
    key: Any,
) -> BSATNP:
    """BSA-TNP on fixed effects x, space s and time t, as far as `widths` has them.

    Fixed effects are always embedded, as they are. Without a bias it is the paper's SA-TNP.

    Args:
        widths: of the components.
        embed: components that are embedded besides the fixed effects.
        bias: whether space and time enter the attention as biases.
        basis: number of basis functions, 5 for space and 3 for time unless it says otherwise.
        lengths: initial length scales of the bases of space and time.
        also: gives one more bias of space, called with its group.
        geodesic: whether distances are along great circles.
        head: the likelihood.
        key: draws the weights.
    """
    basis = {"s": 5, "t": 3, **(basis or {})}
    lengths = {"s": DEGREES if geodesic else SPACE, "t": TIME, **(lengths or {})}
    groups = {"s": SO3() if geodesic else Translation(widths.get("s", 1)), "t": TimeShift()}
    terms = [RBFNetwork(On(c, groups[c]), heads=4, basis=basis[c], lengths=lengths[c]) for c in "st" if c in widths]
    if also is not None:
        terms.append(also(On("s", groups["s"])))
    seen = [name for name in ("x", "s", "t") if name in widths and (name == "x" or name in embed)]
    return BSATNP(
        embed={name: Identity(widths[name]) for name in seen},
        bias=(Sum(*terms) if len(terms) > 1 else terms[0]) if bias else None,
        head=head,
        key=key,
    )


def variants(widths: Mapping[str, int], **options: Any) -> dict[str, Make]:
    """BSA-TNP with space and time embedded, as biases, and both."""
    where = tuple(name for name in ("s", "t") if name in widths)
    return {
        "bsa-tnp-embed": partial(bsa_tnp, widths, embed=where, bias=False, **options),
        "bsa-tnp-bias": partial(bsa_tnp, widths, **options),
        "bsa-tnp-embed-bias": partial(bsa_tnp, widths, embed=where, **options),
    }


def others(widths: Mapping[str, int], *, head: AbstractHead | None = None, pre_norm: bool = False) -> dict[str, Make]:
    """TNP-D, and TE-TNP in full and through pseudo-tokens, whose groups move all components."""
    return {
        "tnp-d": partial(_tnp_d, widths, head=head, pre_norm=pre_norm),
        "pt-te-tnp-32": partial(_pt_te_tnp, widths, pseudo=32, head=head),
        "pt-te-tnp-128": partial(_pt_te_tnp, widths, pseudo=128, head=head),
        "te-tnp": partial(_te_tnp, widths, head=head),
    }


def _tnp_d(widths, *, head, pre_norm, key):
    return TNPD(embed={name: Identity(n) for name, n in widths.items()}, head=head, pre_norm=pre_norm, key=key)


def _te_tnp(widths, *, head, key):
    return TETNP(group=_shifts(widths), head=head, key=key)


def _pt_te_tnp(widths, *, pseudo, head, key):
    return PTTETNP(group=_shifts(widths), pseudo=pseudo, head=head, key=key)


def _shifts(widths):
    return Product(*[On(name, Translation(n)) for name, n in widths.items()])


def conv_cnp(half_width: float, *, head: AbstractHead | None = None, key: Any) -> ConvCNP:
    """The off-grid ConvCNP on a square around zero, with 16 grid points a unit and half a unit of margin."""
    reach = half_width + 0.5
    grid = grid_between((-reach, -reach), (reach, reach), points_per_unit=16)
    return ConvCNP(grid=grid, head=head, key=key)


def on_domain(model: AbstractModel, low: float, high: float) -> AbstractModel:
    """The model for tests on the square (low, high)²: only ConvCNP has to know, whose grid must cover it."""
    if not isinstance(model, ConvCNP):
        return model
    return model.with_grid(model.grid.covering((low - 0.5,) * 2, (high + 0.5,) * 2))


def bases(widths: Mapping[str, int], **options: Any) -> dict[str, Make]:
    """The ablation over the number of bases, of space and time alike."""
    return {f"bsa-tnp-basis-{n}": partial(bsa_tnp, widths, basis={"s": n, "t": n}, **options) for n in (1, 3, 10)}
