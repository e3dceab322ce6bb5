-- A bucket that groups share, and, as number 8, the claims of groups that share a quota of concurrency; see
-- core/rules/src/algorithm/grouped.rs.
-- Record: 9 tag length (3) at (7, ticks) power of ten of the tick (1) limit (5) scale of the order (6) borrowed debt (7) number of groups
-- (1), and for each: tag (4) own debt (7) rate (5) debt towards its most (7) rate of its most (5) place in the order (7) claim (5) end of the
-- claim (7, us).
local CLAIM, MAX_PLACE, MAX_SLOTS, PART = 1000000, 35184372088832, 1000, 'c4I7I5I7I5I7I5I7'

-- The arguments after those of the quotas: the scale of the order (6), the places of the group of the call and of everyone else's (1
-- each), the number of groups (1), and for each quota and group: tag (4) weight (1) rate (5) burst (6) rate of its most (5) most (6)
-- minimum (5).
sharing = {}
do
  local scale, own, others, many = read('>I6BBB', input, shares_at)
  local at = shares_at + 9
  for i = 1, quota_count do
    local q, sum = quotas[i], 0
    q.scale, q.own, q.others, q.shares, q.group_at = scale, own + 1, others + 1, {}, {}
    for j = 1, many do
      local s = {}
      s.tag, s.weight, s.rate, s.burst, s.top_rate, s.top_burst, s.minimum = read('>c4BI5I6I5I6I5', input, at)
      at = at + 32
      sum = sum + s.burst
      q.shares[j], q.group_at[s.tag] = s, j
    end
    q.lent = q.capacity - sum
    local s = q.shares[q.own]
    q.most = math.min(s.burst + q.lent, s.top_burst)
    sharing.tag = s.tag
  end
end

-- How long a claim lasts, under a limit and a tick.
local function claim_us(q, units, limit, tick)
  return CLAIM + ceil_div(units * floor_div(q.period, tick), math.max(limit, 1)) * tick
end

local function saturated(q)
  return 8 * q.capacity * q.a
end

local function place_bounded(place)
  return math.max(-MAX_PLACE, math.min(place, MAX_PLACE))
end

-- A debt in ticks of another length.
local function in_ticks(debt, from, to)
  if from >= to then
    return debt * (from / to)
  end
  return ceil_div(debt, to / from)
end

load[7] = function(q, x, form, p)
  local unit, tick = q.a, q.tick
  x.at, x.borrowed, x.groups = floor_div(now, tick), 0, {}
  for j = 1, #q.shares do
    x.groups[j] = { own = 0, top = 0, place = 0, claim = 0, ends = 0 }
  end
  if form then
    local at, exponent, limit, scale, borrowed, count = read('>I7BI5I6I7B', body, p + 8)
    if exponent > 13 or limit > 1000000000000 or borrowed > 9007199254740992 then
      return false
    end
    local tick_then = 10 ^ exponent
    if at * tick_then >= 9007199254740992 then
      return false
    end
    local passed = math.max(floor_div(now, tick_then) - at, 0)
    local repaid, adopted, longest = 0, 0, 0
    x.ahead = at > floor_div(now, tick_then)
    x.known_until = 0
    p = p + 35
    for _ = 1, count do
      local tag, own, rate, top, top_rate, place, claim, ends = read('>' .. PART, body, p)
      p = p + 47
      place = place - 2 * MAX_PLACE
      if own > 9007199254740992 or top > 9007199254740992 or math.abs(place) > MAX_PLACE or ends >= 9007199254740992 then
        return false
      end
      if rate > 0 then
        longest = math.max(longest, ceil_div(own, rate))
      end
      if top_rate > 0 then
        longest = math.max(longest, ceil_div(top, top_rate))
      end
      x.known_until = math.max(x.known_until, ends)
      local paid = math.min(own, rate * passed)
      repaid, own, top = repaid + paid, own - paid, math.max(top - top_rate * passed, 0)
      local latest = now + claim_us(q, claim, limit, tick_then)
      if ends > latest then
        ends, x.ahead = latest, true
      end
      local j = q.group_at[tag]
      local s, g = q.shares[j], x.groups[j]
      if not s or s.rate == 0 then
        adopted, own = adopted + in_ticks(own, tick_then, tick), 0
      end
      if s then
        local waits = ends > now and scale == q.scale
        g.own = math.min(in_ticks(own, tick_then, tick), saturated(q))
        g.top = s.top_rate > 0 and math.min(in_ticks(top, tick_then, tick), saturated(q)) or 0
        g.place = scale == q.scale and place or 0
        g.claim = waits and claim or 0
        g.ends = waits and ends or 0
      end
    end
    -- No debt is repaid later than this.
    local last = (at + longest + (limit > 0 and ceil_div(borrowed, limit) or 0)) * tick_then
    x.known_until = lives_until(q, math.max(x.known_until, last))
    borrowed = math.max(borrowed - math.max(limit * passed - repaid, 0), 0)
    x.borrowed = math.min(in_ticks(borrowed, tick_then, tick) + adopted, saturated(q))
    local used = x.borrowed > 0
    for _, g in ipairs(x.groups) do
      used = used or g.own > 0 or g.top > 0 or g.ends > now
    end
    if not used then
      for _, g in ipairs(x.groups) do
        g.place, g.claim, g.ends = 0, 0, 0
      end
    end
  end
  if q.limit == 0 then
    return true
  end
  -- What is left is computed when what is set aside is known.
  x.left, x.room = 0, 0
  return true
