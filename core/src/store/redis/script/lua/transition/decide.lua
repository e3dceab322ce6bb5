-- The last part of the general transition: decides an entry by all quotas of the policy, all or nothing; see
-- rules/transition.rs.
local CHECK, PEEK, TAKE, CHARGE, REFUND, RESET = 0, 1, 2, 3, 4, 5
-- The forms of records with their lengths; a sliding window's depends on itself.
local LENGTH = { 17, 25, 23, 18 }

-- The places of the records in `body` by their tags, and the number of records; nothing when `body` is malformed.
local function records()
  local places, count, p, length = {}, 0, 1, #body
  while p <= length do
    if p + 15 > length then
      return nil
    end
    local form, tag = read('>Bc4', body, p)
    local size = LENGTH[form]
    if form == 5 then
      local bytes, many = read('BB', body, p + 5)
      if bytes == 0 or bytes > 6 then
        return nil
      end
      size = 20 + bytes * many
    end
    if not size or p + size - 1 > length then
      return nil
    end
    if not places[tag] then
      places[tag] = { form, p, size }
    end
    count, p = count + 1, p + size
  end
  return places, count
end

-- Reads the states of the quotas that share the main key; false when that is malformed.
local function load_main(xs, raw)
  body = raw or ''
  local places, count = records()
  if not places then
    return false
  end
  local until_us = 0
  for i = 1, quota_count do
    local q, x = quotas[i], xs[i]
    if q.algorithm ~= 5 then
      local place = places[q.tag]
      x.kept, x.known_until = '', 0
      if place then
        if not load[q.algorithm](q, x, place[1], place[2]) then
          return false
        end
        count = count - 1
        if x.forgotten then
          count = count + 1
        else
          x.kept = sub(body, place[2], place[2] + place[3] - 1)
        end
      elseif q.limit > 0 then
        load[q.algorithm](q, x)
      end
      if x.known_until > until_us then
        until_us = x.known_until
      end
    end
  end
  -- Whether the next write drops records, and the time until which the key lives at least.
  return true, count > 0, until_us
end

-- The records of all quotas, and the time until which the key has to live.
local function packed(xs)
  local value, until_us = '', 0
  for i = 1, quota_count do
    local q, x = quotas[i], xs[i]
    if q.algorithm ~= 5 then
      local record, needed_us = x.kept, x.known_until
      if x.dirty then
        record, needed_us = write[q.algorithm](q, x)
      end
      value = value .. record
      if needed_us > until_us then
        until_us = needed_us
      end
    end
  end
  return value, until_us
end

local function store_main(key, xs, raw, known_until)
  local value, until_us = packed(xs)
  if value == '' then
    if raw then
      call('DEL', key)
    end
  elseif raw and #raw == #value and (manual or until_us <= known_until) then
    call('SETRANGE', key, '0', value)
  elseif manual then
    call('SET', key, value)
  elseif raw and until_us <= known_until then
    call('SET', key, value, 'KEEPTTL')
  else
    if until_us > 9007199254740992 then
      until_us = 9007199254740992000
    end
    call('SET', key, value, 'PXAT', string.format('%d', ceil_div(until_us, 1000) + 1))
  end
  return value
end

-- Tells the denial caches of other processes that the key may be admitted again. The server may refuse it: no decision
-- depends on it.
local function publish_invalidation(key)
  local main, space = string.match(key, '^((.+):[^:]+:{[^}]*})')
  if main then
    try('PUBLISH', space .. ':invalidations', main)
  end
end

-- The answer for a key of another type than a string. The key stays as it is, and the entry is not decided.
local function foreign(refusal)
  if sub(refusal.err, 1, 9) ~= 'WRONGTYPE' then
    error(refusal)
  end
  return pack('>I6BH', 0, 2, 0) .. string.rep('\0', 26 * logs)
end

