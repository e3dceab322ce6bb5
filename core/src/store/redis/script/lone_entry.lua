if op == 0 and cost > 0 and now < 4503599627370496 then
  local key, unit_debt = keys[i], cost * one
  local want = unit_debt * count
  raw = try('GET', key)
  @lone
  if code == 1 then
    code = raw and 1 or 3
  elseif code then
    code = raw and 2 or 4
  end
end
