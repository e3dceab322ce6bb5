-- The first part of the general transition: the arguments of the policy (arguments.rs), and what its algorithms share.
-- 38 bytes for each quota, then the past numbers of each quota, then the numbers of the penalty, if there is one.
local sub = string.sub
local quotas, logs = {}, 0
-- The limit of the quota of concurrent reservations; 65535 without one. Traits: 1: there is a penalty, 2: a state that was
-- written under other numbers was changed just now, 4: groups share the policy.
local quota_count, dropped, slots, traits = read('>BBHB', input, policy_at)
local changed_now = traits % 4 >= 2
local penalty, shares_at
-- What groups.lua has, where groups share the policy.
local sharing
do
  local p = policy_at + 5
  for i = 1, quota_count do
    local q = {}
    q.algorithm, q.flags, q.exponent, q.tag, q.limit, q.capacity, q.a, q.b, q.period = read('>BBBc4I5I6I7I7I6', input, p)
    p = p + 38
    q.unit = q.period
    if q.unit < 10000000 then
      q.unit = 10000000
    end
    q.count_denied, q.aligned, q.tick = q.flags % 2 == 1, q.flags >= 2, 10 ^ q.exponent
    quotas[i] = q
    if q.algorithm == 6 and (now < q.a or now >= q.b) then
      is_outside = true
    end
    if q.algorithm == 5 then
      logs = logs + 1
    end
  end
  for i = 1, quota_count do
    local past = {}
    local count = read('B', input, p)
    p = p + 1
    for j = 1, count do
      local h = {}
      h.limit, h.capacity, h.interval, h.at = read('>I5I6I7I7', input, p)
      p = p + 25
      past[j] = h
    end
    quotas[i].past = past
  end
  if traits % 2 == 1 then
    penalty = {}
    penalty.denials, penalty.within, penalty.block, penalty.max, penalty.forget = read('>HI7I7I7I7', input, p)
  end
  shares_at = p
end
local stride = 1 + logs + dropped

-- The functions of each algorithm, by its number. They work on the state x of a key under the quota q:
--   load(q, x, form, at)  reads the record at that place of `body`, or sets a fresh state; false for a malformed record.
--                         Sets left (units that fit), room (units until saturation), ahead (whether the state is ahead
--                         of the clock), and known_until (the time until which a key with such a record lives at least)
--   fill(q, x)            sets an empty bucket or a full window
--   spend(q, x, units), refund(q, x, units)
--   rewind(q, x)          moves a state that is ahead of the clock back to it
--   write(q, x)           returns the record, and the time until which its key has to live
local body
local load, fill, spend, refund, rewind, write = {}, {}, {}, {}, {}, {}

local function ceil_div(number, divisor)
  local rest = number % divisor
  number = (number - rest) / divisor
  if rest > 0 then
    return number + 1
  end
  return number
end

-- Keys live until the next multiple of a unit, so that their time to live is seldom renewed. The time depends on the
-- record alone, so the script knows it for every record that it finds.
local function lives_until(q, full_us)
  return full_us - full_us % q.unit + q.unit
end

local function floor_div(number, divisor)
  return (number - number % divisor) / divisor
end

local function gcd(a, b)
  while b ~= 0 do
    a, b = b, a % b
  end
  return a
end
