# frozen_string_literal: true

# Runs a file of conformance cases through Ruby, and prints how many cases agree.
#
# Usage: ruby runner.rb FILE STORE, where STORE is `memory` or the URL of one.

require 'json'
require 'polylimit'
require_relative 'policies'
require_relative 'quotas'
require_relative 'together'

# Runs cases on one store.
class Runner
  NAME = 'ruby'

  def initialize(store)
    @store = store
    @started = Process.clock_gettime(Process::CLOCK_REALTIME, :microsecond)
  end

  def run(cases)
    agreed = cases.each_with_index.count do |one, number|
      at, message = difference(one, "#{NAME} #{@started} #{number}")
      puts "#{NAME} #{@store}: case #{one['name'].inspect}, operation #{at}: #{message}" if at
      at.nil?
    end
    puts "#{NAME} #{@store}: #{agreed} of #{cases.size} cases agree"
    agreed == cases.size
  end

  private

  # Where a case went wrong, and how. The operations after it mean nothing: they build on it.
  def difference(one, key)
    clock = Polylimit::ManualClock.new(0)
    # What the store does not answer must not look as if it did.
    outage = @store.start_with?('redis') ? { outage: 'deny' } : {}
    policies = { case: { quotas: Quotas.text(one['quotas']), **outage } }
    @reservations = []
    limiter = Polylimit::Limiter.new(@store == 'memory' ? 'memory:' : @store, policies: policies, clock: clock)
    one['ops'].each_with_index do |operation, at|
      message = differs(limiter, clock, key, operation)
      return [at, message] if message
    end
    nil
  ensure
    # A manual clock's keys do not expire.
    limiter&.reset(key)
    @reservations.each(&:close)
    limiter&.close
  end

  def differs(limiter, clock, key, operation)
    clock.set(operation['at_us'])
    if operation['op'] == 'change'
      limiter.set_policy('case', Quotas.text(operation['quotas']))
      return
    end
    got = shown(ask(limiter, key, operation), operation['expect'])
    return if got == operation['expect']

    "#{operation.inspect}\n  expected #{operation['expect'].inspect}\n  got      #{got.inspect}"
  rescue Polylimit::Error => e
    "refused: #{e.message}"
  end

  def ask(limiter, key, operation)
    id = operation['id']
    cost = operation['cost'] || 1
    ttl = operation['ttl_us'] && Rational(operation['ttl_us'], 1_000_000)
    remember = operation['remember_us'] && Rational(operation['remember_us'], 1_000_000)
    case operation['op']
    when 'reset' then limiter.reset(key)
    when 'reserve' then hold(limiter.reserve(key, cost: cost, id: id, ttl: ttl, max_age: 0, remember: remember))
    when 'commit' then limiter.commit(key, id, spent: operation['cost'])
    when 'cancel' then limiter.cancel(key, id)
    when 'renew' then limiter.renew(key, id, ttl)
    else limiter.public_send(operation['op'], key, cost: cost)
    end
  end

  # Handles end nothing while a case runs: the case says what happens.
  def hold(reservation)
    @reservations << reservation
    reservation.decision
  end

  def shown(answer, expected)
    return { 'source' => answer.source } if answer.is_outage

    left = { 'remaining' => answer.remaining, 'reset_after_us' => microseconds(answer.reset_after) }
    unless answer.is_a?(Polylimit::Decision)
      return left.merge({ 'taken' => answer.taken, 'found' => answer.found, 'repeated' => answer.repeated }.slice(*expected.keys))
    end

    left.merge('allowed' => answer.allowed, 'retry_after_us' => answer.retry_after && microseconds(answer.retry_after),
               'delay_us' => microseconds(answer.delay),
               # Only cases of format 2 expect the units of an excess.
               **(expected.key?('over') ? { 'over' => answer.over } : {}))
  end

  def microseconds(seconds)
    (seconds * 1_000_000).round
  end
end

abort 'usage: runner.rb FILE STORE' unless ARGV.size == 2
path, store = ARGV
file = JSON.parse(File.read(path))
unless [1, 2, 3, 4, 5].include?(file['format']) && file['cases'].any? && file['cases'].all? { |one| one['ops'].any? }
  warn "#{path}: this runner reads formats 1 to 5, with cases that have operations"
  exit 2
end
runner = { 3 => PolicyCases, 5 => TogetherCases }.fetch(file['format'], Runner)
exit(runner.new(store).run(file['cases']) ? 0 : 1)
