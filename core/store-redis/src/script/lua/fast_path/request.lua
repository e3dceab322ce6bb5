-- Decides a request whose charges are all single checks that decide, by states that are found as expected. Everything else is left to
-- the general transition.
repeat
  if flags < 8 then
    break
  end
  local first, raws, raws_at = charges * (r - 1), states, charges * (r - 1)
  if not raws then
    -- One call for all charges of the request.
    raws, raws_at = try('MGET', unpack(KEYS, first + 1, first + charges)), 0
    if raws.err then
      raws = {}
    end
  end
  if r == 1 or not is_same then
    --[costs]
  end
  --[read]
  if --[denied]
  then
    --[penalties]
    codes[r] = --[denial]
  else
    --[write]
    if states and --[found]
    then
      found, is_decided = found + 1, true
      break
    end
    codes[r] = --[admission]
  end
  answers[r] = --[states]
  is_decided = true
until true
