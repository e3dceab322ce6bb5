-- A counter that starts anew every period; see core/rules/src/algorithm/fixed_window.rs.
-- Record: 4 count (6) start (7, us).
local function start_us(q)
  if q.aligned then
    return now - now % q.period
  end
  return now
end

load[3] = function(q, x, form, p)
  local count, start = 0, 0
  if form then
    if form ~= 4 then
      return false
    end
    count, start = read('>I6I7', body, p + 5)
    if start >= 9007199254740992 then
      return false
    end
    x.known_until = start + q.period
    if q.capacity == 0 then
      return true
    end
  end
  x.ahead = start > now
  if count == 0 or start <= now and now - start >= q.period then
    count, start = 0, start_us(q)
  elseif start > now then
    start = start_us(q)
  end
  x.count, x.start, x.left, x.room = count, start, q.capacity - count, 8 * q.capacity - count
  if x.left < 0 then
    x.left = 0
  end
  if x.room < 0 then
    x.room = 0
  end
  return true
end

fill[3] = function(q, x)
  x.count, x.start = q.capacity, start_us(q)
end

spend[3] = function(q, x, units)
  x.count = x.count + units
end

refund[3] = function(q, x, units)
  x.count = x.count - units
  if x.count < 0 then
    x.count = 0
  end
end

rewind[3] = function() end

write[3] = function(q, x)
  if x.count == 0 then
    return '', 0
  end
  return pack('>Bc4I6I7', 4, q.tag, x.count, x.start), x.start + q.period
end