-- Decides one entry. Returns the units spent (6), what was found (1; 0 states, 1 a malformed state, 2 another type), the
-- length (2) and the value of the main key before the call, and the views of the logs (26 each).
local function decide(i, op, cost, count, broken)
  local k = (i - 1) * stride
  if op == RESET then
    for at = k + 1, k + stride do
      call('DEL', keys[at])
    end
    publish_invalidation(keys[k + 1])
    return pack('>I6BH', 0, 0, 0) .. string.rep('\0', 26 * logs)
  end
  local xs = {}
  for j = 1, quota_count do
    xs[j] = {}
  end
  local raw, stale, known_until, healed = false, false, 0, 0
  if has_main > 0 then
    k = k + 1
    raw = try('GET', keys[k])
    if raw and raw.err then
      return foreign(raw)
    end
    local good
    good, stale, known_until = load_main(xs, raw)
    if not good or raw == '' then
      -- Not a state: everything counts as used from now on. An empty string is none of ours either.
      healed = 1
      for j = 1, quota_count do
        local q, x = quotas[j], {}
        xs[j], x.kept, x.known_until = x, '', 0
        if q.limit > 0 and q.algorithm ~= 5 then
          fill[q.algorithm](q, x)
          x.dirty = true
        end
      end
      raw = store_main(keys[k], xs, raw, 0)
      for j = 1, quota_count do
        xs[j] = {}
      end
      good, stale, known_until = load_main(xs, raw)
    end
  end
  local main = k
  for j = 1, quota_count do
    local q, x = quotas[j], xs[j]
    if q.algorithm == 5 then
      k = k + 1
      x.key = keys[k]
      if q.limit > 0 and (broken and broken[j] or not load_log(q, x)) then
        if x.foreign then
          return foreign(x.foreign)
        end
        fill[5](q, x)
        x.existed, x.expires, x.dirty, x.length = true, nil, true, 0
        healed = 1
      end
    end
  end

  local left, largest = cost, true
  for j = 1, quota_count do
    local q, x = quotas[j], xs[j]
    if q.limit == 0 then
      left, largest = 0, false
    else
      if x.left < left then
        left = x.left
      end
      if cost > q.capacity then
        largest = false
      end
    end
  end
  local spent, denied = 0, false
  if cost > 0 then
    if op == CHECK then
      if left < cost then
        denied = largest
      elseif count == 1 then
        spent = cost
      else
        left = count * cost
        for j = 1, quota_count do
          if xs[j].left < left then
            left = xs[j].left
          end
        end
        spent = left - left % cost
      end
    elseif op == PEEK then
      denied = largest and left < cost
    elseif op == TAKE then
      spent = left
    end
  end
  local wrote, views = cost > 0 and (op == CHARGE or op == REFUND), ''
  for j = 1, quota_count do
    local q, x = quotas[j], xs[j]
    if q.limit > 0 then
      local algorithm, wanted = q.algorithm, 0
      if cost == 0 or op == PEEK then
        wanted = denied and x.used and x.used + cost - q.capacity or 0
      elseif spent > 0 then
        spend[algorithm](q, x, spent)
        x.dirty = true
      elseif op == CHARGE or denied and q.count_denied then
        local units = cost
        if x.room < units then
          units = x.room
        end
        wanted = denied and algorithm == 5 and x.used + units + cost - q.capacity or 0
        spend[algorithm](q, x, units)
        x.dirty = true
      elseif op == REFUND then
        wanted = algorithm == 5 and x.used - cost or 0
        refund[algorithm](q, x, cost)
        x.dirty = true
      elseif denied or op == TAKE then
        wanted = denied and algorithm == 5 and x.used + cost - q.capacity or 0
        if x.ahead then
          rewind[algorithm](q, x)
          x.dirty = true
        end
      end
      wrote = wrote or x.dirty
      if algorithm == 5 then
        x.view = view(x, wanted)
        if not x.view then
          -- The entries of the log are not in order. Nothing has been written yet.
          broken = broken or {}
          broken[j] = true
          return decide(i, op, cost, count, broken)
        end
      end
    end
    if q.algorithm == 5 then
      views = views .. (x.view or pack('>I6I7I7I6', 0, 0, 0, 0))
    end
  end
  local dirty = wrote and stale
  for j = 1, quota_count do
    local q, x = quotas[j], xs[j]
    if x.dirty then
      if q.algorithm == 5 then
        write[5](q, x)
      else
        dirty = true
      end
    end
  end
  if dirty then
    store_main(keys[main], xs, raw, known_until)
  end
  if wrote and dropped > 0 then
    for at = i * stride - dropped + 1, i * stride do
      call('DEL', keys[at])
    end
  end
  if wrote and op == REFUND then
    publish_invalidation(keys[(i - 1) * stride + 1])
  end
  raw = raw or ''
  return pack('>I6BH', spent, healed, #raw) .. raw .. views
end
return decide
