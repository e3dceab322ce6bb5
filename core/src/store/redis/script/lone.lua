-- Checks of a lone bucket whose state takes 12 bytes, see state_bytes/lone.rs: most of what is asked. As long as they are
-- ordinary they are decided here, one or many.
local most, now_low = 8 * empty, now % 281474976710656
local now_high = now - now_low
-- The high bits of the time are four of the state's.
base = base + now_high / 32
local last_until, until_ms
if now < 4503599627370496 then
  if entries == 1 then
    if op == 0 and cost > 0 then
      local key = keys[1]
      local raw = try('GET', key)
      local unit_debt = cost * one
      local want, code = unit_debt * count, nil
      @lone
      if code == 1 then
        return pack('>I6I7Bc0', nonce, now, raw and 17 or 19, raw or '')
      elseif code then
        return pack('>I6I7Bc0', nonce, now, raw and 18 or 20, raw or '')
      end
    end
  elseif alike % 2 == 1 and entries <= 4000 then
    -- All keys differ, so all states can be read before any is written.
    local before, same, done = call('MGET', unpack(keys)), alike == 3, true
    local unit_debt = cost * one
    local want = unit_debt * count
    for i = 1, entries do
      local key, raw, code = keys[i], before[i], nil
      if not same then
        op, cost, count = read('>BI5H', input, 17 + 8 * i)
        unit_debt = cost * one
        want = unit_debt * count
      end
      if op == 0 and cost > 0 then
        @lone
      end
      if code == 1 then
        if not raw then
          done, before[i] = false, '\3'
        end
      elseif code then
        done, before[i] = false, raw and '\2' .. raw or '\4'
      else
        @decide
        done, before[i] = false, '\5' .. decide(i, op, cost, count)
      end
    end
    if done then
      return pack('>I6I7B', nonce, now, 2) .. table.concat(before)
    end
    for i = 1, entries do
      -- A state has 12 bytes; with its code an answer has 13, or one, or more.
      if #before[i] == 12 then
        before[i] = '\1' .. before[i]
      end
    end
    return pack('>I6I7B', nonce, now, 0) .. table.concat(before)
  end
end
