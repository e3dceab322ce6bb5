-- A counter that starts anew with each window by the calendar, which the call has: from a to b; see core/rules/src/quota/calendar.rs.
-- Record: that of a fixed window.
load[6] = function(q, x, form, p)
  local count, start = 0, 0
  if form then
    if form ~= 4 then
      return false
    end
    count, start = read('>I6I7', body, p + 5)
    if start >= 9007199254740992 then
      return false
    end
    x.known_until = start < q.a and q.a or q.b
    if q.capacity == 0 then
      return true
    end
  end
  x.ahead = start > now
  if count == 0 or start < q.a or start > now then
    if start < q.a then
      count = 0
    end
    start = q.a
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

fill[6] = function(q, x)
  x.count, x.start = q.capacity, q.a
end

spend[6] = function(q, x, units)
  x.count = x.count + units
end

refund[6] = function(q, x, units)
  x.count = x.count - units
  if x.count < 0 then
    x.count = 0
  end
end

rewind[6] = function() end

write[6] = function(q, x)
  if x.count == 0 then
    return '', 0
  end
  return pack('>Bc4I6I7', 4, q.tag, x.count, x.start), q.b
end
