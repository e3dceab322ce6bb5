#!lua
-- What came with the call, and what time it is. The line above has a server that cannot take writes refuse the whole call
-- and at once: a replica would go on denying by what it knew.
-- ARGV[1]: nonce (6), deadline in server time (7, 0 is none), what comes next (1), and after that the policy's numbers:
--   0  one check by the server's clock: cost (5)
--   1  manual clock (7, all ones is the server's), whether all keys differ (1) and all entries ask the same (2) (1), how
--      many entries (2); for each entry operation (1), cost (5), count (2)
local call, try, keys, input, struct = redis.call, redis.pcall, KEYS, ARGV[1], struct
local pack, read = struct.pack, struct.unpack
local nonce, deadline, many, cost@names = read('>I6I7BI5@format', input)
local entries, op, count, numbers = 1, 0, 1, 20
local alike, now, manual, decide
if many > 0 then
  now, alike, entries, op, cost, count = read('>I7BHBI5H', input, 15)
  numbers = 25 + 8 * entries
  manual = now < 9007199254740992
  @again
end
if deadline > 0 or not manual then
  local time = call('TIME')
  local server = time[1] * 1000000 + time[2]
  if deadline > 0 and server > deadline then
    return pack('>I6I7B', nonce, server, 1)
  end
  if not manual then
    now = server
  end
end
