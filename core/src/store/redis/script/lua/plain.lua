-- In place of the first line, for servers that do not know it: Redis 6.2 and imitations. A write that changes nothing is refused
-- where any other would be. The key may have another type.
local refused = redis.pcall('SETRANGE', KEYS[1], '0', '')
if type(refused) == 'table' and not string.find(refused.err, 'WRONGTYPE', 1, true) then
  -- Redis 6.2 puts the place in front of what the server says, and an end of line after it.
  local words = string.gsub(refused.err, '^@user_script: ?%d+: %-?', '')
  words = string.gsub(words, '%s+$', '')
  return { err = words }
end
