"""The public names: all there, all documented, all annotated."""

from __future__ import annotations

import inspect

import pytest

import framewin

PUBLIC = {
    "Augment",
    "Batches",
    "ConvertReport",
    "ConvertSettings",
    "Damaged",
    "EvaluationReport",
    "FetchReport",
    "FormatVersionError",
    "FrameFormatError",
    "FrameWindowDataset",
    "Frames",
    "FramewinError",
    "MissingDependencyError",
    "PredictReport",
    "ReadCost",
    "ReadPlan",
    "Scaling",
    "SourceError",
    "SplitPart",
    "SplitParts",
    "SplitReport",
    "StoreError",
    "TrainingError",
    "VerifyReport",
    "Window",
    "convert",
    "evaluate",
    "fetch",
    "keep_freed_memory",
    "open_frames",
    "plan",
    "predict",
    "split_report",
    "verify",
}


def test_the_public_surface() -> None:
    """Adding or removing a public name is a decision, made here too."""
    assert set(framewin.__all__) == PUBLIC
    assert set(dir(framewin)) >= PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_public_names_are_documented(name: str) -> None:
    """Each name resolves, says what it is, and annotates its parameters."""
    thing = getattr(framewin, name)
    assert inspect.getdoc(thing)
    members = [thing]
    if inspect.isclass(thing):
        members = [
            member
            for attribute, member in vars(thing).items()
            if not attribute.startswith("_") and inspect.isfunction(member)
        ]
    for member in members:
        assert inspect.getdoc(member), f"{name}.{member.__name__} has no docstring"
        parameters = inspect.signature(member).parameters.values()
        missing = [p.name for p in parameters if p.annotation is p.empty and p.name != "self"]
        assert not missing, f"{name}.{member.__name__}: {missing}"


def test_an_unknown_name() -> None:
    """The error is the usual one."""
    with pytest.raises(AttributeError, match="module 'framewin' has no attribute 'nonsense'"):
        _ = framewin.nonsense


def test_errors_are_one_tree() -> None:
    """One except clause catches them all, and a missing package is an ImportError too."""
    errors = [getattr(framewin, name) for name in PUBLIC if name.endswith("Error")]
    assert all(issubclass(error, framewin.FramewinError) for error in errors)
    assert issubclass(framewin.MissingDependencyError, ImportError)


def test_a_missing_package_names_its_extra() -> None:
    """The message is the command to run; an import that fails inside a package is passed on."""
    from framewin.optional import require

    message = r"needs no_such_package; run: pip install 'framewin\[extra\]'"
    with pytest.raises(framewin.MissingDependencyError, match=message):
        require("no_such_package.module", extra="extra")
