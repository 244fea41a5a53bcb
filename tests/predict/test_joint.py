"""Joint samples: the chain against the closed form of an exact Gaussian process, and what every model shares."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp import joint
from bsatnp.groups import On, Translation
from bsatnp.joint import joint_log_prob, joint_samples
from bsatnp.likelihoods import AbstractHead, CategoricalHead, Gaussian, GaussianHead, NegativeBinomialHead
from bsatnp.models import AbstractModel
from bsatnp.tasks import Points
from tests.registry import TABLE, predict

LENGTH, NOISE = 1.0, 0.1


def covariance(a, b):
    """The squared exponential kernel of places `(point, 1)`, by NumPy or JAX."""
    xp = np if isinstance(a, np.ndarray) else jnp
    return xp.exp(-((a[:, None, 0] - b[None, :, 0]) ** 2) / (2 * LENGTH**2))


class ExactGP(AbstractModel):
    """The exact posterior of a Gaussian process, one target at a time: what a perfect neural process would learn."""

    head: AbstractHead = GaussianHead()

    @property
    def embedded(self):
        return {}

    @property
    def groups(self):
        return (On("s", Translation(1)),)

    def condition(self, ctx) -> Any:
        return ExactPosterior(jnp.asarray(ctx.index["s"]), jnp.asarray(ctx.f), jnp.asarray(ctx.usable))


class ExactPosterior(eqx.Module):
    s: jax.Array
    f: jax.Array
    usable: jax.Array

    def __call__(self, tgt):
        both = self.usable[:, None] & self.usable[None]
        unit = jnp.eye(len(self.s), dtype=self.s.dtype)
        k = jnp.where(both, covariance(self.s, self.s), 0.0) + unit * jnp.where(self.usable, NOISE**2, 1.0)[:, None]
        cross = jnp.where(self.usable[None], covariance(jnp.asarray(tgt.index["s"]), self.s), 0.0)
        f = jnp.where(self.usable[:, None], self.f, 0.0)
        # one call for both: LAPACK's batched solves, run side by side, wait for ever for threads of XLA's CPU pool
        solved = jnp.linalg.solve(k, jnp.concatenate([cross.T, f], 1))
        variance = 1 + NOISE**2 - (cross * solved[:, : len(cross)].T).sum(1, keepdims=True)
        return Gaussian(cross @ solved[:, len(cross) :], jnp.sqrt(variance))


CTX = Points({"s": np.array([[5000.0], [5000.7], [9e9]])}, np.array([[1.0], [-0.5], [0.3]]), mask=np.arange(3) < 2)
PLACES = np.array([[5000.2], [5001.0], [5001.3], [5004.0], [5004.4]])


def closed_form():
    """Mean and covariance of noisy observations at `PLACES`, in float64."""
    s, f = CTX.index["s"][:2], CTX.f[:2]
    solve = np.linalg.solve(covariance(s, s) + NOISE**2 * np.eye(2), covariance(s, PLACES))
    prior = covariance(PLACES, PLACES) + NOISE**2 * np.eye(len(PLACES))
    return (solve.T @ f)[:, 0], prior - covariance(PLACES, s) @ solve


def moments(draws):
    """Mean and covariance of draws, and how many standard errors they are away from the closed form at most."""
    mean, cov = closed_form()
    n, got = len(draws), np.cov(draws.T)
    spread = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / n)
    off_mean = np.abs(draws.mean(0) - mean) / np.sqrt(np.diag(cov) / n)
    return off_mean.max(), (np.abs(got - cov) / spread).max()


@pytest.mark.parametrize("ordered", [False, True])
def test_the_chain_of_an_exact_gp_has_the_covariance_of_the_gp(ordered):
    draws = joint_samples(
        ExactGP(), CTX, {"s": PLACES}, samples=3000, key=jax.random.key(0), ordered=ordered, chunk=750
    )
    assert draws.shape == (3000, 5, 1)
    assert max(moments(draws[..., 0])) < 4.5


def test_targets_drawn_at_once_have_no_covariance_given_those_before():
    """The negative control: means and variances are right, and the covariance is missed by far."""
    draws = joint_samples(ExactGP(), CTX, {"s": PLACES}, samples=3000, key=jax.random.key(0), together=5, chunk=750)[
        ..., 0
    ]
    off_mean, off_covariance = moments(draws)
    assert off_mean < 4.5 and off_covariance > 20
    alone = np.corrcoef(draws.T) - np.eye(5)
    assert np.abs(alone).max() < 0.1


def log_density(f, mean, cov):
    """Of a normal distribution of several numbers."""
    off = f - mean
    size = np.linalg.slogdet(2 * np.pi * cov)[1]
    return -(off @ np.linalg.solve(cov, off) + size) / 2


def test_the_joint_probability_of_an_exact_gp_is_that_of_the_gp_in_every_order():
    """Values without an observation and padding count nothing; targets that are scored at once are independent."""
    mean, cov = closed_form()
    f = np.array([0.4, -1.0, 0.2, 1.1, np.nan])
    tgt = Points({"s": PLACES}, f[:, None]).pad(7)
    expected = log_density(f[:4], mean[:4], cov[:4, :4])
    options = {"key": jax.random.key(1), "chunk": 3}
    found = joint_log_prob(ExactGP(), CTX, tgt, orders=5, **options)
    np.testing.assert_allclose(found, np.full(5, expected), atol=1e-3)
    np.testing.assert_allclose(joint_log_prob(ExactGP(), CTX, tgt, ordered=True, **options), [expected], atol=1e-3)
    alone = log_density(f[:4], mean[:4], np.diag(np.diag(cov)[:4]))
    apart = joint_log_prob(ExactGP(), CTX, tgt, together=5, **options)
    np.testing.assert_allclose(apart, [alone], atol=1e-3)
    assert abs(alone - expected) > 0.1


APART = 5100 + 20.0 * np.arange(16)[:, None]


def test_a_last_group_that_is_not_full_counts_once():
    """Sixteen targets too far apart to know of each other, five at a time."""
    f, key = np.linspace(-2, 2, 16), jax.random.key(3)
    found = joint_log_prob(ExactGP(), CTX, Points({"s": APART}, f[:, None]), key=key, together=5)
    np.testing.assert_allclose(found, [log_density(f, 0.0, (1 + NOISE**2) * np.eye(16))], rtol=1e-5)
    assert (joint_samples(ExactGP(), CTX, {"s": APART}, samples=2, key=key, together=5) != 0).all()


class Widening(ExactGP):
    """No process: every point that is known makes the predictions wider."""

    def condition(self, ctx):
        std = 1 + jnp.asarray(ctx.usable).sum().astype(jnp.asarray(ctx.f).dtype)
        return lambda tgt: Gaussian(jnp.zeros((len(tgt), 1), std.dtype), jnp.full((len(tgt), 1), std))


def test_every_chain_has_a_random_order_of_its_own():
    options: dict[str, Any] = {"key": jax.random.key(0)}
    tgt = Points({"s": PLACES}, np.arange(5.0)[:, None])
    scores = joint_log_prob(Widening(), CTX, tgt, orders=8, **options)
    assert len(np.unique(scores.round(3))) > 4
    spread = joint_samples(Widening(), CTX, {"s": PLACES}, samples=1000, chunk=1000, **options).std(0)
    np.testing.assert_allclose(spread, np.sqrt((np.arange(3.0, 8) ** 2).mean()), rtol=0.15)
    ordered = joint_samples(Widening(), CTX, {"s": PLACES}, samples=1000, chunk=1000, ordered=True, **options).std(0)
    np.testing.assert_allclose(ordered[:, 0], np.arange(3, 8), rtol=0.15)


def test_a_target_that_lacks_one_output_counts_with_the_other_and_joins_no_context():
    class Two(ExactGP):
        head: AbstractHead = GaussianHead(2)

        def condition(self, ctx):
            one = super().condition(Points(ctx.index, ctx.f[:, :1], mask=ctx.usable))

            def both(tgt):
                pred = one(tgt)
                return Gaussian(jnp.repeat(pred.mean, 2, 1), jnp.repeat(pred.std, 2, 1))

            return both

    ctx = Points(CTX.index, np.repeat(CTX.f, 2, 1), mask=CTX.mask)
    f = np.array([[0.4, 0.4], [np.nan, -1.0], [0.2, 0.2]])
    found = joint_log_prob(Two(), ctx, Points({"s": PLACES[:3]}, f), ordered=True, key=jax.random.key(0))
    mean, cov = closed_form()
    f = np.array([0.4, -1.0, 0.2])

    def joint_of(*rows):
        at = list(rows)
        return log_density(f[at], mean[at], cov[np.ix_(at, at)])

    # twice the first target and, given it, the third; once the second, given the first
    np.testing.assert_allclose(found, [2 * joint_of(0, 2) + joint_of(0, 1) - joint_of(0)], atol=1e-3)


def few(*, tgt=None, **options):
    """Samples of the exact process at three places."""
    options = {"samples": 3, "key": jax.random.key(5), "chunk": 3, **options}
    return joint_samples(ExactGP(), CTX, Points({"s": PLACES[:3]}) if tgt is None else tgt, **options)


def test_reproducible_by_key_and_more_samples_only_add():
    first = few()
    np.testing.assert_array_equal(first, few())
    np.testing.assert_array_equal(first, few(samples=5)[:3])
    assert (first != few(key=jax.random.key(6))).all()


def test_values_of_targets_and_rows_without_a_value_are_not_looked_at():
    np.testing.assert_array_equal(few(tgt=Points({"s": PLACES[:3]}, np.full((3, 1), 7.0))), few())
    missing = Points({"s": np.array([[5000.0], [5000.7], [5003.0]])}, np.array([[1.0], [-0.5], [np.nan]]))
    got = joint_samples(ExactGP(), missing, {"s": PLACES[:3]}, samples=3, key=jax.random.key(5), chunk=3)
    np.testing.assert_allclose(got, few(), atol=1e-3)


def test_values_of_half_precision_are_scored_in_full():
    f, key = np.array([[0.4], [-1.0], [0.2], [1.1], [7.3]]), jax.random.key(0)

    def score(kind):
        ctx = Points(CTX.index, np.float16(CTX.f).astype(kind), mask=CTX.mask)
        return joint_log_prob(ExactGP(), ctx, Points({"s": PLACES}, np.float16(f).astype(kind)), key=key, ordered=True)

    np.testing.assert_allclose(score(np.float16), score(np.float32), rtol=1e-5)


def test_padding_of_targets_changes_nothing_and_is_nan():
    padded = few(tgt=Points({"s": PLACES[:3]}).pad(5))
    np.testing.assert_allclose(padded[:, :3], few(), rtol=1e-5)
    assert np.isnan(padded[:, 3:]).all()


def test_one_compilation_serves_all_numbers_of_points_of_a_size(monkeypatch):
    calls, original = [], ExactGP.condition
    monkeypatch.setattr(ExactGP, "condition", lambda self, ctx: calls.append(len(ctx)) or original(self, ctx))
    for n in (2, 3, 7, 16):
        s = np.arange(float(n))[:, None]
        joint_samples(ExactGP(), Points({"s": s}, s), {"s": s + 0.5}, samples=2, key=jax.random.key(n), chunk=2)
    assert set(calls) == {32} and len(calls) <= 2, "traced once, on 16 + 16 rows"


def by_hand(model, ctx, tgt, key, *, steps):
    """The same chain for sample 0 in a Python loop of whole predictions, with contexts that grow."""
    _, value_key = jax.random.split(jax.random.fold_in(key, 0))
    index, f, drawn = dict(ctx.index), ctx.f, []
    for i in range(steps):
        here = Points({name: value[i : i + 1] for name, value in tgt.index.items()})
        given = Points(index, f).pad(len(ctx) + steps)
        value = np.asarray(predict(model, given, here).sample(key=jax.random.fold_in(value_key, i)), f.dtype)
        index = {name: np.concatenate([rows, here.index[name]]) for name, rows in index.items()}
        f = np.concatenate([f, value])
        drawn.append(value[0])
    return np.stack(drawn)


HEADS = {
    "numbers": (GaussianHead(2), lambda rng: rng.normal(size=(4, 2))),
    "labels": (CategoricalHead(3), lambda rng: rng.integers(0, 3, (4, 1)).astype(float)),
    "counts": (NegativeBinomialHead(), lambda rng: rng.poisson(3, (4, 1)).astype(float)),
}


@pytest.mark.parametrize("name", HEADS)
def test_every_likelihood_gives_the_chain_of_a_plain_loop(name, kernel):
    """Two outputs with a TNP-D, the other likelihoods with a model that compiles in a moment."""
    head, values = HEADS[name]
    rng, key = np.random.default_rng(1), jax.random.key(2)
    model = TABLE["TNP-D"].make(head=head, depth=1) if name == "numbers" else type(kernel)(head=head)
    ctx = Points({"s": rng.normal(size=(4, 2)), "t": rng.normal(size=(4, 1))}, values(rng))
    tgt = Points({"s": rng.normal(size=(3, 2)), "t": rng.normal(size=(3, 1))})
    got = joint_samples(model, ctx, tgt, samples=1, key=key, ordered=True)
    np.testing.assert_allclose(got[0], by_hand(model, ctx, tgt, key, steps=3), atol=1e-4)


@pytest.mark.parametrize("name", TABLE)
def test_every_model_can_be_chained(name):
    """Traced only: what is drawn is held to the exact process and to the loop above."""
    ctx = Points(
        {"s": np.zeros((16, 2), np.float32), "t": np.zeros((16, 1), np.float32)}, np.zeros((16, 1), np.float32)
    )
    tgt = Points({"s": np.zeros((16, 2), np.float32), "t": np.zeros((16, 1), np.float32)})

    def call(numbers, steps):
        return joint._chain(TABLE[name].model, ctx, tgt, jax.random.key(0), numbers, steps, ordered=False, together=1)

    values, log_prob = eqx.filter_eval_shape(call, np.arange(4), np.asarray(3))
    assert values.shape == (4, 16, 1) and log_prob.shape == (4,)


def test_no_targets_and_no_context():
    model, key = ExactGP(), jax.random.key(0)
    nothing = Points({"s": np.zeros((0, 1))}, np.zeros((0, 1)))
    assert joint_samples(model, nothing, {"s": np.zeros((0, 1))}, samples=4, key=key).shape == (4, 0, 1)
    empty = Points({"s": np.zeros((0, 1))}, np.zeros((0, 1)))
    np.testing.assert_array_equal(joint_log_prob(model, CTX, empty, orders=2, key=key), [0, 0])
    prior = joint_samples(model, nothing, {"s": np.array([[0.0], [0.1]])}, samples=500, key=key, chunk=500)[..., 0]
    assert np.corrcoef(prior.T)[0, 1] > 0.9
    assert abs(prior.std() - 1) < 0.15


def test_whole_numbers_on_the_device_beside_targets_that_are_floats():
    s, f = np.array([[0], [2]], np.int32), jnp.zeros((2, 1), jnp.float32)
    tgt = {"s": jnp.asarray([[0.5], [1.5]], jnp.float32)}
    whole, real = (
        joint_samples(ExactGP(), Points({"s": jnp.asarray(s, kind)}, f), tgt, samples=2, key=jax.random.key(0))
        for kind in (jnp.int32, jnp.float32)
    )
    np.testing.assert_allclose(whole, real, atol=1e-5)


def test_what_cannot_be_sampled_is_refused():
    model, key = ExactGP(), jax.random.key(0)
    for name in ("samples", "together", "chunk"):
        options: dict[str, Any] = {name: 0}
        with pytest.raises(ValueError, match=f"`{name}` must be at least 1, got 0"):
            joint_samples(model, CTX, {"s": PLACES}, key=key, **options)
    with pytest.raises(ValueError, match="components"):
        joint_samples(model, CTX, {"x": PLACES}, key=key)
    with pytest.raises(ValueError, match="must carry observed values"):
        joint_samples(model, Points({"s": PLACES}), {"s": PLACES}, key=key)
    with pytest.raises(ValueError, match="`f` must have 1 outputs, got 2"):
        joint_samples(model, Points({"s": PLACES}, np.zeros((5, 2))), {"s": PLACES}, key=key)
    with pytest.raises(ValueError, match="`tgt` must be Points with the values `f` to score"):
        joint_log_prob(model, CTX, Points({"s": PLACES}), key=key)
    with pytest.raises(ValueError, match="`orders` must be 1 where targets are `ordered`, got 2"):
        joint_log_prob(model, CTX, CTX, orders=2, ordered=True, key=key)
    with pytest.raises(ValueError, match="`orders` must be at least 1, got 0"):
        joint_log_prob(model, CTX, CTX, orders=0, key=key)
