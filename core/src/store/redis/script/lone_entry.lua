if op == 0 and cost > 0 and now < 4503599627370496 then
  local key, want = keys[i], cost * one * count
  raw = try('GET', key)
  @lone
  if code == 1 then
    code = raw and 1 or 3
  elseif code and count == 1 then
    code = raw and 2 or 4
  else
    code = nil
  end
end
