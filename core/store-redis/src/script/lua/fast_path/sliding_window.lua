-- Counters of sub-windows: the sum of all but the oldest, and all but the newest one by one.
--[load]
local elapsed$ = (now - now % tick$) / tick$
current$ = elapsed$
elapsed$ = elapsed$ % width$
current$ = (current$ - elapsed$) / width$
local past$, first$ = current$ - newest$, p
p = p + bytes$ * buckets$
if length$ ~= buckets$ or past$ < 0 or sum$ > 8 * capacity$ then
  break
end
if bytes$ == 0 or bytes$ > 6 or p > size + 1 then
  break
end
until_before$ = (newest$ + buckets$ + 1) * width$ * tick$
if past$ > buckets$ then
  -- All have slid out.
  sum$, inside$, bytes$, older$ = 0, 0, 1, string.rep('\0', buckets$)
else
  local format$ = bytes$ == 1 and 'B' or '>I' .. bytes$
  local oldest$
  if past$ == 0 then
    oldest$ = read(format$, raw, first$ + (buckets$ - 1) * bytes$)
    older$ = string.sub(raw, first$, p - 1)
  else
    -- The newest is what the sum has more than the others; some of these are no longer inside in full.
    local newer$, gone$ = sum$, 0
    for age = 1, buckets$ - 1 do
      local units = read(format$, raw, first$ + (age - 1) * bytes$)
      newer$ = newer$ - units
      if age >= buckets$ - past$ then
        gone$ = gone$ + units
        oldest$ = oldest$ or units
      end
    end
    if past$ == buckets$ then
      oldest$, gone$ = newer$, sum$
    end
    if newer$ < 0 or newer$ >= 256 ^ bytes$ then
      break
    end
    sum$ = sum$ - gone$
    older$ = string.rep('\0', (past$ - 1) * bytes$)
      .. pack(format$, newer$)
      .. string.sub(raw, first$, first$ + (buckets$ - past$) * bytes$ - 1)
  end
  if oldest$ > 8 * capacity$ then
    break
  end
  -- What is inside of the oldest, rounded up.
  inside$ = oldest$ * (width$ - elapsed$)
  oldest$ = inside$ % width$
  inside$ = (inside$ - oldest$) / width$
  if oldest$ > 0 then
    inside$ = inside$ + 1
  end
end
--[fresh]
sum$, inside$, bytes$, older$ = 0, 0, 1, string.rep('\0', buckets$)
current$ = (now - now % tick$) / tick$
current$ = (current$ - current$ % width$) / width$
--[spend]
sum$ = sum$ + want
if sum$ + inside$ > capacity$ then
  denied = true
  denies_one = denies_one or sum$ + inside$ - (want - cost) > capacity$
end
until_after$ = (current$ + buckets$ + 1) * width$ * tick$
