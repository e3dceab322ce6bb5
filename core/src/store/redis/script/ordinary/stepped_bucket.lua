-- A bucket that gets several units at a time.
-- numbers: I5 id$ I5 step$ I7 interval$ I5 capacity$ I5 limit$ I6 unit$
-- record: 23 I5 found$ I6 used$ I7 at$ I5 limit_then$
-- packed: I5I6I7I5 id$, used$, at$, limit$
-- found
if found$ ~= id$ or at$ > now or limit_then$ ~= limit$ then
  break
end
full$ = used$ % step$
full$ = at$ + ((used$ - full$) / step$ + (full$ > 0 and 1 or 0)) * interval$
if used$ > 8 * capacity$ then
  used$ = 8 * capacity$
end
full = now - at$
full = (full - full % interval$) / interval$
used$ = used$ - full * step$
if used$ <= 0 then
  used$, at$ = 0, now
else
  at$ = at$ + full * interval$
end
-- fresh
used$, at$, full$ = 0, now, 0
-- spend
used$ = used$ + want
if used$ > capacity$ then
  denied = true
end
full = used$ % step$
filled$ = at$ + ((used$ - full) / step$ + (full > 0 and 1 or 0)) * interval$
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
-- more locals: full$ filled$
