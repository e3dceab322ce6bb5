-- A bucket that gets several units at a time.
--[load]
if at$ > now or limit_then$ ~= limit$ then
  break
end
until_before$ = used$ % step$
until_before$ = at$ + ((used$ - until_before$) / step$ + (until_before$ > 0 and 1 or 0)) * interval$
if used$ > 8 * capacity$ then
  used$ = 8 * capacity$
end
local steps$ = now - at$
steps$ = (steps$ - steps$ % interval$) / interval$
used$ = used$ - steps$ * step$
if used$ <= 0 then
  used$, at$ = 0, now
else
  at$ = at$ + steps$ * interval$
end
--[fresh]
used$, at$ = 0, now
--[spend]
used$ = used$ + want
if used$ > capacity$ then
  denied = true
  denies_one = denies_one or used$ - (want - cost) > capacity$
end
until_after$ = used$ % step$
until_after$ = at$ + ((used$ - until_after$) / step$ + (until_after$ > 0 and 1 or 0)) * interval$
