-- A script for wrk: POST requests with JSON bodies, in turns about a number of keys. Arguments: BODY, in which KEY stands for a key, and the
-- number of keys. All requests are made in advance, so that the script costs the generator little.
local requests, at = {}, 0

function init(arguments)
  local body, keys = arguments[1], tonumber(arguments[2])
  for number = 1, keys do
    local of_key = body:gsub("KEY", string.format("user:%012d", number))
    requests[number] = wrk.format("POST", nil, { ["content-type"] = "application/json" }, of_key)
  end
end

function request()
  at = at % #requests + 1
  return requests[at]
end

function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format(
    "RESULT requests=%d wall_us=%d failed=%d p50_us=%d p99_us=%d\n",
    summary.requests, summary.duration, failed, latency:percentile(50), latency:percentile(99)
  ))
end