end

local function own_left(q, borrower, s)
  return floor_div(math.max(s.burst * q.a - borrower.own, 0), q.a)
end

-- Adds units to what is used: to the group's own, and what does not fit there to what is borrowed, which is returned.
local function debit(q, x, j, units)
  local s, g = q.shares[j], x.groups[j]
  local own = math.min(units, own_left(q, g, s))
  local most = floor_div(math.max(saturated(q) - x.borrowed, 0), q.a)
  local borrowed = math.min(units - own, most)
  g.own, x.borrowed = g.own + own * q.a, x.borrowed + borrowed * q.a
  if s.top_rate > 0 then
    g.top = math.min(g.top + (own + borrowed) * q.a, saturated(q))
  end
  return borrowed
end

-- The bucket as it is seen when what is set aside counts as used.
local function seen_beside(q, x, held)
  local seen = { borrowed = x.borrowed, groups = {} }
  for j, g in ipairs(x.groups) do
    seen.groups[j] = { own = g.own, top = g.top, place = g.place, claim = g.claim, ends = g.ends }
  end
  for j = 1, #q.shares do
    debit(q, seen, j, held and held.units[j] or 0)
  end
  return seen
end

-- The units that the group of the call has left.
local function group_left(q, x)
  local s, g = q.shares[q.own], x.groups[q.own]
  local ahead, most = 0, floor_div(q.lent, 2 * #q.shares)
  for j, other in ipairs(x.groups) do
    if other.ends > now and other.place < g.place then
      local behind = floor_div((g.place - other.place) * q.shares[j].weight, q.scale)
      ahead = ahead + math.max(other.claim, math.min(behind, most))
    end
  end
  local lent = math.max(floor_div(math.max(q.lent * q.a - x.borrowed, 0), q.a) - ahead, 0)
  local top = q.capacity
  if s.top_rate > 0 then
    top = floor_div(math.max(s.top_burst * q.a - g.top, 0), q.a)
  end
  return math.min(own_left(q, g, s) + lent, top, q.most)
end

-- Sets what is left beside what is set aside, which the state keeps for what is spent.
function sharing.see(q, x, held)
  if q.algorithm == 7 and q.limit > 0 then
    x.held = held
    x.left = group_left(q, seen_beside(q, x, held))
    x.room = own_left(q, x.groups[q.own], q.shares[q.own]) + floor_div(math.max(saturated(q) - x.borrowed, 0), q.a)
  end
end

-- The group has got what it asked for.
local function serve(q, x, borrowed)
  local g = x.groups[q.own]
  g.claim, g.ends = 0, math.min(g.ends, now + CLAIM)
  if borrowed == 0 then
    return
  end
  local start = g.place
  g.place = start + math.min(borrowed * (q.scale / q.shares[q.own].weight), 2 * MAX_PLACE)
  for j, other in ipairs(x.groups) do
    other.place = other.place - math.max(start, 0)
    if j ~= q.own and other.ends <= now then
      other.place = math.max(other.place, 0)
    end
    other.place = place_bounded(other.place)
  end
end

fill[7] = function(q, x)
  load[7](q, x)
  x.borrowed = q.lent * q.a
  for j, s in ipairs(q.shares) do
    x.groups[j].own = s.burst * q.a
  end
end

spend[7] = function(q, x, units)
  if units == 0 then
    return
  end
  local borrowed = debit(q, seen_beside(q, x, x.held), q.own, units)
  debit(q, x, q.own, units)
  serve(q, x, borrowed)
end

-- Units are set aside for the group.
function sharing.set_aside(q, x, units)
  if q.algorithm == 7 and units > 0 and q.limit > 0 then
    serve(q, x, debit(q, seen_beside(q, x, x.held), q.own, units))
  elseif q.algorithm == 8 then
    x.groups[q.own].claim, x.groups[q.own].ends = 0, 0
  end
end

-- The group was denied units, or a slot.
function sharing.wait(q, x, units)
  local g, s = x.groups[q.own], q.shares[q.own]
  if q.algorithm == 8 then
    g.claim, g.ends = 1, math.min(now + CLAIM, 9007199254740991)
    return
  end
  local seen = seen_beside(q, x, x.held)
  local top = math.max(s.top_burst * q.a - seen.groups[q.own].top, 0)
  if s.top_rate == 0 or units * q.a <= top then
    g.claim = math.max(units - own_left(q, seen.groups[q.own], s), 0)
    g.ends = math.min(now + claim_us(q, g.claim, q.limit, q.tick), 9007199254740991)
  end
end

-- Charges what a reservation of the group with this tag has spent.
function sharing.settle(q, x, tag, units)
  debit(q, x, q.group_at[tag] or q.others, units)
end

refund[7] = function(q, x, units)
  local g, debt = x.groups[q.own], math.min(units * q.a, saturated(q))
  g.top = math.max(g.top - debt, 0)
  local own = math.min(debt, g.own)
  g.own, x.borrowed = g.own - own, math.max(x.borrowed - (debt - own), 0)
end

rewind[7] = function() end

write[7] = function(q, x)
  local parts, count, longest, ends = '', 0, 0, 0
  for j, g in ipairs(x.groups) do
    local s = q.shares[j]
    if g.own > 0 or g.top > 0 or g.place ~= 0 or g.claim > 0 or g.ends > 0 then
      count = count + 1
      parts = parts .. pack('>' .. PART, s.tag, g.own, s.rate, g.top, s.top_rate, g.place + 2 * MAX_PLACE, g.claim, g.ends)
      ends = math.max(ends, g.ends)
      if s.rate > 0 then
        longest = math.max(longest, ceil_div(g.own, s.rate))
      end
      if s.top_rate > 0 then
        longest = math.max(longest, ceil_div(g.top, s.top_rate))
      end
    end
  end
  if count == 0 and x.borrowed == 0 then
    return '', 0
  end
  local scale, limit, exponent = q.scale, q.limit, q.exponent
  if q.algorithm == 8 then
    scale, limit, exponent = 0, 0, 0
  end
  local last = (x.at + longest + (limit > 0 and ceil_div(x.borrowed, limit) or 0)) * q.tick
  local head = pack('>Bc4I3I7BI5I6I7B', 9, q.tag, 27 + 47 * count, x.at, exponent, limit, scale, x.borrowed, count)
  return head .. parts, lives_until(q, math.max(last, ends))
end

load[8] = function(q, x, form, p)
  x.at, x.borrowed, x.groups = 0, 0, {}
  for j = 1, #q.shares do
    x.groups[j] = { own = 0, top = 0, place = 0, claim = 0, ends = 0 }
  end
  x.left, x.room, x.known_until = 9007199254740991, 9007199254740991, x.known_until or 0
  if form then
    local at, exponent, _, _, _, count = read('>I7BI5I6I7B', body, p + 8)
    if exponent > 13 or at * 10 ^ exponent >= 9007199254740992 then
      return false
    end
    p = p + 35
    for _ = 1, count do
      local tag, own, _, top, _, place, claim, ends = read('>' .. PART, body, p)
      p = p + 47
      if own > 9007199254740992 or top > 9007199254740992 or math.abs(place - 2 * MAX_PLACE) > MAX_PLACE or ends >= 9007199254740992 then
        return false
      end
      x.known_until = math.max(x.known_until, ends)
      if ends > now + CLAIM then
        ends, x.ahead = now + CLAIM, true
      end
      local g = x.groups[q.group_at[tag]]
      if g and ends > now then
        g.claim, g.ends = claim, ends
      end
    end
    x.known_until = lives_until(q, x.known_until)
  end
  return true
end

fill[8] = function(q, x)
  load[8](q, x)
end

spend[8] = function() end
refund[8] = spend[8]
rewind[8] = spend[8]
write[8] = write[7]

-- What the groups have set aside: units and numbers of reservations.
function sharing.held(r)
  local q, held = quotas[1], { units = {}, alive = {} }
  for j = 1, #q.shares do
    held.units[j], held.alive[j] = 0, 0
  end
  if r and (r.list or sharing.parse(r)) then
    for place = 2, r.last_place, 5 do
      if r.list[place] > now then
        local id = r.list[place + 4]
        local j = #id > 4 and q.group_at[sub(id, -4)] or q.others
        held.units[j], held.alive[j] = held.units[j] + r.list[place + 2], held.alive[j] + 1
      end
    end
  end
  return held
end

-- The slots that are left to the group of the call, and the most that it can have; nothing where the groups share none.
function sharing.slots(xs, held)
  local q, x
  for j = 1, quota_count do
    if quotas[j].algorithm == 8 then
      q, x = quotas[j], xs[j]
    end
  end
  if not q then
    return nil
  end
  local function place(j)
    return (held.alive[j] - q.shares[j].minimum) * (q.scale / q.shares[j].weight)
  end
  local free, kept, ahead = q.capacity, 0, 0
  for j = 1, #q.shares do
    free = free - held.alive[j]
  end
  free = math.max(free, 0)
  for j, s in ipairs(q.shares) do
    local g, alive = x.groups[j], held.alive[j]
    if j ~= q.own and alive < s.burst then
      kept = kept + s.burst - alive
    elseif j ~= q.own and g.ends > now and place(j) < place(q.own) then
      ahead = ahead + g.claim
    end
  end
  local s, alive = q.shares[q.own], held.alive[q.own]
  local own = math.min(math.max(s.burst - alive, 0), free)
  return math.min(math.max(own, free - kept - ahead, 0), math.max(s.top_burst - alive, 0)), q.most
end
