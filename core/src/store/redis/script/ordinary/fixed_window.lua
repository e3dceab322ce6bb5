-- A counter that starts anew every period.
-- numbers: I5 id$ I5 limit$ I6 period$ B aligned$
-- record: 18 I5 found$ I6 used$ I7 start$
-- packed: I5I6I7 id$, used$, start$
-- found
if found$ ~= id$ or start$ > now then
  break
end
full$ = start$ + period$
if full$ <= now or used$ == 0 then
  renew = true
  used$, start$ = 0, now
  if aligned$ == 1 then
    start$ = now - now % period$
  end
end
-- fresh
used$, start$ = 0, now
if aligned$ == 1 then
  start$ = now - now % period$
end
-- spend
used$ = used$ + want
if used$ > limit$ then
  denied = true
end
-- known
if full$ > known then
  known = full$
end
-- lives
full = start$ + period$
if full > lives then
  lives = full
end
-- more locals: full$
