"""The paper's optimiser: clipped AdamW under a cosine learning rate."""

import functools

import jax.numpy as jnp
import optax

from bsatnp._types import real, whole


def learning_rate(steps: int, *, peak: float = 1e-3, end: float = 1e-5, warmup: int = 0) -> optax.Schedule:
    """A linear warm-up to `peak`, then a cosine that reaches `end` exactly at the last of `steps` updates.

    The first update after the warm-up has the rate `peak`; where there is no other, so has the last.

    Args:
        steps: number of updates.
        peak: the largest rate.
        end: the rate of the last update, itself and not a fraction of `peak`.
        warmup: number of updates below `peak` at the start.

    Raises:
        ValueError: a negative rate, or a warm-up that leaves no update for the cosine.
    """
    if whole("warmup", warmup, 0) >= whole("steps", steps):
        raise ValueError(f"`warmup` must be below the {steps} steps, got {warmup}.")
    peak, end = real("peak", peak, ends=True), real("end", end, ends=True)

    def rate(count):
        count = jnp.asarray(count, jnp.float32)
        done = jnp.clip((count - warmup) / max(steps - 1 - warmup, 1), 0.0, 1.0)
        cosine = jnp.where(done < 1.0, end + (peak - end) * 0.5 * (1.0 + jnp.cos(jnp.pi * done)), end)
        return jnp.where(count < warmup, peak * (count + 1.0) / (warmup + 1), cosine)

    return rate


def optimizer(
    steps: int,
    *,
    peak: float = 1e-3,
    end: float = 1e-5,
    warmup: int | None = None,
    clip: float = 0.5,
    weight_decay: float = 1e-4,
    b1: float = 0.9,
    b2: float = 0.999,
) -> optax.GradientTransformation:
    """AdamW on gradients clipped by their global norm, with the rate of `learning_rate`.

    The rate of the last update stays in the state, where `fit` finds it for its history.

    Args:
        steps: number of updates of the whole run.
        peak: the largest learning rate.
        end: the learning rate of the last update.
        warmup: number of warm-up updates; one in twenty, at most 1000, when None. The paper names none: 0.
        clip: largest global norm of the gradient.
        weight_decay: decoupled decay of every parameter.
        b1: decay of the first moment.
        b2: decay of the second moment.

    Raises:
        ValueError: `clip` that is not positive, a negative `weight_decay`, `b1` or `b2` that are not between 0 and 1;
            see `learning_rate` for the rest.

    **Reference.** The paper's appendix on the experimental setup.
    """
    real("clip", clip)
    for name, value in {"peak": peak, "end": end, "weight_decay": weight_decay}.items():
        real(name, value, ends=True)
    for name, value in {"b1": b1, "b2": b2}.items():
        real(name, value, 0, 1 - 1e-9, ends=True)
    warmup = min(1000, whole("steps", steps) // 20) if warmup is None else warmup
    return _optimizer(steps, warmup, peak, end, clip, weight_decay, b1, b2)


@functools.lru_cache(maxsize=32)
def _optimizer(steps, warmup, peak, end, clip, weight_decay, b1, b2):
    """One object for equal arguments: another fit of the same shapes, as in cross-validation, is not compiled again."""
    rate = learning_rate(steps, peak=peak, end=end, warmup=warmup)
    return optax.chain(
        optax.clip_by_global_norm(clip),
        optax.scale_by_adam(b1=b1, b2=b2),
        optax.add_decayed_weights(weight_decay),
        optax.inject_hyperparams(optax.scale_by_learning_rate)(learning_rate=rate),
    )
