"""Terms that are integers or formulas of z3, theorems about them, and what checks theorems."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import z3

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# A model is evaluated with integers of Python, or proved with terms of z3. Both have the same operators.
Int: TypeAlias = int | z3.ArithRef
Bool: TypeAlias = bool | z3.BoolRef

# The bound below which every integer is exact in a double, and the latest time of a clock.
EXACT = 2**53
MAX_US = EXACT - 1
MAX_UNITS = 10**12
U64 = 2**64


class Definitions:
    """Facts that define the quotients of the theorem that is being stated. The same quotient is always the same
    variable.
    """

    def __init__(self) -> None:
        self.facts: list[z3.BoolRef] = []
        self.quotients: dict[tuple[bool, int, int], tuple[z3.ArithRef, z3.ArithRef, z3.ArithRef]] = {}

    def quotient(self, number: Int, divisor: Int, *, up: bool) -> z3.ArithRef:
        over, by = z3.IntSort().cast(number), z3.IntSort().cast(divisor)
        key = (up, over.get_id(), by.get_id())
        if key not in self.quotients:
            quotient = z3.Int(f"quotient!{len(self.quotients)}")
            # The terms are kept, so that no other ones get their numbers.
            self.quotients[key] = (quotient, over, by)
            rest = quotient * by - over if up else over - quotient * by
            self.facts.append(z3.Implies(by > 0, z3.And(rest >= 0, rest < by)))
        return self.quotients[key][0]


definitions = Definitions()


def floor_div(number: Int, divisor: Int) -> Int:
    """The quotient rounded down. A quotient of terms is a new variable; nothing is known of it unless the divisor is
    positive.
    """
    if isinstance(number, int) and isinstance(divisor, int):
        return number // divisor
    return definitions.quotient(number, divisor, up=False)


def ceil_div(number: Int, divisor: Int) -> Int:
    """The quotient rounded up."""
    if isinstance(number, int) and isinstance(divisor, int):
        return -(-number // divisor)
    return definitions.quotient(number, divisor, up=True)


def choose(condition: Bool, then: Int, otherwise: Int) -> Int:
    if isinstance(condition, bool):
        return then if condition else otherwise
    return z3.If(condition, then, otherwise)


def least(a: Int, b: Int) -> Int:
    return choose(a <= b, a, b)


def minus(a: Int, b: Int) -> Int:
    """Subtraction that ends at 0: `saturating_sub`."""
    return choose(a >= b, a - b, 0)


def both(*conditions: Bool) -> Bool:
    if all(isinstance(condition, bool) for condition in conditions):
        return all(conditions)
    return z3.And(*conditions)


def either(*conditions: Bool) -> Bool:
    if all(isinstance(condition, bool) for condition in conditions):
        return any(conditions)
    return z3.Or(*conditions)


def opposite(condition: Bool) -> Bool:
    return not condition if isinstance(condition, bool) else z3.Not(condition)


# The names of the lemmas that theorems have used.
used_lemmas: set[str] = set()


@dataclass
class Claim:
    """What a theorem assumes, the steps to its goals, and the goals. Each step is proved from what stands before it."""

    assumed: list[Bool] = field(default_factory=list)
    steps: list[tuple[str, Bool]] = field(default_factory=list)
    goals: list[tuple[str, Bool]] = field(default_factory=list)

    def assume(self, *conditions: Bool) -> None:
        self.assumed += conditions

    def step(self, name: str, condition: Bool) -> None:
        self.steps.append((name, condition))

    def use(self, lemma: Callable[..., z3.BoolRef], *arguments: Int) -> None:
        """Adds an instance of a lemma, which is a theorem of its own."""
        used_lemmas.add(lemma.__name__)
        self.assumed.append(lemma(*arguments))

    def goal(self, name: str, condition: Bool) -> None:
        self.goals.append((name, condition))


@dataclass(frozen=True)
class Theorem:
    """A theorem about a model, and deliberate defects of the model with which it must be false."""

    name: str
    meaning: str
    state: Callable[..., Claim]
    model: type | None
    mutants: tuple[type, ...]


theorems: list[Theorem] = []


def theorem(model: type | None, *mutants: type) -> Callable[[Callable[..., Claim]], Callable[..., Claim]]:
    """Registers a theorem; its docstring is what it says."""

    def register(state: Callable[..., Claim]) -> Callable[..., Claim]:
        module = state.__module__.rsplit(".", 1)[-1]
        theorems.append(Theorem(f"{module}.{state.__name__}", state.__doc__ or "", state, model, mutants))
        return state

    return register


@contextmanager
def stating() -> Iterator[None]:
    definitions.facts, definitions.quotients = [], {}
    yield


class NotProvedError(Exception):
    """A theorem that does not hold, or that z3 could not decide in time."""


def formula(condition: Bool) -> z3.BoolRef:
    return z3.BoolVal(condition) if isinstance(condition, bool) else condition


def check(formulas: list[z3.BoolRef], seconds: float) -> tuple[z3.CheckSatResult, z3.ModelRef | None]:
    """Asks several configurations of z3 in turn, each for a part of the time."""
    result = z3.unknown
    for seed, share in ((0, 0.3), (1, 0.2), (7, 0.5)):
        solver = z3.SolverFor("QF_NIA") if seed == 1 else z3.Solver()
        solver.set("timeout", int(seconds * share * 1000))
        solver.set("random_seed", seed)
        solver.add(*formulas)
        result = solver.check()
        if result == z3.sat:
            return result, solver.model()
        if result == z3.unsat:
            return result, None
    return result, None


def stated(state: Callable[..., Claim], model: type | None) -> tuple[Claim, list[z3.BoolRef]]:
    with stating():
        claim = state(model) if model else state()
        return claim, [*definitions.facts, *(formula(condition) for condition in claim.assumed)]


def prove(theorem: Theorem, seconds: float) -> None:
    """Proves every step and every goal."""
    claim, known = stated(theorem.state, theorem.model)
    for name, condition in [*claim.steps, *claim.goals]:
        result, model = check([*known, z3.Not(formula(condition))], seconds)
        if result == z3.sat:
            msg = f"{name} is false: {model}"
            raise NotProvedError(msg)
        if result != z3.unsat:
            msg = f"{name}: z3 does not know within {seconds} s"
            raise NotProvedError(msg)
        known.append(formula(condition))


SMALL = (2, 3, 5, 8, 20, 200, 20_000)


def find(formulas: list[z3.BoolRef], seconds: float) -> z3.ModelRef | None:
    """A model of formulas, small numbers first: they are found sooner and are easier to read."""
    variables = {str(v): v for f in formulas for v in variables_of(f)}
    for bound in SMALL:
        small = [z3.And(v >= -bound, v <= bound) for v in variables.values() if z3.is_int(v)]
        result, model = check([*formulas, *small], seconds / len(SMALL))
        if result == z3.sat:
            return model
    result, model = check(formulas, seconds)
    return model if result == z3.sat else None


def variables_of(term: z3.ExprRef) -> list[z3.ExprRef]:
    found: dict[int, z3.ExprRef] = {}
    seen: set[int] = set()
    stack: list[z3.ExprRef] = [term]
    while stack:
        top = stack.pop()
        if top.get_id() in seen:
            continue
        seen.add(top.get_id())
        if z3.is_const(top) and top.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            found[top.get_id()] = top
        stack += top.children()
    return list(found.values())


def assumptions_hold_somewhere(theorem: Theorem, seconds: float) -> None:
    """Finds numbers that satisfy the assumptions."""
    _, known = stated(theorem.state, theorem.model)
    if find(known, seconds) is None:
        msg = "no numbers were found that satisfy the assumptions"
        raise NotProvedError(msg)


def refute(theorem: Theorem, mutant: type, seconds: float) -> str:
    """Finds numbers with which a goal is false for a defective model; returns the goal."""
    claim, known = stated(theorem.state, mutant)
    goals = z3.And(*(formula(goal) for _, goal in claim.goals))
    model = find([*known, z3.Not(goals)], seconds)
    if model is None:
        msg = f"the defect {mutant.__name__} is not refuted"
        raise NotProvedError(msg)
    broken = [name for name, goal in claim.goals if z3.is_false(model.eval(formula(goal), model_completion=True))]
    shown = ", ".join(sorted(f"{d}={model[d]}" for d in model.decls() if "!" not in d.name()))
    return f"{broken[0] if broken else '?'} is false with {shown}"
