// What the playground can start with: a document, its traffic, and how long that lasts.
const PLAYGROUND_EXAMPLES = [
  {
    name: "An API and its log-ins",
    document: `polylimit = 1

[policies.api]
quotas = "60/minute; 1000/day"

[policies.login]
quotas = "5/10m sliding_log"

[[rules]]
match = { method = "POST", path = "/login" }
apply = [{ policy = "login", key = "{client}" }]

[[rules]]
match = { path = "/v1/{*rest}" }
apply = [{ policy = "api", key = "{user,client}" }]
`,
    duration: "15m",
    groups: [
      { name: "app", clients: 5, pattern: "poisson", rate: "40/minute", path: "/v1/items", attributes: "user={client}" },
      { name: "script", clients: 1, pattern: "burst", burst: 120, every: "2m", path: "/v1/export", attributes: "user=script" },
      { name: "guesser", clients: 1, pattern: "even", rate: "6/minute", method: "POST", path: "/login" },
    ],
  },
  {
    name: "Plans",
    document: `polylimit = 1

[policies.api]
quotas = "30/minute"
plans = { gold = "120/minute" }

[[rules]]
match = { path = "/v1/{*rest}" }
apply = [{ policy = "api", key = "{user}" }]
`,
    duration: "5m",
    groups: [
      { name: "free", clients: 1, pattern: "poisson", rate: "90/minute", path: "/v1/a", attributes: "user={client}" },
      { name: "paying", clients: 1, pattern: "poisson", rate: "90/minute", path: "/v1/a", attributes: "user={client}, plan=gold" },
    ],
  },
  {
    name: "A token bucket under bursts",
    document: `polylimit = 1

[policies.bucket]
quotas = "10/second token_bucket burst=40"
`,
    policy: "bucket",
    duration: "1m",
    groups: [{ name: "burster", clients: 1, pattern: "burst", burst: 60, every: "7s" }],
  },
  {
    name: "Clients that wait, and clients that do not",
    document: `polylimit = 1

[policies.shared]
quotas = "20/10s sliding_window"

[[rules]]
match = { path = "/{*rest}" }
apply = [{ policy = "shared", key = "{method}" }]
`,
    duration: "3m",
    groups: [
      { name: "polite", clients: 3, pattern: "even", rate: "1/s", path: "/a", denied: "wait" },
      { name: "hammer", clients: 1, pattern: "even", rate: "3/s", path: "/a", method: "POST", denied: "retry=200ms" },
    ],
  },
];
