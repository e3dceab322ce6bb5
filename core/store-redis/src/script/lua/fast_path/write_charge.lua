-- Writes the state of a charge of a request that is admitted.
do
  local raw, renew = raw_@, not raw_@
  --[value]
  if raw then
    --[renew]
  end
  if raw and #raw == #value and (manual or not renew) then
    call('SETRANGE', KEYS[first + @], '0', value)
  elseif manual then
    call('SET', KEYS[first + @], value)
  elseif renew then
    local until_us = 0
    --[lives]
    call('SET', KEYS[first + @], value, 'PXAT', string.format('%d', until_us / 1000 + 1))
  else
    call('SET', KEYS[first + @], value, 'KEEPTTL')
  end
end
