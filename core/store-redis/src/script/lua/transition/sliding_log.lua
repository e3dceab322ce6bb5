-- The time of every admitted unit, in a key of its own; see core/rules/src/algorithm/sliding_log.rs.
-- Value: origin (7, us) bytes of a total w (1) total before the first entry (w), then for each entry: time since the
-- origin (6, us), running total (w). Totals wrap around; only differences count.
-- A short log is read and written as a whole; of a long one only what is needed.
local SHORT = 4096

local function total_bytes(q)
  if 8 * q.capacity < 2147483648 then
    return 4
  end
  return 6
end

-- A log that holds nothing.
local function empty_log(q, x)
  x.bytes = total_bytes(q)
  x.size, x.wrap, x.start, x.entry = 6 + x.bytes, 256 ^ x.bytes, 8 + x.bytes, '>I6I' .. x.bytes
  x.chunk, x.whole, x.length, x.origin, x.before, x.first, x.used = '', true, 0, now, 0, 0, 0
end

-- When an entry was, and the total up to and including it.
local function entry_at(x, at)
  local p = x.start + at * x.size
  local at_us, total
  if p + x.size <= #x.chunk then
    at_us, total = read(x.entry, x.chunk, p + 1)
  else
    local from = string.format('%d', p)
    at_us, total = read(x.entry, call('GETRANGE', x.key, from, string.format('%d', p + x.size - 1)), 1)
  end
  return x.origin + at_us, total
end

local function units_at(x, at)
  local _, total = entry_at(x, at)
  return (total - x.total_before) % x.wrap
end

-- The first entry from x.first on with which there are so many units.
local function entry_with(x, units)
  local low, high = x.first, x.length - 1
  while low < high do
    local middle = floor_div(low + high, 2)
    if units_at(x, middle) >= units then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local function load_log(q, x)
  local chunk = try('GETRANGE', x.key, '0', '4095')
  if chunk.err then
    x.foreign = chunk
    return false
  end
  if chunk == '' then
    empty_log(q, x)
    x.tail, x.total_before, x.newest = nil, 0, 0
  else
    x.existed = true
    if #chunk < 8 then
      return false
    end
    x.origin, x.bytes = read('>I7B', chunk)
    local bytes = x.bytes
    if bytes ~= 4 and bytes ~= 6 or x.origin >= 9007199254740992 then
      return false
    end
    x.size, x.wrap, x.start, x.entry = 6 + bytes, 256 ^ bytes, 8 + bytes, '>I6I' .. bytes
    x.chunk, x.whole = chunk, #chunk < SHORT
    local length = #chunk
    if not x.whole then
      length = call('STRLEN', x.key)
    end
    x.length = (length - x.start) / x.size
    if x.length < 1 or x.length % 1 > 0 then
      return false
    end
    x.before = read('>I' .. bytes, chunk, 9)
    local newest, total = entry_at(x, x.length - 1)
    x.newest = newest
    x.expires = q.period + newest - newest % q.period + q.period
    -- The first that counts. What has expired for the newest entry stays so, though it may still be stored, when the clock goes back.
    local expired_us = math.max(now, newest) - q.period
    local low, high = 0, x.length
    if newest <= expired_us then
      low = high
    else
      high = high - 1
    end
    while low < high do
      local middle = floor_div(low + high, 2)
      if entry_at(x, middle) <= expired_us then
        low = middle + 1
      else
        high = middle
      end
    end
    x.first, x.total_before = low, x.before
    if low > 0 then
      local _, before = entry_at(x, low - 1)
      x.total_before = before
    end
    x.used = (total - x.total_before) % x.wrap
    if low < x.length and (x.used == 0 or x.used > 8796093022207 or newest < entry_at(x, low)) then
      return false
    end
  end
  x.ahead = x.length > 0 and x.newest > now
  x.kept = x.length
  x.left, x.room = q.capacity - x.used, 8 * q.capacity - x.used
  if x.left < 0 then
    x.left = 0
  end
  if x.room < 0 then
    x.room = 0
  end
  return true
end

fill[5] = function(q, x)
  empty_log(q, x)
  x.kept, x.total_before, x.newest, x.ahead = 0, 0, now, false
  x.used, x.tail_at, x.tail = q.capacity, now, q.capacity
  x.left, x.room = 0, 7 * q.capacity
end

-- What the explanation of a log needs: how much counts (6), since when the newest does (7), and the entries with which there are
-- as many units as `wanted` lists, ascending: how many (2), and of each the time (7) and the units (6).
local function view(x, wanted)
  local newest, number, entries, known = 0, 0, '', 0
  if x.used > 0 then
    newest = x.newest
    for i = 1, wanted and #wanted or 0 do
      local units = wanted[i]
      -- An entry that was found before may have as many.
      if units > known and units <= x.used then
        local at, rel = now, x.used
        if x.length > 0 then
          local found = entry_with(x, units)
          at = entry_at(x, found)
          rel = units_at(x, found)
          if rel < units or rel > x.used or at > newest then
            return nil
          end
        end
        number, entries, known = number + 1, entries .. pack('>I7I6', at, rel), rel
      end
    end
  end
  return pack('>I6I7H', x.used, newest, number) .. entries
