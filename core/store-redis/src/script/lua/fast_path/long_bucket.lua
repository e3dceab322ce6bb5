-- A bucket whose time is counted in ticks, or of which a tick repays more than 1.
--[load]
ticks$ = (now - now % tick$) / tick$
if at$ > ticks$ or limit_then$ ~= limit$ or exponent_then$ ~= exponent$ or debt$ > 8 * empty$ then
  break
end
until_before$ = debt$ % rate$
until_before$ = (at$ + (debt$ - until_before$) / rate$ + (until_before$ > 0 and 1 or 0)) * tick$
debt$ = debt$ - (ticks$ - at$) * rate$
if debt$ < 0 then
  debt$ = 0
end
--[fresh]
ticks$, debt$ = (now - now % tick$) / tick$, 0
--[spend]
debt$ = debt$ + want * token$
if debt$ > empty$ then
  denied = true
  denies_one = denies_one or debt$ - (want - cost) * token$ > empty$
end
until_after$ = debt$ % rate$
until_after$ = (ticks$ + (debt$ - until_after$) / rate$ + (until_after$ > 0 and 1 or 0)) * tick$
