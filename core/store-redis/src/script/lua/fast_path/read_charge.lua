-- Reads the state of a charge of a request, where it is found as expected, and finds out whether it is denied; `@` is its number.
-- MGET does not show a value that is no string, so what it does not find is read again.
local raw_@, denied_@ = raws[raws_at + @] or try('GET', KEYS[first + @]), false
--[locals]
do
  local raw, cost, want, denied, denies_one = raw_@, cost_@, cost_@, false, false
  if raw then
    -- An error in place of a string has no length.
    local size, p = #raw, 1
    --[load]
  else
    --[fresh]
  end
  --[spend]
  denied_@ = denied
end
