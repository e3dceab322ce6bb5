-- The last part of the general transition: decides an entry by all quotas of the policy, all or nothing; see
-- core/rules/src/transition.rs.
local CHECK, PEEK, TAKE, CHARGE, REFUND, RESET, RESERVE, COMMIT, CANCEL, RENEW, BLOCK = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
-- The cost of a commit of what was reserved.
local AS_RESERVED = 1099511627775
-- The forms of records with their lengths. A sliding window's depends on itself; forms from 6 on name theirs (3 bytes after the
-- tag), and a record of a form that is not known here is kept.
local LENGTH = { 17, 25, 23, 18 }
local reservations_at, reservations_size, blocks_at, blocks_size, commits_at, commits_size, unknown, unknown_until
-- Whether the state of a quota has a form that is not known here.
local is_newer

-- A record that is not known here. From form 10 on it begins with the time (7, us) until which its key has to live.
local function keep_unknown(form, tag, p, size)
  unknown = unknown .. sub(body, p, p + size - 1)
  if form > 9 then
    unknown_until = math.max(unknown_until, (read('>I7', body, p + 8)))
  end
  for i = 1, quota_count do
    is_newer = is_newer or quotas[i].tag == tag
  end
end

-- The places of the quotas' records in `body` by their tags, and their number; nothing when `body` is malformed.
local function records()
  local places, count, p, length = {}, 0, 1, #body
  reservations_at, blocks_at, commits_at, unknown, unknown_until, is_newer = nil, nil, nil, '', 0, false
  while p <= length do
    if p + 7 > length then
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
    elseif form > 5 then
      size = 8 + read('>I3', body, p + 5)
    end
    if not size or p + size - 1 > length or form > 9 and size < 15 then
      return nil
    end
    if form == 6 and tag == '\0\0\0\0' then
      reservations_at, reservations_size = p, size
    elseif form == 7 and tag == '\0\0\0\0' then
      blocks_at, blocks_size = p, size
    elseif form == 8 and tag == '\0\0\0\0' then
      commits_at, commits_size = p, size
    elseif form > 5 and form ~= 9 then
      keep_unknown(form, tag, p, size)
    else
      places[tag] = places[tag] or { form, p, size }
      count = count + 1
    end
    p = p + size
  end
  return places, count
end

-- Reads the states of the quotas that share the main key, the key's reservations, blocks and commits; false when they are malformed.
local function load_main(xs, raw)
  body = raw or ''
  local places, count = records()
  if not places then
    return false
  end
  local until_us, r, b, c = unknown_until, nil, nil, nil
  if reservations_at then
    r = load_reservations(reservations_at, reservations_size)
    if not r then
      return false
    end
    until_us = r.until_us
  end
  if commits_at then
    c = load_reservations(commits_at, commits_size)
    if not c then
      return false
    end
    until_us = math.max(until_us, c.until_us)
  end
  if blocks_at then
    b = load_blocks(blocks_at, blocks_size)
    if not b then
      return false
    end
  end
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
        if x.forgotten or x.renamed then
          x.kept, count = x.renamed or '', count + 1
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
  -- Whether the next write drops records, the time until which the key lives at least, its reservations, blocks and commits.
  return true, count > 0, until_us, r, b, c
end

-- Stores the records of all quotas, the records of the reservations, blocks and commits, and what is not known here.
local function store_main(key, xs, raw, known_until, beside, until_us)
  local value = ''
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
  value, until_us = value .. beside .. unknown, math.max(until_us, unknown_until)
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

-- Tells the denial caches of other processes that the key may be admitted again, or, with '!' as the mark, their leases that it is
-- blocked. There are 256 channels by a hash of the main key; see keys/channel.rs. The server may refuse it: no decision depends on it.
local function publish_invalidation(key, mark)
  local main, space = string.match(key, '^((.+):[^:]+:{[^}]*})')
  if main then
    try('PUBLISH', space .. ':invalidations:' .. sub(redis.sha1hex(main), 1, 2), main .. mark)
  end
end

-- The answer for a key of another type than a string. The key stays as it is, and the entry is not decided.
local function foreign(refusal)
  if sub(refusal.err, 1, 9) ~= 'WRONGTYPE' then
    error(refusal)
  end
  return pack('>I6BI3', 0, 2, 0) .. string.rep('\0', 15 * logs)
end

