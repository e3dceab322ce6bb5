"""Division by a multiplication: core/rules/src/algorithm/divisor.rs."""

from __future__ import annotations

from dataclasses import dataclass

import z3

from lemmas import one_quotient, product_grows
from prover import Claim, Int, both, ceil_div, floor_div, theorem

BITS = 53


@dataclass
class Divisor:
    """`Divisor` for a divisor `d`; `power` is 2^k, of which only d <= 2^k < 2 d is used."""

    divisor: Int
    power: Int

    @property
    def multiplier(self) -> Int:
        """`new`: `m`."""
        return ceil_div(2**BITS * self.power, self.divisor)

    def upper(self, number: Int) -> Int:
        """`quotient`: the upper half of `2^10 n * 2 m`."""
        return floor_div((number * 2**10) * (2 * self.multiplier), 2**64)

    def quotient(self, number: Int) -> Int:
        """`quotient`: the shift by `k`."""
        return floor_div(self.upper(number), self.power)


class RoundsDown(Divisor):
    """Rounds the multiplier down."""

    @property
    def multiplier(self) -> Int:
        return floor_div(2**BITS * self.power, self.divisor)


@theorem(Divisor, RoundsDown)
def it_divides(model: type[Divisor]) -> Claim:
    """For every divisor from 1 to 2^53 and every number up to 2^53 the quotient is exact and fits 64 bits."""
    claim = Claim()
    number, divisor, power = z3.Ints("number divisor power")
    claim.assume(number >= 0, number <= 2**BITS)
    claim.assume(divisor >= 1, divisor <= power, power < 2 * divisor, power <= 2**BITS)
    here = model(divisor, power)
    multiplier, upper, whole = here.multiplier, here.upper(number), floor_div(number, divisor)
    rest, excess = number - whole * divisor, multiplier * divisor - 2**BITS * power
    product, full = number * multiplier, 2**BITS * power
    # product * divisor = number * full + number * excess, and number * excess < full.
    claim.use(product_grows, excess, number, 2**BITS)
    claim.use(product_grows, power, 1, divisor - rest)
    claim.use(product_grows, divisor, whole * full + full, product)
    claim.use(product_grows, divisor, product + 1, whole * full)
    claim.use(product_grows, number, 0, excess)
    claim.use(product_grows, power, whole + 1, upper)
    claim.use(one_quotient, here.quotient(number), whole, power)
    claim.goal("below", product < (whole + 1) * full)
    claim.goal("no less", product >= whole * full)
    claim.goal("`quotient`", here.quotient(number) == whole)
    claim.goal("`doubled`", 2 * multiplier <= 2**55)
    claim.goal("the upper half", both(upper >= 0, upper < 2**64, number * 2**10 < 2**64))
    return claim
