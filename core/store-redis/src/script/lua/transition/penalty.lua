-- The blocks of a key; see core/rules/src/penalty.rs.
-- Record: 7 tag (4, zero) length (3), then until (7, us) length (6, us) since (7, us) count (2) level (1).
local BLOCKS_SIZE = 31

-- Reads the record of that size at that place of `body`, and moves it back if the clock went back; nothing when it is malformed.
local function load_blocks(at, size)
  if size ~= BLOCKS_SIZE then
    return nil
  end
  local b = {}
  b.ends, b.length, b.since, b.count, b.level = read('>I7I6I7HB', body, at + 8)
  local ends, since = math.min(b.ends, 9007199254740991), math.min(b.since, 9007199254740991)
  b.ends, b.since, b.level = math.min(ends, now + b.length), math.min(since, now), math.min(b.level, 41)
  b.ahead = b.ends < ends or b.since < since
  return b
end

-- A record that says nothing.
local function new_blocks()
  return { ends = 0, length = 0, since = 0, count = 0, level = 0 }
end

-- Forgets what no longer counts.
local function bring_blocks(b)
  if penalty then
    if now - b.ends >= penalty.forget then
      b.level = 0
    end
    if now - b.since >= penalty.within then
      b.since, b.count = 0, 0
    end
  end
end

-- Counts a denial of a key that is not blocked, which may block it.
local function count_denial(b)
  bring_blocks(b)
  if b.count == 0 then
    b.since = now
  end
  b.count = b.count + 1
  if b.count >= penalty.denials then
    b.level = math.min(b.level + 1, 41)
    b.length = math.min(penalty.block * 2 ^ (b.level - 1), penalty.max)
    b.ends, b.since, b.count = math.min(now + b.length, 9007199254740991), 0, 0
  end
end

-- Blocks the key for a time, unless it is blocked for longer; 0 forgets everything. Returns whether that changed anything.
local function block(b, length)
  local ends = math.min(now + length, 9007199254740991)
  if length == 0 then
    local knew = b.ends + b.length + b.since + b.count + b.level > 0
    b.ends, b.length, b.since, b.count, b.level = 0, 0, 0, 0, 0
    return knew
  end
  if ends > b.ends then
    b.ends, b.length = ends, length
    return true
  end
  return false
end

-- The record as it is written, and the time until which the key has to live: until the block has ended, and its level and the
-- denials are forgotten. Nothing when it says nothing.
local function blocks_record(b)
  bring_blocks(b)
  if b.ends <= now and b.count == 0 and b.level == 0 then
    return '', 0
  end
  local until_us = b.ends > now and b.ends or 0
  if penalty and b.level > 0 then
    until_us = math.max(until_us, b.ends + penalty.forget)
  end
  if penalty and b.count > 0 then
    until_us = math.max(until_us, b.since + penalty.within)
  end
  local record = pack('>BI4I3I7I6I7HB', 7, 0, BLOCKS_SIZE - 8, b.ends, b.length, b.since, b.count, b.level)
  return record, until_us - until_us % 10000000 + 10000000
end
