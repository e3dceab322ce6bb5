-- A counter that starts anew every period.
--[load]
if start$ > now then
  break
end
until_before$ = start$ + period$
if until_before$ <= now or used$ == 0 then
  used$, start$ = 0, now
  if aligned$ == 1 then
    start$ = now - now % period$
  end
end
--[fresh]
used$, start$ = 0, now
if aligned$ == 1 then
  start$ = now - now % period$
end
--[spend]
used$ = used$ + want
if used$ > capacity$ then
  denied = true
  denies_one = denies_one or used$ - (want - cost) > capacity$
end
until_after$ = start$ + period$
