#!lua
-- The body of the script for the charges of a request: checks and reserves of several policies, which are applied together when every
-- one that decides is admitted. Otherwise only those that are denied are, since a denial may count; the others answer as a peek.
--
-- KEYS are the keys of the charges, in their order. ARGV[1] is, with the length in bytes in brackets, big-endian:
--   the arguments of the fast path of each charge (fast_path.rs)
--   nonce (6), deadline in server time (7, 0: none), time (7, all ones: the server's), flags (1, 4: the time is an estimate of the
--   server's, 8: all charges are single checks that decide), number of policies (2), number of charges (2), and for each charge the number of its policy (2), the number of its
--   keys (1), whether its denial denies the request (1), operation (1), cost (5), count (2) as in main.lua
-- ARGV[2] is the reservation of the charges that reserve: ttl (6), how long the commit is remembered (5), length of the id (1), id;
-- empty without one. From ARGV[3] on: the arguments of the general transition of each policy (transition/policy.lua).
--
-- The reply is that of main.lua with status 0 and further codes for charges that were not applied although they would have been admitted:
--   6     the answer of the general transition
--   7     by the fast path: the states from before
--   8     by the fast path, where there was no state: nothing
-- or status 4 and the number (2) of a charge whose key has another type: nothing was applied.
local call, try, input, struct = redis.call, redis.pcall, ARGV[1], struct
local pack, read = struct.pack, struct.unpack
--[arguments]
if now >= 9007199254740992 then
  now = nil
end
local manual = now and flags % 8 < 4
--[time]
--[check]
local is_outside
local function transition(keys, input)
  local policy_at = 1
  --[general]
end
local ttl, remember, id
if ARGV[2] ~= '' then
  ttl, remember, id = read('>I6I5Bc0', ARGV[2])
end
local of, decide, keys = {}, {}, {}
for p = 1, policies do
  keys[p] = {}
  decide[p] = transition(keys[p], ARGV[p + 2])
end
if is_outside then
  return pack('>I6I7B', nonce, now, 5)
end
local numbers, ops, costs, counts, admits, admitted = {}, {}, {}, {}, {}, true
local at, first = charges_at, 1
for i = 1, charges do
  local p, size, decides
  p, size, decides, ops[i], costs[i], counts[i] = read('>HBBBI5H', input, at)
  at = at + 12
  of[i], numbers[i] = p, #keys[p] / size + 1
  for k = 1, size do
    keys[p][#keys[p] + 1] = KEYS[first]
    first = first + 1
  end
  local found = decide[p](numbers[i], ops[i], costs[i], counts[i], {}, ttl, remember, id, true)
  if type(found) == 'string' then
    return pack('>I6I7BH', nonce, now, 4, i)
  end
  admits[i] = found
  admitted = admitted and (found or decides == 0)
end
local codes, answers = {}, {}
for i = 1, charges do
  if admitted or not admits[i] then
    codes[i] = '\5'
    answers[i] = decide[of[i]](numbers[i], ops[i], costs[i], counts[i], {}, ttl, remember, id)
  else
    codes[i] = '\6'
    answers[i] = decide[of[i]](numbers[i], ops[i] >= 16 and 17 or 1, costs[i], counts[i])
  end
end
return pack('>I6I7BH', nonce, now, 0, charges) .. table.concat(codes) .. table.concat(answers)
