#!lua
-- Sets and removes entries: all of them, or none when there would be too many.
--
-- KEYS: the main hash, the entries, the log. ARGV: by, why, the most entries that there may be, and for each change the entry
-- and its JSON, which is empty when the entry is removed.
-- The reply is 1, version; or 0 and the number of entries that there would be.
local call = redis.call
local head, entries, log = KEYS[1], KEYS[2], KEYS[3]
local record, left = { 'by', ARGV[1], 'why', ARGV[2] }, {}
local count = call('HLEN', entries)
for i = 4, #ARGV, 2 do
  local entry, is_set = ARGV[i], ARGV[i + 1] ~= ''
  local was_set = left[entry]
  if was_set == nil then
    was_set = call('HEXISTS', entries, entry) == 1
  end
  if is_set and not was_set then
    count = count + 1
  elseif was_set and not is_set then
    count = count - 1
  end
  left[entry] = is_set
  record[#record + 1] = entry
  record[#record + 1] = ARGV[i + 1]
end
if count > tonumber(ARGV[3]) then
  return { 0, count }
end
for i = 4, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    call('HDEL', entries, ARGV[i])
  else
    call('HSET', entries, ARGV[i], ARGV[i + 1])
  end
end
local there = call('HMGET', head, 'version', 'last')
local version, last = (tonumber(there[1] or 0) or 0) + 1, there[2] or ''
local id = call('XADD', log, 'MAXLEN', '~', 10000, '*', 'version', version, 'after', last, unpack(record))
call('HSET', head, 'version', version, 'last', id)
return { 1, version }
