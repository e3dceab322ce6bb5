-- A check by quotas whose states are found as they are expected: records in the order of the quotas, written under the
-- same numbers, not ahead of the clock. Whatever is out of the ordinary is left to the general transition.
repeat
  if op ~= 0 or cost == 0 then
    break
  end
  local key = keys[i]
  raw = try('GET', key)
  local want, denied, full = cost * count, false, nil
  -- Whether a record needs the key to live longer than the one before it.
  local renew = not raw
  @locals
  if raw then
    local size, p = #raw, 1
    @found
    if p <= size then
      break
    end
  else
    @fresh
  end
  @spend
  if denied then
    if count == 1 then
      code = 7
    end
    break
  end
  local value = pack(@packed)
  if renew then
    -- How long the key lives at least, and how long it has to.
    local known, lives = 0, 0
    if raw then
      @known
    end
    @lives
    renew = lives > known and lives
  end
  code = 6
  if raw and #raw == #value and (manual or not renew) then
    call('SETRANGE', key, '0', value)
  elseif manual then
    call('SET', key, value)
  elseif renew then
    call('SET', key, value, 'PXAT', string.format('%d', renew / 1000 + 1))
  else
    call('SET', key, value, 'KEEPTTL')
  end
until true
