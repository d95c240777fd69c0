"""Make small changes to the core modules, one at a time, and count those that no test notices.

    scripts/mutate                           # a sample of every module
    scripts/mutate --quick --sample 30       # without TensorFlow, torch and Grain: more survive
    scripts/mutate metrics --sample 0        # every change of one module
    scripts/mutate --only metrics:53:17:0    # one change again

Each change is made in a copy of the tree, in which the tests of that module are run until one
fails. Those that survive are printed with their lines; a share above --limit makes the exit code
1. The operators are the usual ones: shifted bounds, swapped comparisons, arithmetic and booleans,
dropped `not`, numbers off by one, twin functions (min and max, any and all, floor and ceil), and
statements, arguments and conditions left out. Kept tools were tried first: mutmut leaves constants
and class bodies alone and forks a process that may hold TensorFlow; cosmic-ray changes type
annotations, which no test can notice, and cannot sample.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
# Module -> the test files that are about it, the fastest first.
TESTS = {
    "windows/spec": "windows/test_spec windows/test_lanes windows/test_splits windows/test_choose",
    "windows/order": "windows/test_schedule windows/test_order windows/test_blocks",
    "windows/blocks": "windows/test_blocks",
    "windows/splits": "windows/test_splits test_split_files",
    "windows/choose": "windows/test_choose",
    "windows/lanes": "windows/test_lanes",
    "windows/schedule": "windows/test_schedule windows/test_blocks windows/test_lanes",
    "windows/statistics": "windows/test_statistics windows/test_choose test_scaling",
    "stores/record": "stores/test_record faults/test_hostile stores/test_store_zarr "
    "stores/test_store_hdf5",
    "sources/names": "sources/test_names sources/test_listing",
    "conversion/pixels": "conversion/test_pixels",
    "metrics": "test_metrics",
    "scaling": "test_scaling windows/test_statistics",
    "batches": "adapters/test_batches test_augment windows/test_lanes",
}
TIMEOUT_SECONDS = 600
# A failure is a failure, however long its example; TensorFlow takes longer to start than most
# tests to run.
PLUGIN = """
import os, sys
import hypothesis

if os.environ["MUTATE_QUICK"]:
    sys.modules.update(dict.fromkeys(("tensorflow", "torch", "grain")))

def pytest_configure():
    fast = ("explicit", "reuse", "generate")
    phases = [phase for phase in hypothesis.Phase if phase.name in fast]
    hypothesis.settings.register_profile("mutate", deadline=None, phases=phases)
    hypothesis.settings.load_profile("mutate")