-- The answer for a key whose state a later version has written in a form that is not known here. The key stays as it is, and the entry
-- is not decided.
local function newer()
  return pack('>I6BI3', 0, 3, 0) .. string.rep('\0', 15 * logs)
end

-- The arguments of the next entry that concerns a reservation, or blocks.
local function next_hold()
  local ttl, remember, id, after = read('>I6I5Bc0', ARGV[2], holds_at)
  holds_at = after
  return ttl, remember, id
end

-- What a log's explanation of a denial asks about, ascending: how many units have to go until the cost, with what is kept for
-- others, fits beside each amount that is set aside by then, when `charged` units were charged.
local function wanted_units(q, x, cost, charged, r)
  local wanted = {}
  local held = r and levels(r) or { 0 }
  for i = #held, 1, -1 do
    if cost + held[i] <= q.capacity then
      wanted[#wanted + 1] = x.used + charged + cost + held[i] - q.capacity
    end
  end
  return wanted
end

-- Loads an entry: its states, the value of its main key, its reservations, blocks and commits. A malformed state is replaced by one in
-- which everything is used; `broken` are the logs that are known to be malformed. Returns the answer for a key of another type.
local function load_entry(e, broken)
  local k, xs = e.k, {}
  for j = 1, quota_count do
    xs[j] = {}
  end
  local raw = try('GET', keys[k])
  if raw and raw.err then
    return foreign(raw)
  end
  local good
  good, e.stale, e.known_until, e.r, e.b, e.c = load_main(xs, raw)
  if is_newer then
    return newer()
  end
  if not good or raw == '' then
    -- Not a state: everything counts as used from now on. An empty string is none of ours either.
    e.healed, unknown, unknown_until = 1, '', 0
    for j = 1, quota_count do
      local q, x = quotas[j], {}
      xs[j], x.kept, x.known_until = x, '', 0
      if q.limit > 0 and q.algorithm ~= 5 then
        fill[q.algorithm](q, x)
        x.dirty = true
      end
    end
    raw = store_main(keys[k], xs, raw, 0, '', 0)
    for j = 1, quota_count do
      xs[j] = {}
    end
    good, e.stale, e.known_until, e.r, e.b, e.c = load_main(xs, raw)
  end
  e.raw, e.xs = raw, xs
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
        e.healed = 1
      end
    end
  end
end

-- What the quotas leave of a cost beside what is set aside and what is kept for others, and whether they could ever admit it.
local function left_beside(e, cost)
  local op, held, headroom = e.op, e.r and e.r.units or 0, e.headroom
  local left, possible = cost, true
  for j = 1, quota_count do
    local q, x = quotas[j], e.xs[j]
    local capacity = q.most or q.capacity
    if q.algorithm == 8 then
      x.wanted = cost
    elseif q.limit == 0 then
      left = 0
      possible = possible and cost == 0
    else
      x.wanted = cost
      if sharing then
        sharing.see(q, x, e.held)
      end
      if headroom > 0 and (op == CHECK or op == PEEK or op == RESERVE) then
        x.wanted = cost + ceil_div(capacity * headroom, 100)
      end
      x.left = math.max(x.left - (sharing and 0 or held) - (x.wanted - cost), 0)
      if x.left < left then
        left = x.left
      end
      if cost > 0 and x.wanted > capacity then
        possible = false
      end
    end
  end
  return left, possible
end

-- The most reservations that the entry lets the key have.
local function most_reservations(e)
  if e.op ~= RESERVE and (e.op ~= PEEK or slots == 65535) then
    return 1001
  end
  local most = slots < MAX_RESERVATIONS and slots or MAX_RESERVATIONS
  return most - ceil_div(most * e.headroom, 100)
end

-- Decides what an entry spends, whether it is denied, and which record of a reservation it adds.
local function judge(e)
  local op, cost, r = e.op, e.cost, e.r
  if sharing then
    e.held = sharing.held(r)
  end
  local left, possible = left_beside(e, cost)
  local most, alive = most_reservations(e), r and r.alive or 0
  local free, slots_of_group
  if sharing and most <= MAX_RESERVATIONS then
    free, slots_of_group = sharing.slots(e.xs, e.held)
  end
  if free then
    -- As many as would be alive where no groups share the slots.
    most = slots_of_group - ceil_div(slots_of_group * e.headroom, 100)
    alive = slots_of_group - free
  end
  possible = possible and most > 0
  local admits = left >= cost and alive < most
  e.lacks, e.blocked = left < cost, e.b and e.b.ends > now
  if e.blocked then
    left, admits = 0, false
  end
  e.spent, e.possible, e.more_until = 0, possible, 0
  if op >= RESERVE and op ~= BLOCK then
    if op == RESERVE then
      e.brings, e.denied = admits and not e.found, possible and not admits and not e.found
    else
      e.possible, e.brings = true, true
    end
    if op == RESERVE and e.brings or op == RENEW and e.found then
      e.more_until = math.min(now + e.ttl, 9007199254740991)
      e.units = e.found and e.units or cost
      local remember = op == RENEW and e.remembered or e.remember
      e.more = pack_reservation(e.more_until, e.ttl, e.units, remember, e.stored or sharing and e.id .. sharing.tag or e.id)
    end
  elseif op == PEEK then
    e.denied = possible and not admits
  elseif op == CHECK and cost > 0 then
    if left < cost then
      e.denied = possible
    elseif e.count == 1 then
      e.spent = cost
    else
      left = e.count * cost
      for j = 1, quota_count do
        if e.xs[j].left < left then
          left = e.xs[j].left
        end
      end
      e.spent = left - left % cost
    end
  elseif op == TAKE then
    e.spent = left
  end
end

-- Blocks the key, or counts a denial that may. Returns whether the record of blocks changes.
local function change_blocks(e)
  local changes = e.b and e.b.ahead and e.op ~= PEEK
  if e.op == BLOCK then
    e.b = e.b or new_blocks()
    return block(e.b, e.ttl) or changes
  end
  if penalty and e.denied and not e.blocked and e.lacks and e.cost > 0 and e.op ~= PEEK then
    e.b = e.b or new_blocks()
    count_denial(e.b)
    return true
  end
  return changes
end

-- Changes the states of the quotas. Returns the views of the logs; nothing when the entries of a log are not in order, which `broken` then
-- has: nothing has been written yet.
local function change_states(e, broken)
  local op, cost, spent, denied = e.op, e.cost, e.spent, e.denied
  local counts_denied = denied and op ~= PEEK and cost > 0 and not e.blocked
  local decides, views = op == CHECK or op == PEEK or op == RESERVE, ''
  local waits = sharing and denied and op ~= PEEK and not e.blocked
  for j = 1, quota_count do
    local q, x = quotas[j], e.xs[j]
    if q.limit > 0 then
      local algorithm, charged = q.algorithm, 0
      if spent > 0 then
        spend[algorithm](q, x, spent)
        x.dirty = true
      elseif e.charges and sharing and op == COMMIT then
        if algorithm == 7 then
          sharing.settle(q, x, sub(e.stored, -4), cost)
        end
        x.dirty = true
      elseif e.charges or counts_denied and q.count_denied then
        charged = cost < x.room and cost or x.room
        spend[algorithm](q, x, charged)
        x.dirty = true
      elseif e.refunds then
        refund[algorithm](q, x, cost)
        x.dirty = true
      elseif e.brings then
        if sharing and op == RESERVE then
          sharing.set_aside(q, x, cost)
        else
          spend[algorithm](q, x, 0)
        end
        x.dirty = true
      elseif waits and (algorithm == 7 and e.lacks and x.left < cost or algorithm == 8 and not e.lacks) then
        sharing.wait(q, x, cost)
        x.dirty = true
      elseif op ~= PEEK and x.ahead then
        rewind[algorithm](q, x)
        x.dirty = true
      end
      e.wrote = e.wrote or x.dirty
      if algorithm == 5 then
        local wanted
        -- Each quota has a verdict of its own, also where another one can never admit the cost.
        if cost > 0 and (denied or decides and not e.possible) then
          wanted = wanted_units(q, x, x.wanted, charged, e.r)
        elseif e.refunds then
          wanted = { x.used - cost }
        end
        x.view = view(x, wanted)
        if not x.view then
          broken[j] = true
          return nil
        end
      end
    end
    if q.algorithm == 5 then
      views = views .. (x.view or pack('>I6I7H', 0, 0, 0))
    end
  end
  return views
end

-- Writes what has changed: logs, the main key with the records of the key, and nothing of a policy's earlier logs.
local function store_entry(e, blocks)
  local op, r, c = e.op, e.r, e.c
  -- Reservations that have ended are forgotten with everything that is spent.
  local forgets = e.brings or e.charges or e.refunds or e.spent > 0
  local changes = e.more
    or r and (e.found and op ~= RESERVE or forgets and r.ended or op ~= PEEK and r.ahead)
  local remembers = op == COMMIT and e.found and e.remembered > 0 and e.remembered
  local commits = remembers or c and c.ahead and op ~= PEEK
  local wrote = e.wrote or changes or blocks or commits
  local dirty, beside, until_us = changes or blocks or commits or wrote and e.stale, '', 0
  if e.b and wrote then
    beside, until_us = blocks_record(e.b)
    dirty = dirty or blocks_at and beside ~= sub(body, blocks_at, blocks_at + blocks_size - 1)
  end
  for j = 1, quota_count do
    local q, x = quotas[j], e.xs[j]
    if x.dirty then
      if q.algorithm == 5 then
        write[5](q, x)
      else
        dirty = true
      end
    end
  end
  if dirty then
    local reserved, needed_us = '', 0
    if changes then
      local ended = op ~= RESERVE and e.found
      reserved, needed_us = reservations_record(6, r, forgets, ended, e.units, e.more, e.more_until, e.units)
    elseif r then
      reserved, needed_us = sub(body, reservations_at, reservations_at + reservations_size - 1), r.until_us
    end
    until_us = math.max(until_us, needed_us)
    local committed = ''
    if commits then
      committed, needed_us = commits_record(c, remembers, e.stored or e.id)
    elseif c then
      committed, needed_us = sub(body, commits_at, commits_at + commits_size - 1), c.until_us
    end
    until_us = math.max(until_us, needed_us)
    store_main(keys[e.k], e.xs, e.raw, e.known_until, reserved .. beside .. committed, until_us)
  end
  if wrote and dropped > 0 then
    for at = e.i * stride - dropped + 1, e.i * stride do
      call('DEL', keys[at])
    end
  end
end

-- Decides one entry. Returns the units spent (6), what was found (1; 0 states, 1 a malformed state, 2 another type, 3 a later form), the
-- length (3) and the value of the main key before the call, and the views of the logs. With `dry`, for a check or a reserve: returns
-- whether it would be admitted, and writes nothing.
local function decide(i, code, cost, asked, broken, ttl, remember, id, dry)
  local k, op, count, headroom = (i - 1) * stride + 1, code, asked, 0
  if op >= 16 then
    -- On its own: the Lua of miniredis assigns the other two before it calls the function.
    headroom = floor_div(count, 512)
    op, count = op - 16, count % 512
  end
  if op == RESET then
    for at = k, k + stride - 1 do
      call('DEL', keys[at])
    end
    publish_invalidation(keys[k], '')
    return pack('>I6BI3', 0, 0, 0) .. string.rep('\0', 15 * logs)
  end
  if op >= RESERVE and not broken then
    ttl, remember, id = next_hold()
  end
  local e = {
    i = i, k = k, op = op, cost = cost, count = count, headroom = headroom, ttl = ttl, remember = remember, id = id,
    healed = 0, units = 0, remembered = 0, denied = false, brings = false,
  }
  local refusal = load_entry(e, broken)
  if refusal then
    return refusal
  end
  if e.r and op >= RESERVE and op ~= BLOCK then
    e.found, e.units, e.remembered, e.stored = find_reservation(e.r, id)
  end
  if op == RESERVE and e.c and not e.found and find_reservation(e.c, id) then
    -- Its units were charged.
    e.cost, e.remember = 0, REPEATED
  elseif op == COMMIT and e.found and e.remembered == REPEATED then
    e.cost, e.remembered = 0, 0
  elseif op == COMMIT and e.found and cost == AS_RESERVED then
    e.cost = e.units
  end
  judge(e)
  if dry then
    if op == RESERVE then
      return e.brings or e.found ~= nil
    end
    return e.cost == 0 or e.spent > 0
  end
  local blocks = change_blocks(e)
  e.charges = e.cost > 0 and (op == CHARGE or op == COMMIT and e.found)
  e.refunds = op == REFUND and e.cost > 0
  e.wrote = e.charges or e.refunds or e.brings
  broken = broken or {}
  local views = change_states(e, broken)
  if not views then
    return decide(i, code, cost, asked, broken, ttl, remember, id)
  end
  store_entry(e, blocks)
  if e.refunds or op == BLOCK then
    publish_invalidation(keys[k], op == BLOCK and ttl > 0 and '!' or '')
  end
  local raw = e.raw or ''
  return pack('>I6BI3', e.spent, e.healed, #raw) .. raw .. views
end
return decide
