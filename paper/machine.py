"""What a number was obtained with: hardware, versions, commit."""

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from bsatnp._types import whole
from paper.folders import ROOT


def hardware(devices: int = 1) -> dict[str, Any]:
    """The processor, the cores that may be used, and the device that computes, or how many of them."""
    device, several = jax.devices()[0], {"devices": devices} if devices > 1 else {}
    return {"cpu": _cpu(), "cores": cores(), "device": device.device_kind, "platform": device.platform} | several


def mesh(devices: int) -> Mesh | None:
    """The first devices, to share every batch; None for one.

    Raises:
        ValueError: none, or more than there are.
    """
    whole("devices", devices)
    if devices > jax.device_count():
        raise ValueError(f"`devices` must be at most {jax.device_count()}, as many as JAX sees, got {devices}.")
    return None if devices == 1 else jax.make_mesh((devices,), ("batch",), devices=jax.devices()[:devices])


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that compute."""
    found = {"python": platform.python_version()}
    for name in ("bsatnp", "jax", "jaxlib", "equinox", "optax", "numpy", "gpjax", "tinygp"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """The commit of the code, with "+" where the code differs from it; "unknown" outside a checkout."""
    head = _git("rev-parse", "HEAD")
    if not head:
        return "unknown"
    return head + ("+" if _git("status", "--porcelain", "--untracked-files=no", "--", "bsatnp", "paper/*.py") else "")


def contents(folder: Path | None) -> str | None:
    """A short name for the data in a file or folder, from the names and sizes of its files; None without one.

    Raises:
        FileNotFoundError: nothing is there.
    """
    if folder is None:
        return None
    if not folder.exists():
        raise FileNotFoundError(f"There are no data at '{folder}': name their file or folder with `--data`.")
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else [folder]
    listed = [f"{path.relative_to(folder)} {path.stat().st_size}" for path in files]
    return hashlib.sha256("\n".join(listed).encode()).hexdigest()[:16]


def _git(*words: str) -> str:
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
