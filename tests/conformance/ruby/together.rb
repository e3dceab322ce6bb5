# frozen_string_literal: true

require 'async'
require 'json'
require 'polylimit'

# Runs cases of format 5: requests over several policies; on threads, and on fibers of an event loop.
class TogetherCases
  FACES = {
    'ruby' => ->(&work) { work.call },
    'ruby (fibers)' => ->(&work) { Sync { work.call } }
  }.freeze
  OPERATIONS = { 'check_all' => :check_together, 'peek_all' => :peek_together }.freeze

  def initialize(store)
    @store = store
    @started = Process.clock_gettime(Process::CLOCK_REALTIME, :microsecond)
  end

  def run(cases)
    FACES.map { |name, face| run_face(name, face, cases) }.all?
  end

  private

  def run_face(name, face, cases)
    agreed = cases.each_with_index.count do |one, number|
      # A store that outlives this process has never seen such a key.
      difference = face.call { difference(one, "#{name} #{@started} #{number}") }
      puts "#{name} #{@store}: case #{one['name'].inspect}, #{difference}" if difference
      difference.nil?
    end
    puts "#{name} #{@store}: #{agreed} of #{cases.size} cases agree"
    agreed == cases.size
  end

  # Which operation differs and how; nil when all agree.
  def difference(one, prefix)
    clock = Polylimit::ManualClock.new(0)
    # What the store does not answer must not look as if it did.
    outage = @store.start_with?('redis') ? { outage: 'deny' } : {}
    policies = one['policies'].to_h { |name, quotas| [name, { quotas: Quotas.text(quotas), **outage }] }
    limiter = Polylimit::Limiter.new(@store == 'memory' ? 'memory:' : @store, policies: policies, clock: clock)
    one['ops'].each_with_index.lazy.filter_map { |operation, at| differs(limiter, clock, prefix, operation, at) }.first
  ensure
    # A manual clock's keys do not expire.
    requests = one['ops'].flat_map { |operation| requests(operation, prefix) }
    requests.map { |request| request.slice(:key, :policy) }.uniq.each { |seen| limiter&.reset(seen[:key], policy: seen[:policy]) }
    limiter&.close
  end

  def differs(limiter, clock, prefix, operation, at)
    clock.set(operation['at_us'])
    got = shown(ask(limiter, operation, requests(operation, prefix)))
    expected = operation['expect']
    got.delete('retry_after_us') unless expected.key?('retry_after_us')
    "operation #{at}\n  expected #{expected.inspect}\n  got      #{got.inspect}" unless got == expected
  rescue Polylimit::Error => e
    "operation #{at}, refused: #{e.message}"
  end

  def ask(limiter, operation, requests)
    name = operation['op']
    request = requests.first
    case name
    when 'check_all', 'peek_all' then limiter.public_send(OPERATIONS[name], requests)
    when 'reserve_all' then limiter.reserve_together(requests, id: operation['id'], ttl: Rational(operation['ttl_us'], 1_000_000))
    when 'reset' then limiter.reset(request[:key], policy: request[:policy])
    else limiter.public_send(name, request[:key], policy: request[:policy], cost: request[:cost])
    end
  end

  # The requests of an operation, of which one on a single key has one.
  def requests(operation, prefix)
    (operation['charges'] || [operation]).map do |charge|
      { key: "#{prefix} #{charge['key']}", policy: charge['policy'], cost: charge['cost'] || 1 }
    end
  end

  def shown(answer)
    case answer
    when Polylimit::RequestReservation then shown(answer.decisions).merge('allowed' => answer.allowed?)
    when Array then of_request(answer)
    else of_one(answer)
    end
  end

  def of_one(answer)
    return { 'source' => answer.source } if answer.is_outage

    left = { 'remaining' => answer.remaining, 'reset_after_us' => microseconds(answer.reset_after) }
    return left unless answer.is_a?(Polylimit::Decision)

    left.merge('allowed' => answer.allowed, 'retry_after_us' => answer.retry_after && microseconds(answer.retry_after))
  end

  def of_request(decisions)
    waits = decisions.map(&:retry_after)
    {
      'allowed' => decisions.all?(&:allowed),
      'retry_after_us' => waits.include?(nil) ? nil : microseconds(waits.max),
      'decisions' => decisions.map { |decision| of_one(decision) }
    }
  end

  def microseconds(seconds)
    (seconds * 1_000_000).round
  end
end
