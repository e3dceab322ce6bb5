-- A bucket of which a microsecond repays 1. $ is which quota of the policy it is.
-- numbers: I5 id$ I7 token$ I7 empty$ I6 unit$
-- record: 17 I5 found$ I7 at$ I5 debt$
-- packed: I5I7I5 id$, now, debt$
-- found
if found$ ~= id$ or at$ > now then
  break
end
full$ = at$ + debt$
if debt$ > 8 * empty$ then
  debt$ = 8 * empty$
end
debt$ = debt$ - (now - at$)
if debt$ < 0 then
  debt$ = 0
end
-- fresh
debt$, full$ = 0, 0
-- spend
debt$ = debt$ + want * token$
if debt$ > empty$ then
  denied = true
elseif now + debt$ >= full$ - full$ % unit$ + unit$ then
  renew = true
end
-- known
full = full$ - full$ % unit$ + unit$
if full > known then
  known = full
end
-- lives
full = now + debt$
full = full - full % unit$ + unit$
if full > lives then
  lives = full
end
-- more locals: full$
