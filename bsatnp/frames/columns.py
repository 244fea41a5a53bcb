"""The declaration of a data set: which columns hold what."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bsatnp.frames.roles import AbstractRole, Forward, Plane
from bsatnp.likelihoods import AbstractHead, CategoricalHead, GaussianHead

#: Names that are nearly always degrees.
_DEGREES = {"lon", "lat", "long", "lng", "longitude", "latitude"}


@dataclass(frozen=True, init=False)
class Columns:
    """What the columns of a data set mean. Nothing is guessed from a column's content.

    Coordinates may be columns, levels of the index, coordinates of an xarray object or its variables.

    Args:
        values: what to predict, one name or several. NaN means not observed.
        space: `Plane("x", "y")` or `Sphere("lon", "lat")`.
        time: `Time("t")`, or `Forward("t")` to forecast.
        others: further components, such as `HourOfDay("t")`, `Phase("direction", 360)` or a `Component` of your own.
        covariates: columns of numbers that matter by their value, and must be known wherever is predicted.
        categories: columns of labels that matter likewise.
        log: those of `values` that are predicted on the scale of their logarithm.
        head: the likelihood; `PoissonHead()` or `NegativeBinomialHead()` for counts. Columns of text are predicted with
            a `CategoricalHead`, which numbers take when it is given. How many outputs it has is seen to here.
        units: of the values, by name; those of the data's own `attrs` where they are not named here.

    Raises:
        ValueError: a name that is given twice, no component at all, a component that is called "x", as covariates are,
            names of degrees on a plane, logarithms of counts.
    """

    values: tuple[str, ...]
    space: AbstractRole | None
    time: AbstractRole | None
    others: tuple[AbstractRole, ...]
    covariates: tuple[str, ...]
    categories: tuple[str, ...]
    log: tuple[str, ...]
    head: AbstractHead
    units: dict[str, str]

    def __init__(
        self,
        values: str | Sequence[str],
        *,
        space: AbstractRole | None = None,
        time: AbstractRole | None = None,
        others: Sequence[AbstractRole] = (),
        covariates: str | Sequence[str] = (),
        categories: str | Sequence[str] = (),
        log: str | Sequence[str] = (),
        head: AbstractHead | None = None,
        units: Mapping[str, str] | None = None,
    ):
        for name, given in {"values": values, "covariates": covariates, "categories": categories, "log": log}.items():
            names = (given,) if isinstance(given, str) else given
            if not isinstance(names, Sequence) or not all(isinstance(one, str) for one in names):
                raise ValueError(f"`{name}` must be a list of names of columns, got {given!r}.")
            names = tuple(names)
            object.__setattr__(self, name, names)
        object.__setattr__(self, "space", space)
        object.__setattr__(self, "time", time)
        if not isinstance(others, Sequence):
            raise ValueError(f"`others` must be a list of components, got {others!r}.")
        if not isinstance(units or {}, Mapping):
            raise ValueError(f"`units` must say the unit of each name, got {units!r}.")
        if not isinstance(head, AbstractHead | None):
            raise ValueError(f"`head` must be a likelihood such as PoissonHead(), got {head!r}.")
        object.__setattr__(self, "others", tuple(others))
        object.__setattr__(self, "head", GaussianHead() if head is None else head)
        object.__setattr__(self, "units", dict(units or {}))
        self._check()

    def _check(self) -> None:
        for name, role in [("space", self.space), ("time", self.time), *(("others", role) for role in self.others)]:
            if role is not None and not isinstance(role, AbstractRole):
                raise ValueError(f'`{name}` must say what its columns mean, as `Plane("x", "y")` does, got {role!r}.')
        if not self.values:
            raise ValueError("`values` must name at least one column, got none.")
        if not self.roles and not self.covariates and not self.categories:
            raise ValueError("`space`, `time`, `others`, `covariates` or `categories` must name a column, got none.")
        parts = Counter(role.component for role in self.roles)
        if "x" in parts:
            raise ValueError("No component may be called 'x', as covariates are: give it another name as `component`.")
        for what, names in (("component", parts), ("column", Counter(self.values)), ("column", Counter(self.embedded))):
            if twice := [name for name, count in names.items() if count > 1]:
                raise ValueError(f"No {what} may be named twice, got {twice[0]!r}.")
        if both := set(self.values) & set(self.coordinates):
            raise ValueError(f"Column {min(both)!r} must be a value or a coordinate, not both.")
        if isinstance(self.space, Plane) and any(name.lower() in _DEGREES for name in self.space.columns):
            raise ValueError(
                f"`space` must be `Sphere(longitude, latitude)` for degrees, got a plane of {self.space.columns}."
            )
        if strangers := set(self.log) - set(self.values):
            raise ValueError(f"`log` must name some of `values`, got {min(strangers)!r}.")
        if self.log and not isinstance(self.head, GaussianHead):
            raise ValueError(f"`log` must be empty for values that count or name something, got {self.log}.")
        if strangers := set(self.units) - set(self.values):
            raise ValueError(f"`units` must be of some of `values`, got {next(iter(strangers))!r}.")
        if wrong := [unit for unit in self.units.values() if not isinstance(unit, str)]:
            raise ValueError(f"`units` must be text, got {wrong[0]!r}.")
        if isinstance(self.head, CategoricalHead) and len(self.values) > 1:
            raise ValueError(f"`values` must be one column for a CategoricalHead, got {self.values}.")

    @property
    def roles(self) -> tuple[AbstractRole, ...]:
        """All components that a group acts on."""
        return tuple(role for role in (self.space, self.time, *self.others) if role is not None)

    @property
    def embedded(self) -> tuple[str, ...]:
        """Columns that matter by their value."""
        return (*self.covariates, *self.categories)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Every column that must be known where a value is predicted, each once."""
        return tuple(dict.fromkeys([name for role in self.roles for name in role.columns] + list(self.embedded)))

    @property
    def labelled(self) -> frozenset[str]:
        """Categories that no component reads as numbers or dates: their entries may be of any kind."""
        return frozenset(self.categories) - {name for role in self.roles for name in role.columns}

    @property
    def dates(self) -> frozenset[str]:
        """Columns in which text is read as dates."""
        return frozenset(name for role in self.roles if role.dates for name in role.columns)

    @property
    def forward(self) -> Forward | None:
        """Time, where it runs forward."""
        return self.time if isinstance(self.time, Forward) else None
