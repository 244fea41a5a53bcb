"""The entry point for parameters of the authors' package: one function for every architecture."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from bsatnp.compat import bsatnp, convcnp, tetnp, tnpd
from bsatnp.compat.names import Source
from bsatnp.models import AbstractModel

#: Names at the top of the parameters by which an architecture is known, and what builds it: `build(source, **options)`.
ARCHITECTURES: dict[tuple[str, ...], Callable[..., AbstractModel]] = {
    ("KRBlock_0",): bsatnp.build,
    ("embed_s_f", "enc"): tnpd.build,
    ("embed_f", "encoder", "decoder"): tetnp.build,
    ("conv_net", "enc", "dec"): convcnp.build,
}


def from_dl4bi(params: Mapping[str, Any], **options: Any) -> AbstractModel:
    """Build a model from the nested parameter dictionary of the authors' model.

    The architecture is recognised by the names of the arrays; widths, depth, heads and numbers of bases are read off
    their shapes. What an array does not tell is an option.

    **Units.** Coordinates as they are there and here; great-circle angles in degrees.

    Args:
        params: the dictionary under "params" of a `dl4bi` checkpoint, or one with all its collections.
        options: `head`, the likelihood (Gaussian with as many outputs as the arrays have when left out), and

            - BSA-TNP: `groups`, for every component with a bias ("x", "s", "t") the group whose distance it is of;
              `embed`, components that enter the tokens, in the authors' order x, s, t; `forms`, for components whose
              bias is not an `RBFNetwork`, its class; `heads`, where there is no bias that tells their number.
            - TNP-D: `embed` in the authors' order x, s, t; `heads`.
            - TE-TNP, PT-TE-TNP: `groups`, for every component in the authors' order x, s, t the group whose invariants
              the scores see; translations are the authors' model.
            - ConvCNP: `grid`, the paper's when left out. `params` must be the dictionary with all collections: the
              running statistics are in "batch_stats".

    Raises:
        ValueError: an architecture that is not known, options that it does not have, names that are missing or
            unknown, listed; shapes that do not fit; numbers that are not finite.
    """
    source = Source(params)
    known = [build for names, build in ARCHITECTURES.items() if all(source.has(name) for name in names)]
    if len(known) != 1:
        expected = " or ".join(" and ".join(f"`{name}`" for name in names) for names in ARCHITECTURES)
        raise ValueError(f"`params` must be those of a model with {expected}, got {source.children()}.")
    allowed = sorted(set(inspect.signature(known[0]).parameters) - {"source"})
    foreign = sorted(set(options) - set(allowed))
    if foreign:
        raise ValueError(f"`options` of this architecture must be among {allowed}, got {foreign}.")
    parameters = inspect.signature(known[0]).parameters.values()
    needed = {p.name for p in parameters if p.default is inspect.Parameter.empty} - {"source"}
    if missing := sorted(needed - set(options)):
        raise ValueError(f"`options` of this architecture must have {missing}, got {sorted(options)}.")
    model = known[0](source, **options)
    source.finish()
    return model
