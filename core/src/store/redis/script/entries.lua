-- The entries, one after the other. A reply: nonce (6), now (7), what follows (1). After 2, every entry was a check that
-- has spent all that it asked for, and 12 bytes of each follow; after 0, a code and more for each entry; for a single
-- entry, 16 more than its code stands there itself:
--   1, 2  a check that spent all, or nothing, and the 12 bytes from before
--   3, 4  the same where there was no state
--   6, 7  the same with the length of the state from before (2)
--   5     units spent (6), whether it was healed (1), length of the state from before (2), views of the logs
local answers
local i = 1
while true do
  local code, raw
  @check
  if not code then
    @decide
    code, raw = 5, decide(i, op, cost, count)
  end
  raw = raw or ''
  if entries == 1 then
    if code > 5 then
      return pack('>I6I7BHc0', nonce, now, 16 + code, #raw, raw)
    end
    return pack('>I6I7Bc0', nonce, now, 16 + code, raw)
  end
  answers = answers or { pack('>I6I7B', nonce, now, 0) }
  if code > 5 then
    answers[i + 1] = pack('>BHc0', code, #raw, raw)
  else
    answers[i + 1] = pack('>Bc0', code, raw)
  end
  if i == entries then
    return table.concat(answers)
  end
  i = i + 1
  op, cost, count = read('>BI5H', input, 17 + 8 * i)
end
