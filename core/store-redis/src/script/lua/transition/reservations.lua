-- The reservations of a key, and its commits that are remembered; see rules/reservation/.
-- Record: 6 tag (4, zero) length (3), then number (2), no reservation was made later than this (7, us), none ends earlier (7, us),
-- none ends later (7, us), sum of the units (7), and for each: end (7, us) ttl (5, us) units (5) how long its commit is remembered
-- (5, us) length of the id (1) id. Commits have the tag 8, and no units.
-- While none has ended and the clock has not gone back behind any, the numbers in front tell everything that a decision needs.
local EACH, HEAD, MAX_RESERVATIONS = 'I7I5I5I5Bc0', 38, 1000
-- What a reservation has for the time that its commit is remembered when its id was committed before.
local REPEATED = 1099511627775

-- Reads all reservations with one call, as five values for each: end, ttl, units, how long its commit is remembered, id. False when
-- they are malformed.
local function parse_reservations(r)
  local number = r.number
  local list = { pcall(read, '>' .. string.rep(EACH, number), body, r.from) }
  if not list[1] or list[5 * number + 2] ~= r.to then
    return false
  end
  r.list, r.last_place = list, 5 * number - 3
  for p = 2, r.last_place, 5 do
    local length = #list[p + 4]
    if list[p] >= 9007199254740992 or length == 0 or length > 68 then
      return false
    end
  end
  return true
end

-- Reads the record of that size at that place of `body`; nothing when it is malformed.
local function load_reservations(at, size)
  local number, made, first, last, units = 0, 0, 0, 0, 0
  if size >= HEAD then
    number, made, first, last, units = read('>HI7I7I7I7', body, at + 8)
  end
  if number == 0 or number > MAX_RESERVATIONS or size < HEAD + 24 * number or last >= 9007199254740992 then
    return nil
  end
  local r = { number = number, from = at + HEAD, to = at + size, made = made, first = first, last = last }
  -- The time until which a key with these reservations lives at least.
  r.until_us = last - last % 10000000 + 10000000
  if made <= now and first > now then
    r.units, r.alive = units, number
    return r
  end
  if not parse_reservations(r) then
    return nil
  end
  local list, alive = r.list, 0
  units = 0
  for p = 2, r.last_place, 5 do
    local ends, latest = list[p], now + list[p + 1]
    -- A clock that went back lengthens no reservation.
    if ends > latest then
      ends, list[p], r.ahead = latest, latest, true
    end
    if ends > now then
      units, alive = units + list[p + 2], alive + 1
    else
      r.ended = true
    end
  end
  r.units, r.alive = units, alive
  return r
end

if sharing then
  sharing.parse = parse_reservations
end

-- The place in `body` of the reservation with this id, if it counts, its units, how long its commit is remembered, and its id as it is
-- stored: with the tag of its group, where groups share the policy.
local function find_reservation(r, id)
  local length = sharing and #id + 4 or #id
  local wanted, p, q = string.char(length) .. id, r.from, r.from
  while true do
    p = string.find(body, wanted, p, true)
    if not p or p >= r.to then
      return nil
    end
    -- The bytes may also be a part of a longer id.
    while q < p - 22 do
      q = q + 23 + (string.byte(body, q + 22) or 0)
    end
    if q == p - 22 then
      local ends, ttl, units, remember = read('>I7I5I5I5', body, q)
      if math.min(ends, now + ttl) > now then
        return q, units, remember, sub(body, q + 23, q + 22 + length)
      end
      return nil
    end
    p = p + 1
  end
end

local function pack_reservation(ends, ttl, units, remember, id)
  return pack('>I7I5I5I5Bc0', ends, ttl, units, remember, #id, id)
end

-- The record, of this form, without the reservation at the place `gone`, which has `gone_units`, and, with `brings`, without those that have
-- ended; `more` is one to add. Also returns the time until which the key has to live.
local function reservations_record(form, r, brings, gone, gone_units, more, more_until, more_units)
  local number, made, first, last, units, entries = 0, 0, 9007199254740991, 0, 0, ''
  if r and not r.list then
    number, made, first, last, units = r.number, r.made, r.first, r.last, r.units
    if gone then
      number, units = number - 1, units - gone_units
      entries = sub(body, r.from, gone - 1) .. sub(body, gone + 23 + string.byte(body, gone + 22), r.to - 1)
    else
      entries = sub(body, r.from, r.to - 1)
    end
  elseif r then
    local list, parts, p = r.list, {}, r.from
    for place = 2, r.last_place, 5 do
      local ends, ttl, id = list[place], list[place + 1], list[place + 4]
      if p ~= gone and not (brings and ends <= now) then
        number, units = number + 1, units + list[place + 2]
        made, first, last = math.max(made, ends - ttl), math.min(first, ends), math.max(last, ends)
        parts[number] = pack_reservation(ends, ttl, list[place + 2], list[place + 3], id)
      end
      p = p + 23 + #id
    end
    entries = table.concat(parts)
  end
  if more then
    number, units, entries = number + 1, units + more_units, entries .. more
    made, first, last = math.max(made, now), math.min(first, more_until), math.max(last, more_until)
  end
  if number == 0 then
    return '', 0
  end
  local head = pack('>BI4I3HI7I7I7I7', form, 0, #entries + HEAD - 8, number, made, first, last, units)
  return head .. entries, last - last % 10000000 + 10000000
end

-- The place in `body` of the commit that would be forgotten first.
local function first_commit(c)
  local first, at, p = nil, nil, c.from
  if c.list or parse_reservations(c) then
    for place = 2, c.last_place, 5 do
      local ends = c.list[place]
      if ends > now and (not first or ends < first) then
        first, at = ends, p
      end
      p = p + 23 + #c.list[place + 4]
    end
  end
  return at
end

-- The record of the commits with one more, where there is a time for which it is remembered, and the time until which the key has to
-- live. Where there are as many as a key may have, the one that would be forgotten first makes room.
local function commits_record(c, remember, id)
  if not remember then
    return reservations_record(8, c, false, nil, 0)
  end
  local ends = math.min(now + remember, 9007199254740991)
  local gone = c and c.alive >= MAX_RESERVATIONS and first_commit(c) or nil
  return reservations_record(8, c, true, gone, 0, pack_reservation(ends, remember, 0, 0, id), ends, 0)
end

-- How much is set aside from each of the ends on, beginning with now: what a log's explanation asks about.
local function levels(r)
  if not r.list and not parse_reservations(r) then
    return { r.units }
  end
  local list, ends = r.list, {}
  for p = 2, r.last_place, 5 do
    if list[p] > now then
      ends[#ends + 1] = p
    end
  end
  table.sort(ends, function(a, b)
    return list[a] < list[b]
  end)
  local units, found = r.units, {}
  for i = 0, #ends do
    if i > 0 then
      units = units - list[ends[i] + 2]
    end
    if i == 0 or i == #ends or list[ends[i + 1]] > list[ends[i]] then
      found[#found + 1] = units
    end
  end
  return found
end
