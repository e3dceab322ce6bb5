-- The reservations of a key; see rules/reservation/.
-- Record: 6 tag (4, zero) length (3) number (2), then for each: end (7, us) ttl (5, us) units (5) length of the id (1) id.
-- All are read with one call, as four values for each: end, ttl, units, id.
local EACH, MAX_RESERVATIONS = 'I7I5I5Bc0', 1000

-- Reads the record of that size at that place of `body`; nothing when it is malformed.
local function load_reservations(at, size)
  local number = size > 9 and read('>H', body, at + 8) or 0
  if number == 0 or number > MAX_RESERVATIONS or size < 10 + 19 * number then
    return nil
  end
  local list = { pcall(read, '>' .. string.rep(EACH, number), body, at + 10) }
  if not list[1] or list[4 * number + 2] ~= at + size then
    return nil
  end
  local r = { list = list, last = 4 * number - 2, from = at + 10, units = 0, alive = 0, until_us = 0 }
  for p = 2, r.last, 4 do
    local ends, latest, length = list[p], now + list[p + 1], #list[p + 3]
    if ends >= 9007199254740992 or length == 0 or length > 64 then
      return nil
    end
    if ends > r.until_us then
      r.until_us = ends
    end
    -- A clock that went back lengthens no reservation.
    if ends > latest then
      ends, list[p], r.ahead = latest, latest, true
    end
    if ends > now then
      r.units, r.alive = r.units + list[p + 2], r.alive + 1
    else
      r.ended = true
    end
  end
  -- The time until which a key with these reservations lives at least.
  r.until_us = r.until_us - r.until_us % 10000000 + 10000000
  return r
end

-- The place of the reservation with this id in the list, if it counts.
local function find_reservation(r, id)
  for p = 2, r and r.last or 0, 4 do
    if r.list[p + 3] == id and r.list[p] > now then
      return p
    end
  end
end

local function pack_reservation(ends, ttl, units, id)
  return pack('>I7I5I5Bc0', ends, ttl, units, #id, id)
end

-- The record without the reservation at the place `gone` and, with `brings`, without those that have ended; `more` is one to
-- add. Also returns the time until which the key has to live.
local function reservations_record(r, brings, gone, more, more_until)
  local parts, number, until_us = {}, 0, 0
  if r then
    local list = r.list
    local start, p = r.from, r.from
    for place = 2, r.last, 4 do
      local ends, id = list[place], list[place + 3]
      local after = p + 18 + #id
      if place == gone or brings and ends <= now then
        parts[#parts + 1] = sub(body, start, p - 1)
        start = after
      else
        number = number + 1
        if ends > until_us then
          until_us = ends
        end
        if r.ahead then
          parts[#parts + 1] = pack_reservation(ends, list[place + 1], list[place + 2], id)
          start = after
        end
      end
      p = after
    end
    parts[#parts + 1] = sub(body, start, p - 1)
  end
  if more then
    parts[#parts + 1], number = more, number + 1
    if more_until > until_us then
      until_us = more_until
    end
  end
  if number == 0 then
    return '', 0
  end
  local record = table.concat(parts)
  local length = #record + 2
  until_us = until_us - until_us % 10000000 + 10000000
  return pack('>BI4I3H', 6, 0, length, number) .. record, until_us
end

-- How much is set aside from each of the ends on, beginning with now, where fewer than `most` reservations count: what a log's
-- explanation asks about.
local function levels(r, most)
  local list, ends = r.list, {}
  for p = 2, r.last, 4 do
    if list[p] > now then
      ends[#ends + 1] = p
    end
  end
  table.sort(ends, function(a, b)
    return list[a] < list[b]
  end)
  local units, alive, found = r.units, r.alive, {}
  for i = 0, #ends do
    if i > 0 then
      units, alive = units - list[ends[i] + 2], alive - 1
    end
    if alive < most and (i == #ends or i == 0 or list[ends[i + 1]] > list[ends[i]]) then
      found[#found + 1] = units
    end
  end
  return found
end
