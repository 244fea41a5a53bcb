"""An identity that refuses forward-mode differentiation in words a user can act on."""

import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

_MESSAGE = (
    "`scan_attention` has no forward-mode derivative (jax.jvp, jax.jacfwd, jax.hessian); "
    "use reverse mode, for second derivatives `jax.jacrev(jax.grad(f))`, or `dense_attention` of the same arguments."
)


def _refuse(*_, **__):
    raise TypeError(_MESSAGE)


_refused_p = Primitive("scan_attention_tangent")
_refused_p.def_impl(_refuse)
_refused_p.def_abstract_eval(lambda tangent: tangent)
mlir.register_lowering(_refused_p, _refuse)
ad.deflinear2(_refused_p, lambda cotangent, _: [cotangent])
batching.primitive_batchers[_refused_p] = _refuse  # a batched tangent is on its way forward: hessian, jacfwd

_guard_p = Primitive("reverse_mode_only")
_guard_p.def_impl(jnp.asarray)  # a Python number being differentiated becomes an array
_guard_p.def_abstract_eval(lambda x: x)
mlir.register_lowering(_guard_p, lambda _, x: [x])
ad.defjvp(_guard_p, lambda tangent, _: _refused_p.bind(tangent))
batching.defvectorized(_guard_p)


def reverse_mode_only(x):
    """Return `x`; raise TypeError when it is pushed forward."""
    return _guard_p.bind(x)
