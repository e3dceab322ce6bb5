-- Checks of a lone bucket whose state takes 12 bytes, see state_bytes/lone.rs: most of what is asked. As long as they are
-- ordinary they are decided here, one or many.
local most, now_low = 8 * empty, now % 281474976710656
local now_high = now - now_low
-- The high bits of the time are four of the state's.
base = base + now_high / 32
local last_until, until_ms
if op == 0 and cost > 0 and now < 4503599627370496 then
  if entries == 1 then
    local key = keys[1]
    local raw = try('GET', key)
    local want, code = cost * one * count, nil
    @lone
    if code == 1 then
      return pack('>I6I7Bc0', nonce, now, raw and 17 or 19, raw or '')
    elseif code and count == 1 then
      return pack('>I6I7Bc0', nonce, now, raw and 18 or 20, raw or '')
    end
  elseif alike == 3 and entries <= 4000 then
    local before = call('MGET', unpack(keys))
    local want, done = cost * one * count, true
    for i = 1, entries do
      local key, raw, code = keys[i], before[i], nil
      @lone
      if code == 1 then
        if not raw then
          done, before[i] = false, '\3'
        end
      elseif code and count == 1 then
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
