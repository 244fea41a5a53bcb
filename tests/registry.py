"""Named constructors of every public group, bias and model, and the laws they obey.

Whatever `bsatnp.groups`, `bsatnp.bias` or `bsatnp.models` exports has to be here or the suite fails. Tests run every
entry through the law checkers of `bsatnp.testing`.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import hypothesis
import jax
import numpy as np
import optax

from bsatnp import bias, groups, models
from bsatnp.groups import SO3, Cyclic, Euclidean, On, Permutation, Product, Scaling, TimeShift, Translation
from bsatnp.layers import Grid, Identity
from bsatnp.tasks import Points, Task, centre

#: Cases of a law whose functions compile in a moment, and of one that runs a model.
LIGHT = hypothesis.settings().max_examples
HEAVY = max(4, LIGHT // 4)

#: What the rooms export besides groups, biases and models.
HELPERS = {
    *("Group", "check_is_group", "components", "example_point", "factors", "has_width", "hashes", "pair_invariants"),
    *("safe_norm", "squared_length"),
}


@dataclasses.dataclass(frozen=True)
class OfGroup:
    """A group on one component, the number of its invariants, and length scales that suit its units."""

    make: Callable[[], Any]
    width: int
    invariants: int
    lengths: tuple[float, float] = (0.5, 5.0)
    signed: bool = False


GROUPS = {
    "Translation": OfGroup(lambda: Translation(2), 2, 2),
    "TimeShift": OfGroup(TimeShift, 1, 1, signed=True),
    "Euclidean": OfGroup(Euclidean, 2, 1),
    "Euclidean 3": OfGroup(lambda: Euclidean(3, scale=1.0), 3, 1),
    "SO3": OfGroup(SO3, 2, 1, (5.0, 60.0)),
    "SO3 unit vectors": OfGroup(lambda: SO3(3), 3, 1, (5.0, 60.0)),
    "Cyclic": OfGroup(lambda: Cyclic(24.0), 1, 2, (1.0, 6.0)),
    "Scaling": OfGroup(lambda: Scaling(2), 2, 2),
    "Permutation": OfGroup(lambda: Permutation(5), 1, 1),
}

#: Groups on whole index sets.
COMBINED = {
    "On": lambda: On("s", Euclidean(2)),
    "Product": lambda: Product(On("s", SO3()), On("t", TimeShift())),
}


@dataclasses.dataclass(frozen=True)
class OfBias:
    """A bias of any group: `make(group, entry of the group)`; `signed` where it needs a signed lag."""

    make: Callable[[Any, OfGroup], bias.AbstractBias]
    signed: bool = False


KEY = 7
BIASES = {
    "RBFNetwork": OfBias(lambda g, e: bias.RBFNetwork(g, heads=2, basis=3, lengths=e.lengths)),
    "ExponentialNetwork": OfBias(lambda g, e: bias.ExponentialNetwork(g, heads=2, basis=3, lengths=e.lengths)),
    "Linear": OfBias(lambda g, e: bias.Linear(g, heads=2, length=e.lengths[1])),
    "TISA": OfBias(
        lambda g, e: bias.TISA(
            g, dim=e.invariants, heads=2, basis=3, lengths=e.lengths, reach=e.lengths[0], key=jax.random.key(KEY)
        )
    ),
    "MLPBias": OfBias(lambda g, e: bias.MLPBias(g, dim=e.invariants, heads=2, width=8, key=jax.random.key(KEY))),
    "Causal": OfBias(lambda g, e: bias.Causal(g), signed=True),
    "Window": OfBias(lambda g, e: bias.Window(g, 0.97 * e.lengths[1])),
    "Sum": OfBias(
        lambda g, e: bias.Sum(bias.RBFNetwork(g, heads=2, lengths=e.lengths), bias.Window(g, 0.97 * e.lengths[1]))
    ),
    "Weighted": OfBias(lambda g, e: bias.Weighted(bias.RBFNetwork(g, heads=2, lengths=e.lengths), heads=2)),
}

#: Sizes that compile quickly.
SMALL = {"depth": 2, "dim": 16, "heads": 2, "width": 16, "embed_sizes": (16,), "hidden": 16}


def plain_descent() -> optax.GradientTransformation:
    """An optimiser that moves by the gradient itself: AdamW divides by the root of squares as small as rounding."""
    return optax.sgd(0.1)


def bsatnp(bias_: bias.AbstractBias | None = None, *, seed: int = 0, **options: Any) -> models.BSATNP:
    """A small BSA-TNP."""
    return models.BSATNP(bias=bias_, **{**SMALL, **options}, key=jax.random.key(seed))


@functools.cache
def invariant_model(group: str) -> models.BSATNP:
    """A small BSA-TNP with a bias of the named group on "s"; two covariates are embedded."""
    entry = GROUPS[group]
    biased = bias.RBFNetwork(On("s", entry.make()), heads=2, basis=3, lengths=entry.lengths)
    return bsatnp(biased, embed={"x": Identity(2)})


@functools.cache
def every_group() -> models.BSATNP:
    """A small BSA-TNP with a component and a bias for every group, all of which compile at once."""
    terms = [
        bias.RBFNetwork(On(name, entry.make()), heads=2, basis=2, lengths=entry.lengths)
        for name, entry in GROUPS.items()
        if not entry.signed
    ]
    lags = bias.MLPBias(On("TimeShift", TimeShift()), dim=1, heads=2, width=8, key=jax.random.key(KEY))
    return bsatnp(bias.Sum(*terms, lags), embed={"x": Identity(2)})


#: The group of space and time, as shifts.
SHIFTS = Product(On("s", Translation(2)), On("t", TimeShift()))
PLACE_AND_TIME = {"s": Identity(2), "t": Identity(1)}


def biased(**options: Any) -> models.BSATNP:
    """A small BSA-TNP with a bias of shifts of space and one of shifts of time."""
    space = bias.RBFNetwork(On("s", Translation(2)), heads=2, basis=3)
    return bsatnp(bias.Sum(space, bias.RBFNetwork(On("t", TimeShift()), heads=2, basis=2)), **options)


def geodesic(**options: Any) -> models.BSATNP:
    """A small BSA-TNP on the sphere and in time, with one bias of each."""
    space = bias.RBFNetwork(On("s", SO3()), heads=2, basis=3, lengths=(5.0, 60.0))
    time = bias.RBFNetwork(On("t", TimeShift()), heads=2, basis=2, lengths=(0.5, 5.0))
    return bsatnp(bias.Sum(bias.Weighted(space, heads=2), time), **options)


def sa_tnp(**options: Any) -> models.BSATNP:
    """A small BSA-TNP that sees places and times as they are and has no bias."""
    return bsatnp(embed=PLACE_AND_TIME, **options)


def tnpd(**options: Any) -> models.TNPD:
    """A small TNP-D."""
    return models.TNPD(**{"embed": PLACE_AND_TIME, **SMALL, "key": jax.random.key(0), **options})


def tetnp(**options: Any) -> models.TETNP:
    """A small TE-TNP."""
    small = {"group": SHIFTS, **SMALL, "score_sizes": (8, 8), "key": jax.random.key(0)}
    return models.TETNP(**{**small, **options})


def pttetnp(**options: Any) -> models.PTTETNP:
    """A small PT-TE-TNP with three pseudo-tokens."""
    small = {"group": SHIFTS, "pseudo": 3, **SMALL, "score_sizes": (8, 8), "key": jax.random.key(0)}
    return models.PTTETNP(**{**small, **options})


def convcnp(**options: Any) -> models.ConvCNP:
    """A small ConvCNP whose grid follows the context in space, wide enough for the laws; times are covariates."""
    sizes = {"depth": 2, "dim": 4, "kernel": 3, "hidden": (8,), "length": 5.0, "embed": {"t": Identity(1)}}
    following = {"grid": Grid((0.0, 0.0), (2.0, 2.0), (13, 13), follows=True), "key": jax.random.key(0)}
    return models.ConvCNP(**{**sizes, **following, **options})


def fixed_convcnp(**options: Any) -> models.ConvCNP:
    """The same on a grid that stays where it is."""
    return convcnp(grid=Grid((-6.0, -6.0), (1.0, 1.0), (13, 13)), **options)


#: Columns of the table of invariances: what is moved.
MOVES = {
    "space shifted": On("s", Translation(2)),
    "time shifted": On("t", TimeShift()),
    "sphere turned": On("s", SO3()),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """A model on "s" (two coordinates) and "t", and which of `MOVES` leave its predictions unchanged.

    `make` takes the options of the model, such as `head`.
    """

    make: Callable[..., models.AbstractModel]
    unchanged: tuple[str, ...]

    @functools.cached_property
    def model(self) -> models.AbstractModel:
        """The model without options, made once."""
        return self.make()


#: The table of models and their invariances; every entry of it is a test, and the README's table has to agree.
TABLE = {
    "BSA-TNP": Row(biased, ("space shifted", "time shifted")),
    "BSA-TNP, geodesic": Row(geodesic, ("time shifted", "sphere turned")),
    "SA-TNP": Row(sa_tnp, ()),
    "TNP-D": Row(tnpd, ()),
    "TE-TNP": Row(tetnp, ("space shifted", "time shifted")),
    "PT-TE-TNP": Row(pttetnp, ("space shifted", "time shifted")),
    "ConvCNP, grid that follows": Row(convcnp, ("space shifted",)),
    "ConvCNP, fixed grid": Row(fixed_convcnp, ()),
}


def space_and_time() -> models.BSATNP:
    """The BSA-TNP of the sphere and of time."""
    return TABLE["BSA-TNP, geodesic"].model  # pyright: ignore[reportReturnType]


#: Models, and the group on index sets that leaves their predictions unchanged; None where there is none.
MODELS = {
    "BSATNP": (space_and_time, COMBINED["Product"]),
    "SA-TNP": (lambda: TABLE["SA-TNP"].model, lambda: None),
    "TNPD": (lambda: TABLE["TNP-D"].model, lambda: None),
    "TETNP": (lambda: TABLE["TE-TNP"].model, lambda: SHIFTS),
    "PTTETNP": (lambda: TABLE["PT-TE-TNP"].model, lambda: SHIFTS),
    "ConvCNP": (lambda: TABLE["ConvCNP, grid that follows"].model, lambda: On("s", Translation(2))),
}

_run = eqx.filter_jit(lambda model, ctx, tgt: model(ctx, tgt))


def predict(model: Any, ctx: Points, tgt: Points) -> Any:
    """`model(ctx, tgt)`, compiled once for each shape; host arrays are checked and centred before."""
    model.check(ctx)
    model.check(tgt)
    task, _ = centre(Task(ctx, tgt), sorted(model.shift_invariant))
    return _run(model, task.ctx, task.tgt)


def arrays(likelihood: Any) -> list[np.ndarray]:
    """The parameters of a likelihood on the host, in float64."""
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(likelihood)]


def close(got: Any, expected: Any, *, atol: float = 1e-5) -> bool:
    """Whether two likelihoods have the same parameters."""
    return all(np.allclose(a, b, rtol=0, atol=atol) for a, b in zip(arrays(got), arrays(expected), strict=True))


def exported(room: Any) -> dict[str, Any]:
    """The public classes and factories that a room defines or re-exports."""
    return {
        name: value
        for name, value in vars(room).items()
        if not name.startswith("_") and callable(value) and str(value.__module__).startswith("bsatnp.")
    }


def missing() -> dict[str, set[str]]:
    """What the rooms export and the registry lacks, abstract classes and helpers aside."""
    made = {
        "groups": {type(entry.make()).__name__ for entry in GROUPS.values()}
        | {type(make()).__name__ for make in COMBINED.values()}
        | {name for name in GROUPS if name in exported(groups)},
        "bias": {type(_any_bias(entry)).__name__ for entry in BIASES.values()},
        "models": {type(eqx.filter_eval_shape(row.make)).__name__ for row in TABLE.values()},  # nothing is compiled
    }
    return {
        room.__name__: {name for name in exported(room) if not name.startswith("Abstract")} - HELPERS - names
        for room, names in zip((groups, bias, models), made.values(), strict=True)
    }


def _any_bias(entry: OfBias) -> bias.AbstractBias:
    group = GROUPS["TimeShift"]
    return entry.make(group.make(), group)
