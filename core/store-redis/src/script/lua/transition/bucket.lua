-- A bucket that is refilled continuously, as a debt; see core/rules/src/algorithm/token_bucket.rs.
-- Records: 1 at (7, us) debt (5, us); 2 at (7, ticks) debt (7) limit (5) power of ten of the tick (1).
-- ceil(number * factor / divisor), where number = whole * divisor + rest; exact below 2^53, and above no less than it.
local function scaled(whole, rest, factor, divisor)
  local bit = 1
  while bit <= factor do
    bit = bit * 2
  end
  local quotient, left = 0, 0
  while bit > 1 do
    bit = bit / 2
    quotient, left = quotient * 2, left * 2
    if factor >= bit then
      factor = factor - bit
      quotient, left = quotient + whole, left + rest
    end
    if left >= divisor then
      quotient, left = quotient + floor_div(left, divisor), left % divisor
    end
  end
  if left > 0 then
    quotient = quotient + 1
  end
  return quotient
end

load[1] = function(q, x, form, p)
  local token, rate, tick = q.a, q.b, q.tick
  local now_ticks = floor_div(now, tick)
  x.empty, x.now = q.capacity * token, now_ticks
  local debt, at, saturated = 0, now_ticks, 8 * x.empty
  if form then
    local limit, tick_then, rate_then = q.limit, 1, 1
    local short = rate == 1 and tick == 1
    if form == 1 then
      at, debt = read('>I7I5', body, p + 5)
      if not short then
        limit = 1
      end
    elseif form == 2 then
      local high, low, exponent
      at, high, low, limit, exponent = read('>I7I3I4I5B', body, p + 5)
      if high > 2097152 or (high == 2097152 and low > 0) or limit == 0 or limit > 1000000000000 or exponent > 13 then
        return false
      end
      debt, tick_then = high * 4294967296 + low, 10 ^ exponent
      rate_then = limit / gcd(limit, floor_div(q.period, tick_then))
    else
      return false
    end
    if at * tick_then >= 9007199254740992 then
      return false
    end
    local repaid = ceil_div(debt, rate_then)
    local full_us = (at + repaid) * tick_then
    x.known_until = lives_until(q, full_us)
    if q.limit == 0 then
      return true
    end
    if form == 1 and short or limit == q.limit and tick_then == tick then
      x.ahead = at > now_ticks
    else
      -- Written under other numbers. A state that had run out when they were superseded is dropped.
      for i = #q.past, 1, -1 do
        local h = q.past[i]
        if form == 1 and h.capacity == 1 or form == 2 and h.limit == limit and h.interval == tick_then then
          if full_us <= q.past[#q.past].at then
            debt, repaid = 0, 0
            x.forgotten = true
          end
          break
        end
      end
      x.ahead = not x.forgotten and at * tick_then > now
      local at_now = floor_div(at * tick_then, tick)
      if debt > 0 then
        -- The debt takes as long to repay as before.
        local rest = at * tick_then - at_now * tick
        if tick_then >= tick then
          debt = scaled(repaid * (tick_then / tick), 0, rate, 1)
        else
          local factor = tick / tick_then
          debt = scaled(floor_div(repaid, factor), repaid % factor + rest / tick_then, rate, factor)
        end
      end
      at = at_now
    end
    if debt > saturated then
      debt = saturated
    end
    if at < now_ticks then
      debt = debt - (now_ticks - at) * rate
      if debt < 0 then
        debt = 0
      end
    end
  end
  x.debt, x.left, x.room = debt, 0, floor_div(saturated - debt, token)
  if debt < x.empty then
    x.left = floor_div(x.empty - debt, token)
  end
  return true
end

fill[1] = function(q, x)
  x.now = floor_div(now, q.tick)
  x.debt = q.capacity * q.a
end

spend[1] = function(q, x, units)
  x.debt = x.debt + units * q.a
end

refund[1] = function(q, x, units)
  x.debt = x.debt - units * q.a
  if x.debt < 0 then
    x.debt = 0
  end
end

rewind[1] = function() end

write[1] = function(q, x)
  local debt, at = x.debt, x.now
  if debt == 0 then
    return '', 0
  end
  local full_us = (at + ceil_div(debt, q.b)) * q.tick
  local until_us = lives_until(q, full_us)
  -- Short where every debt fits: the fast path reads one of the two forms.
  if q.b == 1 and q.tick == 1 and 8 * q.capacity * q.a < 1099511627776 then
    return pack('>Bc4I7I5', 1, q.tag, at, debt), until_us
  end
  return pack('>Bc4I7I7I5B', 2, q.tag, at, debt, q.limit, q.exponent), until_us
end
