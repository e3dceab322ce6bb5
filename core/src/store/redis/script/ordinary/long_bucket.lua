-- A bucket in ticks, or of which a tick repays more than 1.
-- numbers: I5 id$ I7 token$ I7 empty$ I5 rate$ I5 limit$ B exponent$ I6 unit$
-- record: 25 I5 found$ I7 at$ I7 debt$ I5 limit_then$ B exponent_then$
-- packed: I5I7I7I5B id$, ticks$, debt$, limit$, exponent$
-- found
local tick$ = 10 ^ exponent$
ticks$ = (now - now % tick$) / tick$
if found$ ~= id$ or at$ > ticks$ or limit_then$ ~= limit$ or exponent_then$ ~= exponent$ or debt$ > 8 * empty$ then
  break
end
full$ = debt$ % rate$
full$ = (at$ + (debt$ - full$) / rate$ + (full$ > 0 and 1 or 0)) * tick$
debt$ = debt$ - (ticks$ - at$) * rate$
if debt$ < 0 then
  debt$ = 0
end
-- fresh
ticks$, debt$, full$ = 10 ^ exponent$, 0, 0
ticks$ = (now - now % ticks$) / ticks$
-- spend
debt$ = debt$ + want * token$
if debt$ > empty$ then
  denied = true
end
full = debt$ % rate$
filled$ = (ticks$ + (debt$ - full) / rate$ + (full > 0 and 1 or 0)) * 10 ^ exponent$
if filled$ >= full$ - full$ % unit$ + unit$ then
  renew = true
end
-- known
full = full$ - full$ % unit$ + unit$
if full > known then
  known = full
end
-- lives
full = filled$ - filled$ % unit$ + unit$
if full > lives then
  lives = full
end
-- more locals: ticks$ full$ filled$
