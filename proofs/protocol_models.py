"""The models of the protocols: explores every state that they can reach, and finds each deliberate defect.

A model is a file of `protocols/` in Promela. The comment at its head lists its bounds, its invariants, its defects and
its findings; spin makes a program of it that visits all states. `main.py` runs the cases.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from prover import NotProvedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
ROOT = HERE.parent

# A search that needs more is not exhaustive, and fails.
MEGABYTES = 3_000
DEPTH = 1_000_000
SECONDS = 900

# Labels that name no step of the code: what callers and the environment do, and the targets of jumps.
OTHER_LABELS = ("caller_", "fault_", "to_", "end")


@dataclass(frozen=True)
class Mutant:
    """A deliberate defect, or a finding: what the code does today under a fault that the model otherwise leaves out."""

    kind: str
    name: str
    refuted: str
    meaning: str

    @property
    def macro(self) -> str:
        return f"{self.kind.upper()}_{self.name}"


@dataclass(frozen=True)
class Model:
    """A model, as the comment at its head describes it."""

    path: Path
    text: str
    bounds: tuple[str, ...]
    invariants: dict[str, str]
    mutants: tuple[Mutant, ...]
    # The invariants that are about whole runs and not about single states.
    formulas: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.stem


@dataclass(frozen=True)
class Search:
    """What a search has found."""

    states: int
    # The violation, if any, with the number of steps that lead to it.
    violation: str
    steps: int
    unreached: tuple[int, ...]


def read_model(path: Path) -> Model:
    """Reads the head of a model."""
    text = path.read_text()
    invariants = dict(re.findall(r"^ \* invariant (\w+): (.+)$", text, re.MULTILINE))
    mutants = tuple(
        Mutant(*found) for found in re.findall(r"^ \* (defect|finding) (\w+) refutes (\w+): (.+)$", text, re.MULTILINE)
    )
    bounds = tuple(re.findall(r"^ \* bounds: (.+)$", text, re.MULTILINE))
    formulas = tuple(re.findall(r"^ltl (\w+)", text, re.MULTILINE))
    return Model(path, text, bounds, invariants, mutants, formulas)


MODELS = tuple(read_model(path) for path in sorted((HERE / "protocols").glob("*.pml")))


def run(command: list[str], folder: Path) -> str:
    """The output of a command that succeeds."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        msg = f"{command[0]} has not ended after {SECONDS} s"
        raise NotProvedError(msg) from None
    if done.returncode:
        msg = f"{command[0]} failed: {(done.stdout + done.stderr)[-2000:]}"
        raise NotProvedError(msg)
    return done.stdout


def search(model: Model, checked: set[str], macro: str = "", formula: str = "") -> Search:
    """Visits all states. Only the given invariants are checked; `formula` is one of them that is about whole runs."""
    states = [f"-D{name}={int(name in checked)}" for name in model.invariants if name not in model.formulas]
    defines = states + ([f"-D{macro}"] if macro else [])
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / model.path.name).write_text(model.text)
        run(["spin", *defines, "-a", model.path.name], here)
        kind = [] if formula else ["-DSAFETY", "-DNOCLAIM"]
        run(["cc", "-O1", "-w", *kind, f"-DMEMLIM={MEGABYTES}", "-o", "pan", "pan.c"], here)
        output = run(["./pan", f"-m{DEPTH}", *(["-a", "-N", formula] if formula else [])], here)
    return result_of(model, output)


def result_of(model: Model, output: str) -> Search:
    """Reads the output of a search."""
    violation = re.search(r"^pan:\d+: (.+?) \(at depth (\d+)\)", output, re.MULTILINE)
    stored = re.search(r"(\d+) states, stored", output)
    errors = re.search(r"errors: (\d+)", output)
    if not stored or not errors:
        msg = f"the search has no result: {output[-2000:]}"
        raise NotProvedError(msg)
    if not violation:
        for sign in ("Search not completed", "max search depth too small", "out of memory", "hint: "):
            if sign in output:
                msg = f"the search is not exhaustive: {sign}"
                raise NotProvedError(msg)
        if errors[1] != "0":
            msg = f"{errors[1]} errors: {output[-2000:]}"
            raise NotProvedError(msg)
    file = re.escape(model.path.name)
    unreached = re.findall(rf"^\t{file}:(\d+), state \d+, \"(?!-end-)", output, re.MULTILINE)
    # A part that is used several times may have statements that only one of its copies reaches.
    shared = [match.span() for match in re.finditer(r"^inline .*?^}", model.text, re.MULTILINE | re.DOTALL)]
    parts = [(model.text.count("\n", 0, begin) + 1, model.text.count("\n", 0, end) + 1) for begin, end in shared]
    lines = {int(line) for line in unreached}
    return Search(
        states=int(stored[1]),
        violation=violation[1] if violation else "",
        steps=int(violation[2]) if violation else 0,
        unreached=tuple(sorted(line for line in lines if not any(begin <= line <= end for begin, end in parts))),
    )


