-- The policy's numbers, 37 bytes for each quota, and what its numbers were before.
local sub = string.sub
local quotas, logs = {}, 0
local how_many, has_main, dropped = read('>BBB', input, numbers + @size)
do
  local p = numbers + @size + 3
  for i = 1, how_many do
    local q = {}
    q.kind, q.flags, q.exponent, q.tag, q.limit, q.capacity, q.a, q.b, q.period = read('>BBBc4I5I5I7I7I6', input, p)
    p = p + 37
    q.unit = q.period
    if q.unit < 10000000 then
      q.unit = 10000000
    end
    q.count_denied, q.aligned, q.tick = q.flags % 2 == 1, q.flags >= 2, 10 ^ q.exponent
    quotas[i] = q
    if q.kind == 5 then
      logs = logs + 1
    end
  end
  for i = 1, how_many do
    local past = {}
    local count = read('B', input, p)
    p = p + 1
    for j = 1, count do
      local h = {}
      h.limit, h.capacity, h.interval, h.at = read('>I5I5I7I7', input, p)
      p = p + 24
      past[j] = h
    end
    quotas[i].past = past
  end
end
local stride = (has_main > 0 and 1 or 0) + logs + dropped

-- How an algorithm works on x, what is known of a key under a quota q:
--   load(q, x, form, at)  reads the record at that place of `body`, or a fresh state; false when it is malformed.
--                         Sets left (units that fit), room (units until saturation), ahead (of the clock),
--                         and known_until (how long the key lives at least that holds such a record)
--   fill(q, x)            an empty bucket, a full window
--   spend, refund(q, x, units), rewind(q, x)
--   write(q, x)           the record, and how long its key has to live
local body
local load, fill, spend, refund, rewind, write = {}, {}, {}, {}, {}, {}

local function over(number, divisor)
  local rest = number % divisor
  number = (number - rest) / divisor
  if rest > 0 then
    return number + 1
  end
  return number
end

-- Keys live until the next multiple of a unit, so that their time to live is seldom renewed. It is a function of the
-- record alone, so that it can be known of a record that is found.
local function lives(q, full_us)
  return full_us - full_us % q.unit + q.unit
end

local function under(number, divisor)
  return (number - number % divisor) / divisor
end