def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: "tf" in getattr(item, "fixturenames", ()))
"""

COMPARISONS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
ARITHMETIC: dict[type, tuple[type, ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitXor: (ast.BitAnd,),
}
TWINS = {
    **{"any": "all", "all": "any", "min": "max", "max": "min", "minimum": "maximum"},
    **{"maximum": "minimum", "floor": "rint", "ceil": "floor", "rint": "floor"},
    **{"float32": "float64", "float64": "float32", "nanmean": "nanmax", "mean": "max"},
    **{"search": "match", "match": "search", "left": "right", "right": "left"},
}


def changed(node: ast.AST, **fields: object) -> ast.AST:
    """A copy of the node with other fields."""
    twin = copy.copy(node)
    for name, value in fields.items():
        setattr(twin, name, value)
    return twin


def replacements(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of a node."""
    match node:
        case ast.Compare(ops=[op]):
            yield from (changed(node, ops=[other()]) for other in COMPARISONS[type(op)])
        case ast.BinOp(op=op) | ast.AugAssign(op=op):
            yield from (changed(node, op=other()) for other in ARITHMETIC.get(type(op), ()))
        case ast.BoolOp(op=op, values=values):
            yield changed(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
            yield from (v for v in values if not isinstance(v, ast.NamedExpr))
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield ast.Constant(value * 1.01 if value else 1.0)
        case ast.Name(id=name) if name in TWINS:
            yield changed(node, id=TWINS[name])
        case ast.Attribute(attr=name) if name in TWINS:
            yield changed(node, attr=TWINS[name])
        case ast.IfExp(body=body, orelse=orelse):
            yield body
            yield orelse
        case ast.If(test=ast.NamedExpr() | ast.Name()):
            pass
        case ast.If(test=test) if not any(isinstance(n, ast.NamedExpr) for n in ast.walk(test)):
            yield changed(node, test=ast.Constant(False))
        case ast.Call(args=[*args], keywords=[*keywords, last]) if last.arg not in (None, "dtype"):
            yield changed(node, args=args, keywords=keywords)
        case ast.Expr(value=ast.Call()) | ast.Raise():
            yield ast.Pass()


def targets(tree: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Every place of a node: its parent, the field and the index there.

    Annotations, docstrings and the text of errors are left out: no behaviour is in them.
    """
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params", "exc"):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield tree, name, index
                yield from targets(child)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one module."""

    module: str
    place: int
    """Number of the place in the order of `targets`."""
    choice: int
    """Number of the replacement there."""
    line: int
    before: str
    after: str

    @property
    def name(self) -> str:
        """What --only takes."""
        return f"{self.module}:{self.line}:{self.place}:{self.choice}"

    def code(self, original: str) -> str:
        """The module's text with this change."""
        tree = ast.parse(original)
        parent, field, index = next(islice(targets(tree), self.place, None))
        put(parent, field, index, [*replacements(at(parent, field, index))][self.choice])
        return ast.unparse(ast.fix_missing_locations(tree))


def mutants(module: str) -> list[Mutant]:
    """All changes of a module, in the order of its places."""
    found = []
    tree = ast.parse((ROOT / "framewin" / f"{module}.py").read_text())
    for place, target in enumerate(targets(tree)):
        node = at(*target)
        for choice, other in enumerate(replacements(node)):
            line, before, after = getattr(node, "lineno", 0), brief(node), brief(other)
            found.append(Mutant(module, place, choice, line, before, after))
    return found


def at(parent: ast.AST, field: str, index: int | None) -> ast.AST:
    """The node at a place."""
    owner = getattr(parent, field)
    return owner if index is None else owner[index]


def put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    """Set a node at a place."""
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def brief(node: ast.AST) -> str:
    """The first line of a node's code."""
    return ast.unparse(node).splitlines()[0][:70]


def copy_tree(folder: Path) -> None:
    """What the tests need."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout.split("\0")
    for name in filter(None, names):
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, place)
    (folder / "mutate_plugin.py").write_text(PLUGIN)


def run_tests(folder: Path, module: str, *, quick: bool, mutated: bool = True) -> bool:
    """Whether the tests of a module pass in a copy; a test that hangs has noticed the change.

    The run without a change leaves bytecode, which those with one do not touch.
    """
    files = [f"tests/{name}.py" for name in TESTS[module].split()]
    command = [ROOT / ".venv/bin/python", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "mutate_plugin"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1" * mutated,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "MUTATE_QUICK": "1" * quick,
        "OMP_NUM_THREADS": "1",
        "FRAMEWIN_REAL_DATA": str(
            Path(os.environ.get("FRAMEWIN_REAL_DATA", ROOT.parent / "shared" / "data"))
        ),
    }
    try:
        done = subprocess.run(
            [*command, f"framewin/{module}.py", *files],
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def survives(mutant: Mutant, folders: SimpleQueue[Path], *, quick: bool) -> bool:
    """Whether no test notices a change."""
    folder = folders.get()
    path = folder / "framewin" / f"{mutant.module}.py"
    original = path.read_text()
    try:
        path.write_text(mutant.code(original))
        return run_tests(folder, mutant.module, quick=quick)
    finally:
        path.write_text(original)
        folders.put(folder)


def chosen(args: argparse.Namespace) -> list[Mutant]:
    """The changes to try."""
    if args.only:
        wanted = set(args.only)
        modules = sorted({name.split(":")[0] for name in wanted})
        return [m for module in modules for m in mutants(module) if m.name in wanted]
    picked: list[Mutant] = []
    for module in args.modules or TESTS:
        every = mutants(module)
        if args.sample and args.sample < len(every):
            every = random.Random(f"{args.seed} {module}").sample(every, args.sample)
        picked += every
    return picked


def main() -> int:
    """Try the changes and print those that survive."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", choices=[[], *TESTS], metavar="MODULE")
    parser.add_argument("--sample", type=int, default=20, help="changes of each module; 0: all")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--workers", type=int, default=2, help="changes at a time")
    parser.add_argument("--limit", type=float, default=10, help="per cent that may survive")
    parser.add_argument(
        "--quick", action="store_true", help="skip what needs TensorFlow, torch or grain"
    )
    parser.add_argument("--only", action="append", metavar="NAME", help="a change by its name")
    args = parser.parse_args()
    picked = chosen(args)
    folders: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="mutate-") as scratch:
        first, *others = (Path(scratch, str(number)) for number in range(args.workers))
        copy_tree(first)
        for module in sorted({m.module for m in picked}):
            if not run_tests(first, module, quick=args.quick, mutated=False):
                print(f"the tests of {module} fail without any change", file=sys.stderr)
                return 2
        for folder in (first, *others):
            if folder != first:
                shutil.copytree(first, folder)
            folders.put(folder)
        alive: dict[str, list[int]] = {m.module: [0, 0] for m in picked}
        with ThreadPoolExecutor(args.workers) as pool:
            results = pool.map(lambda m: (m, survives(m, folders, quick=args.quick)), picked)
            for done, (mutant, survived) in enumerate(results, 1):
                counts = alive[mutant.module]
                counts[0] += survived
                counts[1] += 1
                if survived:
                    print(f"{mutant.name}  {mutant.before}  ->  {mutant.after}", flush=True)
                print(f"\r{done} of {len(picked)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for module, (survived, tried) in alive.items():
        print(f"{module:20} {survived:3} of {tried:3} survive")
    survived, tried = (sum(counts[i] for counts in alive.values()) for i in (0, 1))
    print(f"{'all':20} {survived:3} of {tried:3} survive, {100 * survived / max(tried, 1):.1f} %")
    return int(100 * survived > args.limit * tried)


if __name__ == "__main__":
    sys.exit(main())
