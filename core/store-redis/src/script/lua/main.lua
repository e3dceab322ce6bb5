#!lua
-- The body of every script: reads the call, decides its entries one after the other, and replies. The line above makes a
-- server that cannot take writes refuse the call at once; without it a replica would go on denying by what it knows.
--
-- KEYS are the keys of the entries, in their order. ARGV[1] is, with the length in bytes in brackets, big-endian:
--   the arguments of the fast path (fast_path.rs)
--   nonce (6), deadline in server time (7, 0: none), format (1)
--   format 0, a single check by the server's clock: cost (5)
--   format 1: time (7, all ones: the server's), flags (1: all keys differ, 2: all entries ask the same, 4: the time is an estimate
--     of the server's, which does not tell it to scripts, and not a manual clock's), number of entries (2), and for each entry operation (1), cost (5),
--     count (2); with headroom the operation is 16 more, and the count has 512 for each percent
--   the arguments of the general transition (transition/policy.lua)
-- ARGV[2] is there when entries concern reservations or block keys, and has for each of them, in their order: ttl, or the time of
-- the block (6), how long the commit is remembered (5), length of the id (1), id.
--
-- The reply is nonce (6), time (7), status (1) and the rest:
--   status 1       the call came after its deadline and did nothing
--   status 3       the server refuses TIME, and the call did nothing; the server's words follow, and the time is 0
--   status 5       the time is outside of a window by the calendar that the call has, and the call did nothing
--   status 2       every entry has code 1, and what belongs to the code follows for each
--   status 0       number of entries (2), the code (1) of each, then what belongs to the code for each
--   status 16 + n  the only entry has code n, and what belongs to the code follows
-- What belongs to a code:
--   1, 2  a check that spent all, or nothing, by the fast path: the states from before
--   3, 4  the same where there was no state: nothing
--   5     the answer of the general transition (transition/decide.lua)
local call, try, keys, input, struct = redis.call, redis.pcall, KEYS, ARGV[1], struct
local pack, read = struct.pack, struct.unpack
--[arguments]
local entries, op, count = 1, 0, 1
local flags, now, manual, entries_at, decide, is_outside
if format > 0 then
  now, flags, entries, op, cost, count = read('>I7BHBI5H', input, policy_at - 5)
  entries_at = policy_at + 5
  policy_at = entries_at + 8 * entries
  if now >= 9007199254740992 then
    now = nil
  end
  manual = now and flags < 4
  flags = flags % 4
end
--[time]
local states, answers, codes, letters
-- Where the arguments of the next entry that concerns a reservation, or blocks, begin.
local holds_at = 1
if entries > 1 then
  answers, letters = {}, { '\1', '\2', '\3', '\4', '\5' }
  --[prefetch]
end
local i = 1
while true do
  local raw, code
  --[check]
  --[held]
  if not code then
    decide = decide or (function()
      --[general]
    end)()
    if is_outside then
      return pack('>I6I7B', nonce, now, 5)
    end
    code, raw = 5, decide(i, op, cost, count)
  end
  raw = raw or ''
  if entries == 1 then
    return pack('>I6I7Bc0', nonce, now, 16 + code, raw)
  end
  -- The states that were read at once are the answers of code 1.
  if code ~= 1 or not states then
    answers[i] = raw
  end
  if code ~= 1 then
    codes = codes or {}
    codes[i] = letters[code]
  end
  if i == entries then
    break
  end
  i = i + 1
  if flags < 2 then
    op, cost, count = read('>BI5H', input, entries_at + 8 * (i - 1))
  end
end
if not codes then
  return pack('>I6I7B', nonce, now, 2) .. table.concat(answers)
end
for j = 1, entries do
  codes[j] = codes[j] or '\1'
end
return pack('>I6I7BH', nonce, now, 0, entries) .. table.concat(codes) .. table.concat(answers)
