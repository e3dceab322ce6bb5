-- A counter that starts anew with each window by the calendar. The call has the window in which its caller sees the server's clock;
-- outside of it the general transition answers which one is wanted.
--[load]
if start$ > now or now < from$ or now >= till$ then
  break
end
until_before$ = till$
if start$ < from$ then
  until_before$ = from$
end
if start$ < from$ or used$ == 0 then
  used$, start$ = 0, from$
end
--[fresh]
if now < from$ or now >= till$ then
  break
end
used$, start$ = 0, from$
--[spend]
used$ = used$ + want
if used$ > capacity$ then
  denied = true
  denies_one = denies_one or used$ - (want - cost) > capacity$
end
until_after$ = till$
