-- A bucket that gets `step` units at a time; see core/rules/src/algorithm/stepped_bucket.rs.
-- Record: 3 used (6) at (7, us) limit (5).
load[2] = function(q, x, form, p)
  local step, interval = q.a, q.b
  local used, at = 0, now
  if form then
    local limit
    if form ~= 3 then
      return false
    end
    used, at, limit = read('>I6I7I5', body, p + 5)
    if at >= 9007199254740992 or limit == 0 or limit > 1000000000000 then
      return false
    end
    x.known_until = lives_until(q, at + ceil_div(used, step) * (step * q.period / limit))
    if q.limit == 0 then
      return true
    end
    if limit ~= q.limit then
      -- Written under other numbers. A state that had run out when these, or later ones, were superseded is dropped.
      local past, from = q.past, nil
      for i = #past, 1, -1 do
        if past[i].limit == limit then
          from = i
          break
        end
      end
      for i = from or #past + 1, #past do
        local h = past[i]
        local left = used
        if left > 8 * h.capacity then
          left = 8 * h.capacity
        end
        if h.at > at then
          left = left - floor_div(h.at - at, h.interval) * step
        end
        if h.limit > 0 and left <= 0 then
          used = 0
          x.forgotten = true
          break
        end
      end
      if changed_now then
        -- They are superseded just now, or by the next write.
        local part = gcd(limit, q.period)
        local strikes = step / (limit / part)
        if strikes % 1 == 0 and now > at and used <= floor_div(now - at, strikes * (q.period / part)) * step then
          used = 0
          x.forgotten = true
        else
          x.renamed = pack('>Bc4I6I7I5', 3, q.tag, used, at, q.limit)
        end
      end
    end
    x.ahead = not x.forgotten and at > now
    if at > now then
      at = now
    end
  end
  x.used_then = used
  local saturated = 8 * q.capacity
  if used > saturated then
    used = saturated
  end
  local strikes = floor_div(now - at, interval)
  used = used - strikes * step
  if used <= 0 then
    used, at = 0, now
  else
    at = at + strikes * interval
  end
  x.used, x.at, x.left, x.room = used, at, 0, saturated - used
  if used < q.capacity then
    x.left = q.capacity - used
  end
  return true
end

fill[2] = function(q, x)
  x.used, x.at = q.capacity, now
end

spend[2] = function(q, x, units)
  x.used = x.used + units
end

refund[2] = function(q, x, units)
  x.used = x.used - units
  if x.used < 0 then
    x.used = 0
  end
end

-- Only the clock is moved back.
rewind[2] = function(q, x)
  x.used, x.at = x.used_then, now
end

write[2] = function(q, x)
  local used, at = x.used, x.at
  if used == 0 then
    return '', 0
  end
  return pack('>Bc4I6I7I5', 3, q.tag, used, at, q.limit), lives_until(q, at + ceil_div(used, q.a) * q.b)
end
