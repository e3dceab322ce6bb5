//! The contenders: polylimit, and two peers that call a script through the redis crate.

use polylimit::{Limiter, Policy};
use polylimit_test_servers::Server;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Script};

use crate::load::{Outcome, Workload};

/// The script of `redis_rate` 10 (`allowN` of the Go package), which is GCRA in floating point.
pub(crate) const REDIS_RATE: &str = r#"
redis.replicate_commands()
local rate_limit_key = KEYS[1]
local burst = ARGV[1]
local rate = ARGV[2]
local period = ARGV[3]
local cost = tonumber(ARGV[4])
local emission_interval = period / rate
local increment = emission_interval * cost
local burst_offset = emission_interval * burst
local jan_1_2017 = 1483228800
local now = redis.call("TIME")
now = (now[1] - jan_1_2017) + (now[2] / 1000000)
local tat = redis.call("GET", rate_limit_key)
if not tat then
  tat = now
else
  tat = tonumber(tat)
end
tat = math.max(tat, now)
local new_tat = tat + increment
local allow_at = new_tat - burst_offset
local diff = now - allow_at
local remaining = diff / emission_interval
if remaining < 0 then
  local reset_after = tat - now
  local retry_after = diff * -1
  return { 0, 0, tostring(retry_after), tostring(reset_after) }
end
local reset_after = new_tat - now
if reset_after > 0 then
  redis.call("SET", rate_limit_key, new_tat, "EX", math.ceil(reset_after))
end
local retry_after = -1
return { cost, remaining, tostring(retry_after), tostring(reset_after) }
"#;

/// A simple script: the same decision in integers, with one number as its reply.
pub(crate) const SCRIPT: &str = r#"
local now = redis.call("TIME")
now = now[1] * 1000000 + now[2]
local interval = ARGV[2] / ARGV[1]
local tat = tonumber(redis.call("GET", KEYS[1]) or 0)
if tat < now then
  tat = now
end
local new = tat + interval
if new - now > ARGV[3] * interval then
  return now - new
end
redis.call("SET", KEYS[1], string.format("%d", new), "PX", math.ceil((new - now) / 1000))
return new - now
"#;

pub(crate) enum Contender {
    RedisRate(MultiplexedConnection, Script, Numbers),
    Script(MultiplexedConnection, Script, Numbers),
    Polylimit(Limiter),
}

#[derive(Clone, Copy)]
pub(crate) struct Numbers {
    pub(crate) limit: u64,
    pub(crate) period_s: u64,
    pub(crate) quotas: usize,
}

impl Contender {
    /// `redis_rate`, the script, polylimit.
    pub(crate) async fn all(server: &Server, workload: &Workload) -> [Self; 3] {
        // By default the crate gives up after half a second, which passes on a busy machine.
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let connect = async || {
            let client = redis::Client::open(server.url()).unwrap();
            client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
        };
        let numbers = workload.numbers();
        server.command(&["FLUSHALL"]);
        let limiter = limiter(&server.url(), numbers);
        [
            Self::RedisRate(connect().await, Script::new(REDIS_RATE), numbers),
            Self::Script(connect().await, Script::new(SCRIPT), numbers),
            Self::Polylimit(limiter),
        ]
    }

    /// Whether a request for a key is admitted.
    pub(crate) async fn decide(&self, key: &str) -> bool {
        match self {
            Self::RedisRate(connection, script, numbers) => {
                let mut allowed = true;
                // The script knows one quota, so several quotas take one call each.
                for quota in 0..numbers.quotas {
                    let (units, _, _, _): (i64, i64, String, String) = script
                        .key(format!("rate:{quota}:{key}"))
                        .arg(numbers.limit)
                        .arg(numbers.limit)
                        .arg(numbers.period_s)
                        .arg(1)
                        .invoke_async(&mut connection.clone())
                        .await
                        .unwrap();
                    allowed &= units > 0;
                }
                allowed
            }
            Self::Script(connection, script, numbers) => {
                let mut allowed = true;
                for quota in 0..numbers.quotas {
                    let wait: i64 = script
                        .key(format!("script:{quota}:{key}"))
                        .arg(numbers.limit)
                        .arg(numbers.period_s * 1_000_000)
                        .arg(numbers.limit)
                        .invoke_async(&mut connection.clone())
                        .await
                        .unwrap();
                    allowed &= wait >= 0;
                }
                allowed
            }
            Self::Polylimit(limiter) => {
                let decision = limiter.check(key).await.unwrap();
                assert!(!decision.source().is_outage(), "{:?}", decision.degraded());
                decision.allowed()
            }
        }
    }
}

/// A limiter with `quotas` quotas, which differ in their periods.
pub(crate) fn limiter(url: &str, numbers: Numbers) -> Limiter {
    let Numbers { limit, period_s, quotas } = numbers;
    let quotas: Vec<String> =
        (1..=quotas as u64).map(|at| format!("{}/{}s token_bucket", limit * at, period_s * at)).collect();
    let policy = Policy::parse("api", &quotas.join("; ")).unwrap();
    // The benchmark measures the store, so a slow decision on a busy machine still counts.
    Limiter::builder()
        .store(&format!("{url}?deadline=10s&outage=deny&denial_cache_max=0"))
        .policy(policy)
        .build()
        .unwrap()
}

impl Workload {
    pub(crate) fn numbers(&self) -> Numbers {
        // A limit of 1 denies nearly always; a limit of 1,000,000 never denies.
        let limit = if self.outcome == Outcome::Allowed { 1_000_000 } else { 1 };
        Numbers { limit, period_s: 1_000, quotas: self.quotas }
    }
}
