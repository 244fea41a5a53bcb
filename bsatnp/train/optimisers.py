"""The paper's optimiser: clipped AdamW under a cosine learning rate."""

import jax.numpy as jnp
import optax


def learning_rate(steps: int, *, peak: float = 1e-3, end: float = 1e-5, warmup: int = 0) -> optax.Schedule:
    """A linear warm-up to `peak`, then a cosine that reaches `end` exactly at the last of `steps` updates.

    Args:
        steps: number of updates.
        peak: the largest rate.
        end: the rate of the last update, itself and not a fraction of `peak`.
        warmup: number of updates below `peak` at the start.

    Raises:
        ValueError: a negative rate, or a warm-up that leaves no update for the cosine.
    """
    if steps < 1:
        raise ValueError(f"`steps` must be at least 1, got {steps}.")
    if not 0 <= warmup < steps:
        raise ValueError(f"`warmup` must be at least 0 and below the {steps} steps, got {warmup}.")
    if peak < 0 or end < 0:
        raise ValueError(f"`peak` and `end` must be at least 0, got {peak} and {end}.")

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
        ValueError: `clip` that is not positive; see `learning_rate` for the rest.

    **Reference.** The paper's appendix on the experimental setup.
    """
    if clip <= 0:
        raise ValueError(f"`clip` must be positive, got {clip}.")
    rate = learning_rate(steps, peak=peak, end=end, warmup=min(1000, steps // 20) if warmup is None else warmup)
    return optax.chain(
        optax.clip_by_global_norm(clip),
        optax.scale_by_adam(b1=b1, b2=b2),
        optax.add_decayed_weights(weight_decay),
        optax.inject_hyperparams(optax.scale_by_learning_rate)(learning_rate=rate),
    )