end

-- Moves what is ahead of the clock back to it.
rewind[5] = function(q, x)
  if x.ahead then
    local low, high = x.first, x.length - 1
    while low < high do
      local middle = floor_div(low + high, 2)
      if entry_at(x, middle) >= now then
        high = middle
      else
        low = middle + 1
      end
    end
    x.kept, x.tail_at, x.tail = low, now, x.used
  end
end

spend[5] = function(q, x, units)
  rewind[5](q, x)
  if not x.tail and x.length > x.first and x.newest == now then
    x.kept = x.length - 1
    x.tail_at, x.tail = now, x.used
  elseif not x.tail and units > 0 then
    x.tail_at, x.tail = now, x.used
  end
  if x.tail then
    x.tail = x.tail + units
  end
end

refund[5] = function(q, x, units)
  rewind[5](q, x)
  local left = x.used - units
  if left <= 0 then
    x.kept, x.tail = x.first, nil
  elseif x.length == 0 then
    x.tail = left
  else
    local found = entry_with(x, left)
    if found < x.kept then
      x.kept, x.tail_at, x.tail = found, entry_at(x, found), left
    else
      x.tail = left
    end
  end
end

-- Writes the log. Its tail holds the units up to it, counted from those that have expired.
write[5] = function(q, x)
  local key, live = x.key, x.kept - x.first
  if live <= 0 and not x.tail then
    if x.existed then
      call('DEL', key)
    end
    return
  end
  if not x.tail and x.kept == x.length and not x.whole and x.first * 4 <= x.length then
    return
  end
  local newest, tail = 0, ''
  if x.tail then
    newest = x.tail_at
  else
    newest = entry_at(x, x.kept - 1)
  end
  local expires = q.period + newest - newest % q.period + q.period
  local renew = not manual and (not x.existed or expires > (x.expires or 0))
  local until_ms = renew and string.format('%d', ceil_div(expires, 1000) + 1)
  local bytes = total_bytes(q)
  if bytes < x.bytes and (live > 0 or x.tail and x.tail >= 2147483648) then
    bytes = x.bytes
  end
  local origin = x.origin
  if live <= 0 then
    origin = newest
  end
  local value
  if live > 0 and bytes ~= x.bytes or newest < origin or newest - origin >= 281474976710656 then
    -- Everything is counted anew.
    origin = entry_at(x, x.first)
    local entries, format = {}, '>I6I' .. bytes
    for at = x.first, x.kept - 1 do
      entries[#entries + 1] = pack(format, entry_at(x, at) - origin, units_at(x, at))
    end
    if x.tail then
      entries[#entries + 1] = pack(format, newest - origin, x.tail)
    end
    value = pack('>I7BI' .. bytes, origin, bytes, 0) .. table.concat(entries)
  else
    local entry = x.entry
    local before = x.total_before
    if live <= 0 then
      entry, before = '>I6I' .. bytes, 0
    end
    if x.tail then
      tail = pack(entry, newest - origin, (before + x.tail) % 256 ^ bytes)
    end
    -- Entries that have expired may stay only while the newest entry, which is spent now, tells that they have.
    local in_order = x.first == 0 or x.tail_at == now and x.newest <= now
    if x.existed and not x.whole and live > 0 and x.first * 4 <= x.length and in_order then
      -- Long, and little of it has expired: written in place.
      if x.kept == x.length and x.tail then
        call('APPEND', key, tail)
        if renew then
          call('PEXPIREAT', key, until_ms)
        end
        return
      elseif x.kept == x.length - 1 and x.tail then
        call('SETRANGE', key, string.format('%d', x.start + x.kept * x.size), tail)
        if renew then
          call('PEXPIREAT', key, until_ms)
        end
        return
      end
    end
    local entries = ''
    if live > 0 then
      local from, to = x.start + x.first * x.size, x.start + x.kept * x.size
      if x.whole then
        entries = sub(x.chunk, from + 1, to)
      else
        entries = call('GETRANGE', key, string.format('%d', from), string.format('%d', to - 1))
      end
    end
    value = pack('>I7BI' .. bytes, origin, bytes, before) .. entries .. tail
  end
  if manual then
    call('SET', key, value)
  elseif renew then
    call('SET', key, value, 'PXAT', until_ms)
  else
    call('SET', key, value, 'KEEPTTL')
  end
end
