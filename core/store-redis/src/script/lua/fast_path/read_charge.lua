-- Reads the state of a charge of a request, where it is found as expected, and finds out whether it is denied; `@` is its number.
local raw_@, cost_@, denied_@ = raws[@] or try('GET', KEYS[@]), read('>I5', input, charges_at + 12 * @ - 7), false
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
