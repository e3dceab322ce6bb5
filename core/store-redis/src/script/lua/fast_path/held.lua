-- Reserves, commits, and checks of a key with reservations, where all of its reservations count, the clock is not behind any, and the
-- numbers in front of them suffice for a decision (transition/reservations.lua). The answers are those of the general transition,
-- to which everything else is left: denials, ids that are there already or are not, and commits that are remembered.
if not code and (op == 0 and cost > 0 and raw or op == 6 or op == 7) then
  repeat
    if raw == nil then
      raw = states and states[i]
      if not states then
        raw = try('GET', keys[i])
      end
    end
    -- An error in place of a string has no length. MGET shows nothing in its place.
    local size, p = raw and #raw or 0, 1
    if size == 0 and (raw or states) then
      break
    end
    local number, made, first, last, units, has_record, entries_from = 0, 0, 9007199254740991, 0, 0, false, size + 1
    local has_states, until_us, known_us, denied, denies_one = size > 0 and string.byte(raw) ~= 6, 0, 0, false, false
    --[locals]
    if has_states then
      --[load]
      --[known]
    else
      --[fresh]
    end
    local states_size = p - 1
    if p <= size then
      if size < p + 61 then
        break
      end
      local form, tag, length
      form, tag, length, number, made, first, last, units = read('>BI4I3HI7I7I7I7', raw, p)
      if form ~= 6 or tag ~= 0 or p + 7 + length ~= size or length < 30 + 24 * number then
        break
      end
      if number == 0 or number > 1000 or made > now or first <= now or last >= 9007199254740992 then
        break
      end
      has_record, entries_from, known_us = true, p + 38, math.max(known_us, last - last % 10000000 + 10000000)
    elseif op == 0 then
      break
    end
    local want, back, held, holds_after, ttl, remember, id = cost * count, 0, '', holds_at
    if op > 0 then
      ttl, remember, id, holds_after = read('>I6I5Bc0', ARGV[2], holds_at)
      held = string.char(#id) .. id
    end
    local at = number > 0 and op > 0 and string.find(raw, held, entries_from, true)
    if op == 7 then
      local q = entries_from
      while at and q < at - 22 do
        q = q + 23 + (string.byte(raw, q + 22) or 0)
      end
      if not at or q ~= at - 22 then
        break
      end
      local _, _, reserved, remembered = read('>I7I5I5I5', raw, q)
      if remembered > 0 then
        break
      end
      if want == 1099511627775 then
        want = reserved
      end
      if want == 0 and not has_states then
        break
      end
      -- A commit is charged beside whatever is set aside.
      number, units, at = number - 1, units - reserved, q
    else
      -- Not in one assignment: the Lua of miniredis makes the first before it evaluates the second.
      back = op == 0 and -units or -want - units
      want = want + units
      if op == 6 then
        local slots = read('>H', input, policy_at + 2)
        if at or number >= math.min(slots, 1000) then
          break
        end
      end
    end
    -- What is set aside counts for the decision, and is not spent.
    for round = 1, back < 0 and 2 or 1 do
      if round == 2 then
        want = back
      end
      --[spend]
      if denied then
        break
      end
    end
    if denied then
      break
    end
    local spent, entry = 0, ''
    if op == 0 then
      spent = cost * count
    elseif op == 6 then
      local ends = math.min(now + ttl, 9007199254740991)
      entry = pack('>I7I5I5I5Bc0', ends, ttl, cost, remember, #id, id)
      number, units, made = number + 1, units + cost, math.max(made, now)
      first, last = math.min(first, ends), math.max(last, ends)
    end
    local value, head = '', ''
    if has_states or op ~= 6 then
      --[value]
      --[lives]
    end
    if number > 0 then
      local length = size - entries_from + 1 + #entry + 30
      if op == 7 then
        length = length - 23 - #id
      end
      head = pack('>BI4I3HI7I7I7I7', 6, 0, length, number, made, first, last, units)
      until_us = math.max(until_us, last - last % 10000000 + 10000000)
    end
    if until_us > 9007199254740992 then
      break
    end
    local key, keeps = keys[i], raw and (manual or until_us <= known_us)
    if keeps and op ~= 7 and #value == states_size then
      -- The other entries stay where they are: a copy of all of them would be the most expensive part.
      if op == 0 then
        call('SETRANGE', key, '0', value)
      elseif has_record then
        call('SETRANGE', key, '0', value .. head)
        call('SETRANGE', key, string.format('%d', size), entry)
      else
        call('SETRANGE', key, '0', value .. head .. entry)
      end
    else
      local before, after = '', ''
      if number > 0 and has_record then
        before = string.sub(raw, entries_from, op == 7 and at - 1 or size)
        if op == 7 then
          after = string.sub(raw, at + 23 + #id)
        end
      end
      value = value .. head .. before .. after .. entry
      if manual then
        call('SET', key, value)
      elseif keeps then
        call('SET', key, value, 'KEEPTTL')
      else
        call('SET', key, value, 'PXAT', string.format('%d', (until_us - until_us % 1000) / 1000 + 1))
      end
    end
    holds_at = holds_after
    if entries == 1 then
      return pack('>I6I7BI6BI3', nonce, now, 21, spent, 0, size) .. (raw or '')
    end
    code, raw = 5, pack('>I6BI3', spent, 0, size) .. (raw or '')
  until true
end
