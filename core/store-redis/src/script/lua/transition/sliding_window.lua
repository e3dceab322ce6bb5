-- Counters of sub-windows; see core/rules/src/algorithm/sliding_window.rs.
-- Record: 5 bytes of a count (1) how many (1) number of the newest sub-window (7), sum of all counts but the oldest (6),
-- then all counts but the newest, newest first.
load[4] = function(q, x, form, p)
  local width, buckets, tick = q.a, q.b, q.tick
  local most = 8 * q.capacity
  local ticks = floor_div(now, tick)
  local current = floor_div(ticks, width)
  local counts = {}
  if form then
    if form ~= 5 then
      return false
    end
    local bytes, length, newest, sum = read('>BBI7I6', body, p + 5)
    if length ~= buckets or newest * width * tick >= 9007199254740992 then
      return false
    end
    x.known_until = lives_until(q, (newest + buckets + 1) * width * tick)
    x.ahead = newest > current
    local shift, format = current - newest, '>I' .. bytes
    -- The newest is what the sum has more than the others.
    for age = 1, buckets - 1 do
      sum = sum - read(format, body, p + 20 + (age - 1) * bytes)
    end
    if sum < 0 then
      return false
    end
    for age = 0, buckets do
      local count = sum
      if age > 0 then
        count = read(format, body, p + 20 + (age - 1) * bytes)
      end
      if count > most then
        count = most
      end
      -- Nothing was counted before the epoch.
      if age <= newest and count > 0 then
        local place = age + shift
        if place < 0 then
          place = 0
        end
        if place <= buckets then
          count = count + (counts[place] or 0)
          if count > most then
            count = most
          end
          counts[place] = count
        end
      end
    end
  end
  if q.capacity == 0 then
    return true
  end
  local used = 0
  for age = 0, buckets - 1 do
    used = used + (counts[age] or 0)
  end
  if counts[buckets] then
    used = used + ceil_div(counts[buckets] * (width - ticks % width), width)
  end
  x.counts, x.current, x.left, x.room = counts, current, q.capacity - used, most - used
  if x.left < 0 then
    x.left = 0
  end
  if x.room < 0 then
    x.room = 0
  end
  return true
end

fill[4] = function(q, x)
  x.counts, x.current = { [0] = q.capacity }, floor_div(floor_div(now, q.tick), q.a)
end

spend[4] = function(q, x, units)
  x.counts[0] = (x.counts[0] or 0) + units
end

refund[4] = function(q, x, units)
  for age = 0, q.b do
    local count = x.counts[age] or 0
    local given_back = count
    if units < count then
      given_back = units
    end
    x.counts[age] = count - given_back
    units = units - given_back
  end
end

rewind[4] = function() end

write[4] = function(q, x)
  local counts, most, sum = x.counts, 0, 0
  for age = 0, q.b do
    counts[age] = counts[age] or 0
    if age < q.b then
      sum = sum + counts[age]
    end
    if age > 0 and counts[age] > most then
      most = counts[age]
    end
  end
  if sum == 0 and counts[q.b] == 0 then
    return '', 0
  end
  local bytes, beyond = 1, 256
  while most >= beyond do
    bytes, beyond = bytes + 1, beyond * 256
  end
  local format = '>' .. string.rep('I' .. bytes, q.b)
  local record = pack('>Bc4BBI7I6', 5, q.tag, bytes, q.b, x.current, sum)
  return record .. pack(format, unpack(counts, 1, q.b)), lives_until(q, (x.current + q.b + 1) * q.a * q.tick)
end
