"""Several devices give what one gives: eight simulated ones, and two processes of two."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from bsatnp import fit
from bsatnp.predict import predict
from tests import registry
from tests.devices import eight

ROOT = pathlib.Path(__file__).parents[2]
HERE = pathlib.Path(__file__).parent


def environment(devices, **more):
    flags = f"--xla_force_host_platform_device_count={devices}"
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # nearly all of the time is compiling
    return os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)} | quick | more


@pytest.fixture(scope="module")
def found():
    """What `eight.py` finds."""
    command = [sys.executable, str(HERE / "eight.py")]
    ran = subprocess.run(command, env=environment(8), cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout)


@pytest.mark.parametrize("name", ["BSATNP", "ConvCNP"])
def test_training_is_that_of_one_device(found, name):
    is_that_of_one_device(found["trained"][name])


def is_that_of_one_device(trained):
    difference, moved, scores = trained
    assert difference < 1e-5 and scores < 1e-5
    assert moved > 1e-3


def test_each_device_attends_for_its_own_tasks(found):
    is_that_of_one_device(found["trained apart"])
    assert found["exchanged"].pop("all-reduce") > 0
    assert not any(found["exchanged"].values()), found["exchanged"]


def test_targets_spread_over_devices(found):
    assert len(found["targets"]) == 5
    for name, (difference,) in found["targets"].items():
        assert difference < 1e-5, name


def test_keys_spread_over_devices(found):
    assert len(found["keys"]) == 3
    for name, differences in found["keys"].items():
        assert max(differences) < 1e-5, (name, differences)


def test_memory_of_a_device_falls_with_their_number(found):
    kept, needed = found["memory"]
    np.testing.assert_allclose(kept[0] / np.asarray(kept), [1, 2, 4, 8])
    assert all(b < 0.75 * a for a, b in zip(needed, needed[1:], strict=False)), needed


def test_refusals(found):
    said = found["refused"]
    assert said["axis"] == ("`mesh` must be a jax.sharding.Mesh with axes named 'tgt' or 'ctx', got ('batch',).")
    assert said["kind"].endswith("got ndarray.")
    assert said["tasks"] == "A batch must have a multiple of 3 tasks, as many as `mesh` has devices, got 8."
    assert said["fixed"] == (
        "`mesh` must have no axis 'ctx' for ConvCNP, which keeps nothing that grows with the context, got axes "
        "('ctx',)."
    )


def test_two_processes(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, str(HERE / "two_hosts.py"), address]
    both = [
        subprocess.Popen([*command, str(number), str(tmp_path)], env=environment(2), cwd=ROOT, stderr=subprocess.PIPE)
        for number in (0, 1)
    ]
    try:
        said = [process.communicate(timeout=600)[1].decode() for process in both]
    finally:
        for process in both:
            process.kill()
    assert [process.returncode for process in both] == [0, 0], said[0][-3000:] + said[1][-3000:]
    first, second = (np.load(tmp_path / f"{number}.npz") for number in (0, 1))
    run = {"steps": 3, "key": jax.random.key(0), "progress": False, "optimizer": registry.plain_descent()}
    alone = fit(registry.biased(), eight.stream, validation=eight.stream, validation_batches=2, **run).best
    eight.RNG = np.random.default_rng(0)
    answer = predict(alone, eight.points(50), eight.points(30, values=False))
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves((alone, [answer, answer])) if hasattr(leaf, "dtype")]
    assert len(first.files) == len(leaves)
    for name, leaf in zip(first.files, leaves, strict=True):
        np.testing.assert_array_equal(first[name], second[name])
        np.testing.assert_allclose(first[name], leaf, atol=1e-5, rtol=1e-5)
    assert (tmp_path / "state.npz").exists()
