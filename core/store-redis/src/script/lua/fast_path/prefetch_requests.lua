-- Where all keys differ, the states of all requests can be read before any of them is written.
if requests > 1 and flags % 2 == 1 then
  states = try('MGET', unpack(KEYS))
  if states.err then
    states = nil
  end
end
