-- Decides a request whose charges are all single checks that decide, by states that are found as expected. Everything else is left to
-- the general transition.
repeat
  if flags < 8 then
    break
  end
  -- One call for all. It does not show a value that is no string, so what it does not find is read again.
  local raws = try('MGET', unpack(KEYS))
  if raws.err then
    raws = {}
  end
  --[read]
  local codes
  if --[denied]
  then
    --[penalties]
    codes = --[denial]
  else
    --[write]
    codes = --[admission]
  end
  return pack('>I6I7BH', nonce, now, 0, charges) .. codes --[states]
until true
