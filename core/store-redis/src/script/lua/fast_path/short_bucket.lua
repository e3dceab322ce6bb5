-- A bucket of which a microsecond repays 1.
--[load]
if at$ > now then
  break
end
until_before$ = at$ + debt$
if debt$ > 8 * empty$ then
  debt$ = 8 * empty$
end
debt$ = debt$ - (now - at$)
if debt$ < 0 then
  debt$ = 0
end
--[fresh]
debt$ = 0
--[spend]
debt$ = debt$ + want * token$
if debt$ > empty$ then
  denied = true
  denies_one = denies_one or debt$ - (want - cost) * token$ > empty$
end
until_after$ = now + debt$