def holds(model: Model) -> str:
    """No state violates an invariant, and each statement of the model is reached."""
    found = search(model, set(model.invariants))
    if found.violation:
        raise NotProvedError(found.violation)
    lines = model.text.splitlines()
    never = [line for line in found.unreached if "/* never:" not in lines[line - 1]]
    if never:
        msg = f"never reached: lines {never}"
        raise NotProvedError(msg)
    return f"{found.states:,} states"


def formula_holds(model: Model, formula: str) -> str:
    """No run violates a formula."""
    found = search(model, {formula}, formula=formula)
    if found.violation:
        raise NotProvedError(found.violation)
    return f"{found.states:,} states"


def refuted(model: Model, mutant: Mutant) -> str:
    """A defect violates the invariant that it names."""
    formula = mutant.refuted if mutant.refuted in model.formulas else ""
    found = search(model, {mutant.refuted}, mutant.macro, formula)
    wanted = "acceptance cycle" if formula else "assertion violated"
    if wanted not in found.violation:
        msg = f"{mutant.refuted} is not violated: {found.violation or 'no violation'} in {found.states:,} states"
        raise NotProvedError(msg)
    return f"{mutant.refuted} is violated after {found.steps} steps"


def functions_exist(model: Model) -> str:
    """Each step names a function or script that exists, and its label has that name."""
    step = re.compile(r"/\* (\S+): (\w+) \*/\n(?:#.*\n|.*skip;\n)*(?:(\w+):|inline (\w+))")
    labels = set(re.findall(r"^(\w+):$", model.text, re.MULTILINE))
    named = 0
    functions = set()
    for path, function, label, inline in step.findall(model.text):
        file = ROOT / path
        if not file.is_file():
            msg = f"there is no {path}"
            raise NotProvedError(msg)
        is_script = file.suffix == ".lua" and file.stem == function
        if not is_script and not re.search(rf"\b(fn|function) {function}\b", file.read_text()):
            msg = f"{path} has no function {function}"
            raise NotProvedError(msg)
        if not (label or inline).startswith(function):
            msg = f"the step of {function} has the label {label or inline}"
            raise NotProvedError(msg)
        functions.add(function)
        named += 1
    comments = len(re.findall(r"/\* (?:core|tools|bindings)/\S+: \w+ \*/", model.text))
    if comments != named:
        msg = f"{comments - named} of {comments} comments that name a function are not in front of a label"
        raise NotProvedError(msg)
    others = {
        label
        for label in labels
        if not label.startswith(OTHER_LABELS)
        and not any(label == name or label.startswith(f"{name}_") for name in functions)
    }
    if others:
        msg = f"labels that name no step of the code: {sorted(others)}"
        raise NotProvedError(msg)
    return f"{named} steps"


def is_described(model: Model) -> str:
    """Each invariant is stated, used, and refuted by a defect."""
    used = set(re.findall(r"INVARIANT\((\w+),", model.text)) - {"name"} | set(model.formulas)
    refutable = {mutant.refuted for mutant in model.mutants}
    for what, names in (("used", used), ("refuted by a defect or a finding", refutable)):
        if names != set(model.invariants):
            msg = f"stated and {what}: the difference is {sorted(names ^ set(model.invariants))}"
            raise NotProvedError(msg)
    missing = [
        mutant.macro for mutant in model.mutants if not re.search(rf"^#.*\b{mutant.macro}\b", model.text, re.MULTILINE)
    ]
    if missing or not model.bounds:
        msg = f"not in the model: {missing or 'bounds'}"
        raise NotProvedError(msg)
    return f"{len(model.invariants)} invariants, {len(model.mutants)} defects and findings"


def cases() -> Iterator[tuple[str, Callable[[], str]]]:
    """All cases, with their names."""
    for model in MODELS:
        name = f"protocols.{model.name}"
        yield f"{name}: head", partial(is_described, model)
        yield f"{name}: steps of the code", partial(functions_exist, model)
        yield f"{name}: all states", partial(holds, model)
        for formula in model.formulas:
            yield f"{name}: all runs, {formula}", partial(formula_holds, model, formula)
        for mutant in model.mutants:
            yield f"  {name}: {mutant.kind} {mutant.name}", partial(refuted, model, mutant)


def table() -> str:
    """The invariants, as `docs/proofs.md` lists them."""
    rows = ["| model | invariant | what holds | defects that refute it |", "|---|---|---|---|"]
    for model in MODELS:
        for name, meaning in model.invariants.items():
            of_it = [mutant for mutant in model.mutants if mutant.refuted == name]
            defects = ", ".join(f"`{mutant.name}`" for mutant in of_it)
            rows.append(f"| `{model.name}` | `{name}` | {meaning} | {defects} |")
    return "\n".join(rows)
