# frozen_string_literal: true

# Measures decisions in Ruby compared with rack-attack, both as Rack middleware, in interleaved rounds of one run.
#
# Usage: bindings/uniffi/bench [--quick]. REDIS_URL names the server that both of them use.
require 'active_support'
require 'active_support/cache'
require 'polylimit/rack'
require 'rack/attack'
require 'redis'

# Of a billion a minute every request is admitted here, of one nearly none.
PLENTY = 1_000_000_000
SCARCE = 1
KEY = 'bench.key'
APP = ->(_env) { [200, {}, []] }

# What decides about a key: whether it is admitted.
Contender = Struct.new(:name, :decide)
# How the contenders are asked.
Scenario = Struct.new(:store, :keys, :threads, :denied)

SCENARIOS = [
  Scenario.new('memory', 1, 1, false), Scenario.new('memory', 1, 1, true), Scenario.new('memory', 100_000, 1, false),
  Scenario.new('redis', 1, 1, false), Scenario.new('redis', 1, 8, false), Scenario.new('redis', 1, 8, true),
  Scenario.new('redis', 100_000, 1, false), Scenario.new('redis', 100_000, 8, false)
].freeze

def env(key)
  { 'REQUEST_METHOD' => 'GET', 'PATH_INFO' => '/', 'REMOTE_ADDR' => '127.0.0.1', KEY => key }
end

# Without and with the middleware.
def polylimit(url, limit)
  # No request is answered by an outage policy, however busy the machine is.
  store = url ? "#{url}?deadline=5s" : 'memory:'
  limiter = Polylimit::Limiter.new(store, policies: { bench: "#{limit}/minute fixed_window" })
  middleware = Polylimit::Rack.new(APP, limiter: limiter, key: ->(env) { env[KEY] })
  check = lambda do |key|
    decision = limiter.check(key)
    raise "decided by #{decision.source}" unless %w[store denial_cache].include?(decision.source)

    decision.allowed
  end
  [Contender.new('check', check), Contender.new('middleware', ->(key) { middleware.call(env(key))[0] == 200 })]
end

# It counts in fixed windows, which start at multiples of a minute.
def rack_attack(url, limit)
  Rack::Attack.cache.store = url ? Redis.new(url: url) : ActiveSupport::Cache::MemoryStore.new
  Rack::Attack.throttle('bench', limit: limit, period: 60) { |request| request.env[KEY] }
  middleware = Rack::Attack.new(APP)
  Contender.new('rack-attack', ->(key) { middleware.call(env(key))[0] == 200 })
end

def now(clock = Process::CLOCK_MONOTONIC)
  Process.clock_gettime(clock)
end

# How many microseconds a decision takes, and how many of them on a processor.
def measure(contender, scenario, names, seconds)
  started = now
  used = now(Process::CLOCK_PROCESS_CPUTIME_ID)
  counts = Array.new(scenario.threads) do |worker|
    Thread.new do
      ways = Random.new(worker)
      asked = wrong = 0
      until now - started > seconds
        8.times do
          asked += 1
          wrong += 1 if contender.decide.call(names[ways.rand(names.size)]) == scenario.denied
        end
      end
      [asked, wrong]
    end
  end.map(&:value)
  asked, wrong = counts.transpose.map(&:sum)
  # The first of a denied key is admitted, and one more in each minute.
  raise "#{contender.name}: #{wrong} of #{asked} decisions came out otherwise" if wrong > 2

  [now - started, now(Process::CLOCK_PROCESS_CPUTIME_ID) - used].map { |seconds| seconds * 1e6 / asked }
end

def run(scenario, url, rounds, seconds)
  limit = scenario.denied ? SCARCE : PLENTY
  url = nil if scenario.store == 'memory'
  contenders = [*polylimit(url, limit), rack_attack(url, limit)]
  names = Array.new(scenario.keys) { |at| "#{scenario.denied}:#{at}" }
  # The first round warms up.
  took = Array.new(rounds + 1) { contenders.map { |contender| measure(contender, scenario, names, seconds) } }.drop(1)
  took.transpose.map { |all| all.transpose.map { |one| one.sort[one.size / 2] } }.transpose
end

def row(scenario, check, ours, peer)
  outcome = scenario.denied ? 'denied' : 'allowed'
  format('| %s | %d | %d | %s | %.2f | %.2f | %.2f | %.1f | %.1f |',
         scenario.store, scenario.keys, scenario.threads, outcome, check, ours, peer, peer / check, peer / ours)
end

abort 'usage: REDIS_URL=redis://... bench [--quick]' if ARGV != ARGV & ['--quick'] || !ENV['REDIS_URL']
rounds, seconds = ARGV.empty? ? [5, 0.3] : [1, 0.03]
measured = SCENARIOS.map { |scenario| [scenario, run(scenario, ENV.fetch('REDIS_URL'), rounds, seconds)] }
{ 'wall time over all threads' => 0, "processor time of Ruby's process, which other programs do not delay" => 1 }.each do |name, at|
  puts "Microseconds a decision (#{name}), medians of #{rounds} interleaved rounds of #{seconds} s each."
  puts "\n| store | keys | threads | outcome | polylimit, `check` | middleware | rack-attack | ratio of `check` | of the middleware |"
  puts '|---|---:|---:|---|---:|---:|---:|---:|---:|'
  measured.each { |scenario, all| puts row(scenario, *all[at]) }
  puts
end
puts 'A ratio above 1 is how many times as fast as the middleware of rack-attack it is. To repeat it: bindings/uniffi/bench'
