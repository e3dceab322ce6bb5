local debt, full = 0, 0
local ordinary = not raw
-- What is no string is an error, which has no length.
if raw and #raw == 12 then
  local low
  low, debt = read('>I6I6', raw)
  debt = debt - base
  if debt >= 0 and debt <= most and low <= now_low then
    ordinary, full = true, now_high + low + debt
    debt = full - now
    if debt < 0 then
      debt = 0
    end
  end
end
if ordinary then
  local before = debt
  debt = debt + want
  if debt <= empty then
    local value = pack('>I6I6', now_low, base + debt)
    if raw and (now + debt < full - full % unit + unit or manual) then
      call('SETRANGE', key, '0', value)
      code = 1
    else
      full = now + debt
      full = full - full % unit + unit
      if full ~= last_until then
        last_until, until_ms = full, string.format('%d', full / 1000 + 1)
      end
      -- What was not seen though it is there is no string: the general transition fails on it.
      local found = raw and 'XX' or 'NX'
      if manual then
        found = call('SET', key, value, found)
      else
        found = call('SET', key, value, 'PXAT', until_ms, found)
      end
      code = found and 1
    end
  elseif before + unit_debt > empty then
    -- Not even one of them fits. Where some do and others do not, the general transition counts.
    code = 2
  end
end
