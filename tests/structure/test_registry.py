"""Every public group, bias and model is under the laws; classes are abstract or final."""

import importlib
import pkgutil

import pytest

import bsatnp
from bsatnp.groups import Translation
from tests import registry


def test_everything_public_is_in_the_registry():
    assert registry.missing() == {"bsatnp.groups": set(), "bsatnp.bias": set(), "bsatnp.models": set()}


def test_the_registry_notices_what_is_missing(monkeypatch):
    monkeypatch.delitem(registry.GROUPS, "Cyclic")
    monkeypatch.delitem(registry.BIASES, "TISA")
    found = registry.missing()
    assert found["bsatnp.groups"] == {"Cyclic"}
    assert found["bsatnp.bias"] == {"TISA"}


def package_classes():
    classes = set()
    for module in pkgutil.walk_packages(bsatnp.__path__, "bsatnp."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and value.__module__.startswith("bsatnp."):
                classes.add(value)
    return sorted(classes, key=lambda cls: (cls.__module__, cls.__qualname__))


def subclassed(classes):
    """Pairs of a class and a concrete package class that it inherits from; errors are classes to inherit from."""
    return [
        (cls.__name__, base.__name__)
        for cls in classes
        for base in cls.__mro__[1:]
        if base.__module__.startswith("bsatnp.")
        and not base.__name__.lstrip("_").startswith("Abstract")
        and not issubclass(base, Exception)
    ]


def test_no_class_inherits_from_a_concrete_one():
    classes = package_classes()
    assert len(classes) > 30
    assert subclassed(classes) == []


def test_a_subclass_of_a_concrete_class_is_found():
    class Child(Translation):
        pass

    assert subclassed([Child]) == [("Child", "Translation")]


@pytest.mark.parametrize("cls", [c for c in package_classes() if c.__name__.startswith("Abstract")])
def test_abstract_classes_cannot_be_made(cls):
    with pytest.raises(TypeError):
        cls()
