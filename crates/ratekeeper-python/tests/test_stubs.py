"""The stubs say what the binary has: every class, every member, every parameter, its kind and its default.

Types cannot be seen in a binary; mypy checks those of the stubs against programs that use them.
"""

from __future__ import annotations

import ast
import importlib
import importlib.resources
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import ratekeeper
from ratekeeper import _native

STUB = ast.parse((importlib.resources.files("ratekeeper") / "_native.pyi").read_text())
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}
# What only the package itself calls.
INTERNAL = {"server_arguments", "_decision_of", "_denial_of", "_verdict_of"}
CONSTANTS = {"EXPOSE_HEADERS", "STORE_SCHEMES", "__version__"}
EXCEPTIONS = {"RatekeeperError", "StoreError", "PolicyError"}
# What Python gives every class, some of it when it is first pickled.
EVERYWHERE = set(dir(object)) | {"__module__", "__getstate__", "__slotnames__"}
COMPARED = {"__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__str__", "__repr__", "__init__"}


Parameter = tuple[str, str, Any]


def parameters(node: ast.FunctionDef) -> list[Parameter]:
    """What the stub says of every parameter: its name, its kind, its default."""
    arguments, kinds = node.args, inspect.Parameter
    positional = [*arguments.posonlyargs, *arguments.args]
    missing: list[ast.expr | None] = [None]
    defaults = missing * (len(positional) - len(arguments.defaults)) + [*arguments.defaults]
    groups = (
        (kinds.POSITIONAL_ONLY, arguments.posonlyargs, defaults),
        (kinds.POSITIONAL_OR_KEYWORD, arguments.args, defaults[len(arguments.posonlyargs) :]),
        (kinds.VAR_POSITIONAL, [arguments.vararg] if arguments.vararg else [], missing),
        (kinds.KEYWORD_ONLY, arguments.kwonlyargs, arguments.kw_defaults),
        (kinds.VAR_KEYWORD, [arguments.kwarg] if arguments.kwarg else [], missing),
    )
    return [
        (argument.arg, kind.name, kinds.empty if default is None else ast.literal_eval(default))
        for kind, group, values in groups
        for argument, default in zip(group, values, strict=False)
        if argument.arg not in ("self", "cls")
    ]


def found_in(target: Any) -> list[Parameter]:
    """The same of what is in the binary."""
    signature = inspect.signature(target)
    return [
        (parameter.name, parameter.kind.name, parameter.default)
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]


def methods() -> Iterator[tuple[str, str]]:
    for name, node in CLASSES.items():
        for member in node.body:
            if isinstance(member, ast.FunctionDef):
                yield name, member.name


def test_the_module_has_what_the_stub_says_and_no_more() -> None:
    said = set(CLASSES) | set(FUNCTIONS) | CONSTANTS
    found = {name for name in dir(_native) if not name.startswith("__") or name == "__version__"}
    assert found == said


def test_the_package_offers_all_of_it() -> None:
    said = (set(CLASSES) | set(FUNCTIONS) | CONSTANTS | {"RateLimitResult"}) - INTERNAL
    assert all(hasattr(ratekeeper, name) for name in said)
    # What web frameworks have under this name is not to be hidden by `import *`.
    assert said - {"Request"} == set(ratekeeper.__all__)


@pytest.mark.parametrize("name", sorted(set(CLASSES) - EXCEPTIONS))
def test_classes_have_what_the_stub_says_and_no_more(name: str) -> None:
    said = {member.name for member in CLASSES[name].body if isinstance(member, ast.FunctionDef)}
    found = {member for member in vars(getattr(_native, name)) if member not in EVERYWHERE | COMPARED}
    assert found | (said & EVERYWHERE) == said
    assert getattr(_native, name).__module__ == "ratekeeper"
    assert (getattr(_native, name).__doc__ or "").strip(), "a docstring"


@pytest.mark.parametrize(("class_name", "name"), sorted(methods()))
def test_parameters_are_those_of_the_stub(class_name: str, name: str) -> None:
    (node,) = (
        member for member in CLASSES[class_name].body if isinstance(member, ast.FunctionDef) and member.name == name
    )
    found = inspect.getattr_static(getattr(_native, class_name), name)
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    assert ("property" in decorators) == inspect.isgetsetdescriptor(found), "a property"
    assert ("staticmethod" in decorators) == isinstance(found, staticmethod)
    if "property" in decorators or name in ("__eq__", "__hash__", "__bool__"):
        return
    target = getattr(_native, class_name) if name == "__new__" else getattr(getattr(_native, class_name), name)
    assert found_in(target) == parameters(node)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_take_what_the_stub_says(name: str) -> None:
    assert found_in(getattr(_native, name)) == parameters(FUNCTIONS[name])


def test_a_parameter_that_is_missing_or_has_another_kind_or_default_is_noticed() -> None:
    def found(a: int, *, b: int = 1) -> None: ...

    for said in ("a, *, b=1", "a, b=1", "a, *, b=2", "a, *, b", "a", "a, *, b=1, c=None", "a, /, *, b=1", "b, *, a=1"):
        (node,) = ast.parse(f"def found({said}): ...").body
        assert isinstance(node, ast.FunctionDef)
        assert (found_in(found) == parameters(node)) == (said == "a, *, b=1"), said


@pytest.mark.parametrize("class_name", sorted(set(CLASSES) - EXCEPTIONS))
def test_every_awaited_form_takes_what_the_plain_one_takes(class_name: str) -> None:
    members = {member.name: member for member in CLASSES[class_name].body if isinstance(member, ast.FunctionDef)}
    for name, node in members.items():
        if f"a{name}" in members:
            assert parameters(node) == parameters(members[f"a{name}"]), name


def documented() -> Iterator[tuple[str, Any, str | None]]:
    """Everything public: its name, itself, and what the stub says about it, if anything."""
    for name, node in (CLASSES | FUNCTIONS).items():
        yield name, getattr(_native, name), ast.get_docstring(node)
    for class_name, node in CLASSES.items():
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and not member.name.startswith("__"):
                found = inspect.getattr_static(getattr(_native, class_name), member.name)
                yield f"{class_name}.{member.name}", found, ast.get_docstring(member)


DOCUMENTED = list(documented())


@pytest.mark.parametrize(("name", "found", "said"), DOCUMENTED, ids=[name for name, _, _ in DOCUMENTED])
def test_everything_has_a_docstring_and_the_stub_says_the_same(name: str, found: Any, said: str | None) -> None:
    text = inspect.getdoc(found.__func__ if isinstance(found, staticmethod) else found) or ""
    assert text.strip(), "a docstring"
    if said is not None:
        assert text.split() == said.split()


MODULES = ["ratekeeper", "ratekeeper.keys", "ratekeeper.overrides"]


@pytest.mark.parametrize("module_name", MODULES)
def test_what_is_in_python_has_docstrings_too(module_name: str) -> None:
    module = importlib.import_module(module_name)
    assert module.__doc__
    for name in module.__all__:
        found = getattr(module, name)
        assert not callable(found) or inspect.getdoc(found), name
