"""Facts about integers that z3 proves by themselves at once, and finds less easily within a larger theorem."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import z3

from prover import Claim, Int, theorem

Lemma = Callable[..., z3.BoolRef]


def lemma(statement: Lemma) -> Lemma:
    """Registers a lemma as a theorem about any integers."""

    def state() -> Claim:
        claim = Claim()
        claim.goal("it holds", statement(*z3.Ints(" ".join(inspect.signature(statement).parameters))))
        return claim

    state.__name__, state.__module__, state.__doc__ = statement.__name__, statement.__module__, statement.__doc__
    theorem(None)(state)
    return statement


@lemma
def product_grows(factor: Int, less: Int, more: Int) -> z3.BoolRef:
    """A product with a factor that is not negative is no less when the other factor is no less."""
    return z3.Implies(z3.And(factor >= 0, less <= more), factor * less <= factor * more)


@lemma
def one_quotient(quotient: Int, other: Int, divisor: Int) -> z3.BoolRef:
    """Multiples of a divisor that are less than it apart are the same multiple."""
    apart = quotient * divisor - other * divisor
    return z3.Implies(z3.And(divisor > 0, apart < divisor, -apart < divisor), quotient == other)
