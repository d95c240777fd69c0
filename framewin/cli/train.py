"""`framewin train`."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import Field, fields, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from framewin.cli.output import import_tensorflow_quietly, print_rows, stopping, usage_errors
from framewin.forecast.settings import TrainSettings
from framewin.remote import Location, location

if TYPE_CHECKING:
    from framewin.forecast.train import TrainReport

SETTINGS = {each.name: each for each in fields(TrainSettings)}
SHARES = ("validation_share", "test_share")
OF_FITTING = (
    *("loss", "learning_rate", "weight_decay", "clip_norm"),
    *("augment", "normalize", "mixed_precision"),
)


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of `TrainSettings` in place of `**settings`."""
    hints = get_type_hints(TrainSettings)
    own = inspect.signature(command, eval_str=True)
    parameters = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    for name, each in SETTINGS.items():
        kind, default = _on_the_command_line(each, hints[name])
        option = typer.Option(
            help=each.metadata["help"], min=each.metadata.get("least"), case_sensitive=False
        )
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=Annotated[kind, option],
            )
        )
    command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _on_the_command_line(setting: Field[Any], hint: Any) -> tuple[Any, Any]:
    """Type and default of an option: a choice of words where the setting has some."""
    words = setting.metadata.get("words")
    if words is None:
        return hint, setting.default
    choice: Any = Enum(setting.name, {word: word for word in words})  # type: ignore[misc]
    [default] = (each for each in choice if words[each.value] == setting.default)
    return choice, default


def _value(name: str, given: Any) -> Any:
    """Of a setting, from what its option gave."""
    return SETTINGS[name].metadata["words"][given.value] if isinstance(given, Enum) else given


@_with_settings
def train(
    context: typer.Context,
    store: Annotated[
        str | None,
        typer.Argument(help="Store made by framewin convert, or its URL.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder to make.", show_default="runs/STORE-TIME")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="run.json, or the folder, of a run to repeat with its settings."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Run folder of a stopped training, to go on with.")
    ] = None,
    **settings: Any,
) -> None:
    """Train a predictor on a store, score it beside the last frame, and show its forecasts.

    MODEL is convlstm, convlstm-residual, simvp, persistence, or a function of your own. TF_CONFIG
    in the environment trains on several machines.
    """
    given = {
        name: _value(name, value)
        for name, value in settings.items()
        if context.get_parameter_source(name).name != "DEFAULT"  # type: ignore[union-attr]
    }
    _check_usage(store, out, config, resume, given)
    from framewin.process import keep_freed_memory

    keep_freed_memory()
    import_tensorflow_quietly()
    from framewin.forecast import train as training

    if resume is not None:
        with stopping(partial(_kept, resume)), usage_errors():
            _print_training(training.resume(resume, model=given.get("model")))
        return
    with usage_errors():
        base, place = _base(store, config, given.get("model"))
        chosen = replace(base, **given)
    _check_idle(chosen, given)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder = out or Path("runs", f"{place.stem}-{stamp}")
    with stopping(partial(_kept, folder)):
        _print_training(training.train(place, folder, chosen))


def _kept(run: Path) -> str:
    from framewin.forecast.runs import CHECKPOINT_FILE, METRICS_FILE, RUN_FILE

    if not (run / RUN_FILE).exists():
        return "nothing was kept"
    if (run / METRICS_FILE).exists() and not (run / CHECKPOINT_FILE).exists():
        return f"{run} is finished"
    return f"go on with framewin train --resume {run}"


def _check_usage(
    store: str | None,
    out: Path | None,
    config: Path | None,
    resume: Path | None,
    given: Iterable[str],
) -> None:
    given = {name for name in given if name != "model"}
    if resume is not None and (given or any(each is not None for each in (store, out, config))):
        raise typer.BadParameter("--resume goes on with the settings of the run; give nothing else")
    if resume is None and out is None and os.environ.get("TF_CONFIG"):
        raise typer.BadParameter("with TF_CONFIG give --out, the same folder to all workers")
    if store is None and config is None and resume is None:
        raise typer.BadParameter("give a STORE, or --config or --resume")


def _check_idle(chosen: TrainSettings, given: Iterable[str]) -> None:
    """Refuse options that would change nothing."""
    for reason, names in (
        ("the split file says the parts", SHARES if chosen.split is not None else ()),
        ("persistence has nothing to train", OF_FITTING if chosen.model == "persistence" else ()),
    ):
        for name in sorted(set(names) & set(given)):
            raise typer.BadParameter(f"{reason}; leave --{name.replace('_', '-')} out")


def _base(
    store: str | None, config: Path | None, model: str | None
) -> tuple[TrainSettings, Location]:
    """The settings to start from, and the store."""
    if config is None:
        assert store is not None
        return TrainSettings(), location(store)
    from framewin.forecast.runs import RUN_FILE, load_run

    if config.name != RUN_FILE and not config.is_dir():
        raise ValueError(f"--config must be a run folder or its {RUN_FILE}, got {config}")
    run = load_run(config if config.is_dir() else config.parent, model)
    run.check_model()
    return run.settings, run.store if store is None else location(store)


def _print_training(report: TrainReport) -> None:
    from framewin.forecast import train as files
    from framewin.forecast.scoring import score_text

    evaluation = report.evaluation
    print()
    print(f"{evaluation.windows} {report.part} windows, {'model':>15} {'last frame':>12}")
    for label, name, digits in (
        ("MSE, unit scale", "mse", None),
        ("MAE, unit scale", "mae", None),
        ("PSNR of mean MSE, dB", "psnr_of_mean_mse", 2),
    ):
        values = (getattr(scores, name) for scores in (evaluation.model, evaluation.last_frame))
        model, last_frame = (score_text(value, digits) for value in values)
        print(f"{label:24} {model:>15} {last_frame:>12}")
    leads = zip(
        evaluation.model.mse_per_lead_time, evaluation.last_frame.mse_per_lead_time, strict=True
    )
    for lead, (model_mse, last_mse) in enumerate(leads, start=report.lead_gap + 1):
        model, last_frame = score_text(model_mse), score_text(last_mse)
        print(f"{f'  MSE of frame +{lead}':24} {model:>15} {last_frame:>12}")
    print()
    skill = "undefined, the last frame is perfect"
    if evaluation.skill is not None:
        skill = f"{evaluation.skill:.1%} of the last frame's MSE removed"
    windows = ", ".join(f"{count} {name}" for name, count in report.windows.items())
    kept = f"epoch {report.best_epoch} of {report.epochs}"
    if report.best_epoch == 0:
        kept = f"none of {report.epochs} epochs beat the untrained model, which was kept"
    print_rows(
        [
            ("skill", skill),
            ("windows", f"{windows}; {report.split}"),
            ("model", f"{report.model}; {report.parameters:,} weights"),
            ("kept", kept),
            ("time", f"{report.seconds:.0f} s"),
            ("forecast", f"{report.run / files.GIF_FILE}"),
            ("", f"{report.run / files.SHEET_FILE}"),
            ("run folder", f"{report.run}"),
            ("curves", f"tensorboard --logdir {report.run / files.LOG_FOLDER}"),
        ]
    )
