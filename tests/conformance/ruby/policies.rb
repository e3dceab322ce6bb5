# frozen_string_literal: true

require 'async'
require 'json'
require 'polylimit'
require 'tmpdir'

# Runs cases of format 3: a document, and operations of a limiter that has its limits from it; on threads, and on fibers of an event
# loop.
class PolicyCases
  # Monday 2026-09-21, from which the times of the cases count.
  START_US = 1_789_948_800_000_000
  FACES = {
    'ruby' => ->(&work) { work.call },
    'ruby (fibers)' => ->(&work) { Sync { work.call } }
  }.freeze

  def initialize(store)
    @store = store
    @number = 0
  end

  def run(cases)
    FACES.map { |name, face| run_face(name, face, cases) }.all?
  end

  private

  def run_face(name, face, cases)
    agreed = cases.count do |one|
      difference = face.call { difference(one) }
      puts "#{name} #{@store}: case #{one['name'].inspect}, #{difference}" if difference
      difference.nil?
    end
    puts "#{name} #{@store}: #{agreed} of #{cases.size} cases agree"
    agreed == cases.size
  end

  # Which operation differs and how; nil when all agree.
  def difference(one)
    place do |url, options|
      clock = Polylimit::ManualClock.new(START_US)
      @limiter = Polylimit::Limiter.new(url, document: JSON.generate(one['document']), clock: clock, **options)
      @reservations = []
      return one['ops'].each_with_index.lazy.filter_map { |operation, at| differs(clock, operation, at) }.first
    rescue Polylimit::Error => e
      return "the document is refused: #{e.message}"
    ensure
      @limiter&.close
      @limiter = nil
    end
  end

  # Where a case keeps its states, apart from every other case.
  def place
    @number += 1
    if @store == 'memory'
      yield 'memory:', {}
    elsif @store.start_with?('local:')
      Dir.mktmpdir('polylimit-case') { |folder| yield "file://#{folder}/store?size=1MiB", {} }
    else
      yield @store, { prefix: "case-ruby-#{Process.pid}-#{@number}" }
    end
  end

  def differs(clock, operation, at)
    clock.set(START_US + operation['t_us'])
    got = begin
      ask(operation)
    rescue Polylimit::Error => e
      { 'error' => Polylimit::Error::CODES.fetch(e.class) }
    end
    return if agrees?(operation['expect'], got)

    "operation #{at} #{JSON.generate(operation)}:\n  got      #{JSON.generate(got)}"
  end

  # Whether everything that is expected is there and equal; `about` is part of the message.
  def agrees?(expected, got)
    case expected
    when Hash
      got.is_a?(Hash) && expected.all? do |name, value|
        name == 'about' ? got[name].to_s.include?(value) : agrees?(value, got[name])
      end
    when Array
      got.is_a?(Array) && expected.size == got.size && expected.zip(got).all? { |one, found| agrees?(one, found) }
    else expected == got
    end
  end

  def ask(operation)
    key = operation['key'] || 'k'
    about = { policy: operation['policy'] || 'p', plan: operation['plan'] }
    costly = about.merge(cost: operation['cost'] || 1)
    deciding = costly.merge(headroom: operation['headroom'])
    id = operation['id']
    case operation['op']
    when 'check', 'peek' then decision(@limiter.public_send(operation['op'], key, **deciding))
    when 'take' then usage(@limiter.take(key, **costly), 'taken')
    when 'charge', 'refund' then usage(@limiter.public_send(operation['op'], key, **costly))
    when 'reset' then usage(@limiter.reset(key, **about))
    when 'block' then usage(@limiter.admin.block(key, seconds(operation['for_us']), **about))
    when 'reserve' then hold(@limiter.reserve(key, id: id, ttl: seconds(operation['ttl_us']), max_age: 0, **deciding))
    when 'commit' then usage(@limiter.commit(key, id, spent: operation['cost'], **about), 'found')
    when 'cancel' then usage(@limiter.cancel(key, id, **about), 'found')
    when 'renew' then usage(@limiter.renew(key, id, seconds(operation['ttl_us']), **about), 'found')
    when 'configuration' then outcome { @limiter.admin.set_document(operation['text'] || JSON.generate(operation['document'])) }
    when 'entry' then outcome { change_entry(operation) }
    when 'match' then @limiter.admin.matching(request(operation)).map { |found| found.to_h.transform_keys(&:to_s) }
    when 'decide' then decided(@limiter.decide(request(operation), id: id, ttl: operation['ttl_us'] && seconds(operation['ttl_us'])))
    when 'candidate' then counts(@limiter.admin.candidate_counts(about[:policy]))
    else { 'unknown' => operation['op'] }
    end
  end

  def change_entry(operation)
    operation['set'] ? @limiter.admin.set_entry(operation['set'], operation['value']) : @limiter.admin.delete_entry(operation['delete'])
  end

  # Handles end nothing while a case runs: the case says what happens.
  def hold(reservation)
    @reservations << reservation
    decision(reservation.decision)
  end

  def request(operation)
    operation['request'].transform_keys(&:to_sym)
  end

  def decision(decision)
    return { 'outage' => true } if decision.is_outage

    {
      'allowed' => decision.allowed, 'remaining' => decision.remaining,
      'retry_after_us' => decision.retry_after && microseconds(decision.retry_after),
      'reset_after_us' => microseconds(decision.reset_after), 'delay_us' => microseconds(decision.delay), 'over' => decision.over,
      'crossed' => decision.crossed, 'elastic' => decision.elastic, 'shadowed' => decision.shadowed, 'cause' => decision.cause
    }
  end

  def usage(usage, *more)
    shown = { 'remaining' => usage.remaining, 'reset_after_us' => microseconds(usage.reset_after) }
    shown.merge(more.to_h { |name| [name, usage.public_send(name)] })
  end

  def decided(decided)
    {
      'allowed' => decided.allowed, 'cause' => decided.cause, 'status' => decided.status,
      'retry_after_us' => decided.retry_after && microseconds(decided.retry_after),
      'decisions' => decided.decisions.map { |made| decision(made.decision).merge('policy' => made.policy, 'key' => made.key) }
    }
  end

  def counts(counts)
    %w[both_allow only_live_denies only_candidate_denies both_deny].to_h { |name| [name, counts ? counts.public_send(name) : 0] }
  end

  def outcome
    yield
    { 'ok' => true }
  rescue Polylimit::Error => e
    { 'ok' => false, 'line' => e.message[/\Aline (\d+),/, 1].to_i, 'about' => e.message }
  end

  def seconds(microseconds)
    Rational(microseconds, 1_000_000)
  end

  def microseconds(seconds)
    (seconds * 1_000_000).round
  end
end
