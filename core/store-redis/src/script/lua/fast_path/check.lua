-- A check by states that are found as expected: records in the order of the quotas, written under the same numbers and not
-- ahead of the clock. Everything else is left to the general transition.
repeat
  if op ~= 0 or cost == 0 then
    break
  end
  local key, want = keys[i], cost * count
  if states then
    raw = states[i]
  else
    raw = try('GET', key)
  end
  -- Whether a quota denies the entry, whether one denies even a single check of it, and whether the key has to live longer.
  local denied, denies_one, renew = false, false, not raw
  --[locals]
  if raw then
    -- An error in place of a string has no length.
    local size, p = #raw, 1
    --[load]
  else
    --[fresh]
  end
  --[spend]
  if denied then
    --[denied]
    break
  end
  --[value]
  if raw then
    --[renew]
  end
  local stored = true
  if raw and #raw == #value and (manual or not renew) then
    call('SETRANGE', key, '0', value)
  elseif manual then
    stored = call('SET', key, value, raw and 'XX' or 'NX')
  elseif renew then
    local until_us = 0
    --[lives]
    -- MGET does not show a value that is no string; NX leaves it to the general transition, which fails on it.
    stored = call('SET', key, value, 'PXAT', string.format('%d', until_us / 1000 + 1), raw and 'XX' or 'NX')
  else
    call('SET', key, value, 'KEEPTTL')
  end
  code = stored and (raw and 1 or 3)
until true
