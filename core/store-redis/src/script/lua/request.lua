#!lua
-- The body of the script for requests over the same policies: the checks and reserves of one are applied together when every one that
-- decides is admitted. Otherwise only those that are denied are, since a denial may count; the others answer as a peek. Requests are
-- decided one after the other.
--
-- KEYS are the keys of the charges of each request, in their order. ARGV[1] is, with the length in bytes in brackets, big-endian:
--   the arguments of the fast path of each charge (fast_path.rs)
--   nonce (6), deadline in server time (7, 0: none), time (7, all ones: the server's), flags (1: all keys differ, 2: all requests ask
--   the same, 4: the time is an estimate of the server's, 8: all charges are single checks that decide), number of policies (2), number
--   of charges of a request (2), number of requests (2), for each charge the number of its policy (2) and the number of its keys (1),
--   and for each charge of each request, or of the first alone where all ask the same: cost (5), whether its denial denies the
--   request (1), operation (1), count (2) as in main.lua
-- ARGV[2] is the reservation of the charges that reserve, which only a lone request has: ttl (6), how long the commit is remembered (5),
-- length of the id (1), id; empty without one. From ARGV[3] on: the arguments of the general transition of each policy
-- (transition/policy.lua).
--
-- The reply is that of main.lua with status 0, 2 or 5, and further codes for charges that were not applied although they would have been
-- admitted:
--   6     the answer of the general transition
--   7     by the fast path: the states from before
--   8     by the fast path, where there was no state: nothing
-- or for all charges of a request with a key of another type, or with a state of a later form, of which nothing was applied:
--   9     nothing, because of another type
--   10    nothing, because of a later form
local call, try, input, struct = redis.call, redis.pcall, ARGV[1], struct
local pack, read = struct.pack, struct.unpack
--[arguments]
if now >= 9007199254740992 then
  now = nil
end
local manual = now and flags % 8 < 4
--[time]
local asked_at, is_same = charges_at + 3 * charges, flags % 4 >= 2
local codes, answers, holds_at, is_outside, decide_request = {}, {}, 1
-- The states that were read at once, and the number of requests that were admitted by such states: these have no codes yet.
local states, found = nil, 0
--[prefetch]
for r = 1, requests do
  local is_decided
  --[check]
  if not is_decided then
    decide_request = decide_request or (function()
      local function transition(keys, input)
        local policy_at = 1
        --[general]
      end
      local ttl, remember, id
      if ARGV[2] ~= '' then
        ttl, remember, id = read('>I6I5Bc0', ARGV[2])
      end
      local of, sizes, decide, keys, keys_of_request = {}, {}, {}, {}, 0
      for p = 1, policies do
        keys[p] = {}
        decide[p] = transition(keys[p], ARGV[p + 2])
      end
      for i = 1, charges do
        of[i], sizes[i] = read('>HB', input, charges_at + 3 * i - 3)
        keys_of_request = keys_of_request + sizes[i]
      end
      return function(r)
        local numbers, ops, costs, counts, admits, admitted = {}, {}, {}, {}, {}, true
        local at, key = asked_at + (is_same and 0 or 9 * charges * (r - 1)), keys_of_request * (r - 1)
        for i = 1, charges do
          local p, decides = of[i], 0
          costs[i], decides, ops[i], counts[i] = read('>I5BBH', input, at)
          at = at + 9
          numbers[i] = #keys[p] / sizes[i] + 1
          for k = 1, sizes[i] do
            key = key + 1
            keys[p][#keys[p] + 1] = KEYS[key]
          end
          local found = decide[p](numbers[i], ops[i], costs[i], counts[i], {}, ttl, remember, id, true)
          if type(found) == 'string' then
            -- What was found: another type, or a later form.
            return string.rep(string.byte(found, 7) == 3 and '\10' or '\9', charges), ''
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
        return table.concat(codes), table.concat(answers)
      end
    end)()
    if is_outside then
      return pack('>I6I7B', nonce, now, 5)
    end
    codes[r], answers[r] = decide_request(r)
  end
end
if found == requests then
  return pack('>I6I7B', nonce, now, 2) .. table.concat(states)
end
for r = 1, requests do
  if not codes[r] then
    codes[r] = string.rep('\1', charges)
    answers[r] = table.concat(states, '', charges * (r - 1) + 1, charges * r)
  end
end
return pack('>I6I7BH', nonce, now, 0, charges * requests) .. table.concat(codes) .. table.concat(answers)
