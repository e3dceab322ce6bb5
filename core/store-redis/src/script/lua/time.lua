-- The time of the call: its own, or the server's. A call that comes after its deadline ends here.
if deadline > 0 or not now then
  local time = try('TIME')
  if time.err then
    return pack('>I6I7B', nonce, 0, 3) .. time.err
  end
  local server = time[1] * 1000000 + time[2]
  if deadline > 0 and server > deadline then
    return pack('>I6I7B', nonce, server, 1)
  end
  now = now or server
end
