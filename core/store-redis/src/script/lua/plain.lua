-- In place of the first line, for servers that do not know it: Redis 6.2 and imitations.
local struct = rawget(_G, 'struct')
if struct then
  -- A write that changes nothing is refused where any other would be. The key may have another type.
  local refused = redis.pcall('SETRANGE', KEYS[1], '0', '')
  if type(refused) == 'table' and not string.find(refused.err, 'WRONGTYPE', 1, true) then
    -- Redis 6.2 puts the place in front of what the server says, and an end of line after it.
    local words = string.gsub(refused.err, '^@user_script: ?%d+: %-?', '')
    words = string.gsub(words, '%s+$', '')
    return { err = words }
  end
else
  -- An imitation without this library, such as miniredis, which refuses no write and makes an empty key of the one above. What
  -- the scripts need of the library: big-endian numbers, and strings.
  local sizes = { B = 1, H = 2, I = 4 }
  struct = {}
  function struct.pack(format, ...)
    local values, at, packed = { ... }, 0, ''
    for kind, size in string.gmatch(format, '(%a)(%d*)') do
      at, size = at + 1, tonumber(size) or sizes[kind]
      local value, bytes = values[at], ''
      if kind == 'c' then
        bytes = size == 0 and value or string.sub(value, 1, size)
      else
        for _ = 1, size do
          bytes = string.char(value % 256) .. bytes
          value = (value - value % 256) / 256
        end
      end
      packed = packed .. bytes
    end
    return packed
  end
  function struct.unpack(format, text, from)
    local values, at = {}, from or 1
    for kind, size in string.gmatch(format, '(%a)(%d*)') do
      size = tonumber(size) or sizes[kind]
      local value = 0
      if kind == 'c' then
        if size == 0 then
          size = table.remove(values)
        end
        value = string.sub(text, at, at + size - 1)
      else
        for place = at, at + size - 1 do
          value = value * 256 + string.byte(text, place)
        end
      end
      values[#values + 1] = value
      at = at + size
    end
    values[#values + 1] = at
    return unpack(values)
  end
end
