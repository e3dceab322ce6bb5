# frozen_string_literal: true

require 'json'
require 'minitest/autorun'
require 'net/http'
require 'polylimit/rack'
require_relative 'own_puma'

# The cases of guard.json, guard_reservations.json, guard_meters.json and guard_waiting.json in tests/conformance, through the middleware in Puma.
class GuardTest < Minitest::Test
  CASES = %w[guard guard_reservations guard_meters guard_waiting].flat_map do |file|
    JSON.parse(File.read(File.expand_path("../../../../tests/conformance/#{file}.json", __dir__)))['cases']
  end
  NO_OPTIONS = %w[store].freeze

  # A body that sends a part, and more of them until it is asked to stop.
  OpenBody = Struct.new(:is_done) do
    def each
      loop do
        yield 'part'
        break if is_done.call

        sleep 0.01
      end
    end
  end

  def test_there_are_cases
    assert_operator CASES.size, :>, 60 + 25 + 10
  end

  CASES.each do |one|
    define_method("test_#{one['name'].tr(' ', '_')}") { run_case(one) }
  end

  private

  def run_case(one)
    @clock = Polylimit::ManualClock.new(1_789_948_800_000_000)
    limiters = %w[memory down broken].to_h { |store| [store, limiter(one, store)] }
    options = one['guards'].map do |guard|
      { limiter: limiters.fetch(guard['store'] || one['store'] || 'memory'), **options(guard) }
    end
    return refused(one['error'], options) if one['error']

    answer(one['requests'], options, limiters['memory'])
    (one['left'] || []).each do |left|
      assert_equal left['remaining'], limiters['memory'].peek(left['key'], policy: left['policy']).remaining, left.inspect
    end
  ensure
    limiters&.each_value(&:close)
  end

  def refused(code, options)
    error = assert_raises(Polylimit::Error) { stack(nil, options) }
    assert_equal code, error.code
  end

  def stack(app, options)
    options.reverse.reduce(app) { |inner, one| Polylimit::Rack.new(inner, **one) }
  end

  def limiter(one, store)
    policies = (one['policies'] || {}).transform_values do |quotas|
      store == 'down' && one['outage'] ? { quotas: quotas, outage: one['outage'] } : quotas
    end
    case store
    when 'memory' then Polylimit::Limiter.new(policies: policies, clock: @clock)
    # Nothing listens on port 1.
    when 'down' then Polylimit::Limiter.new('redis://127.0.0.1:1?doctor_after=0', policies: policies)
    else Polylimit::Limiter.new(broken_store, policies: policies)
    end
  end

  # The URL of a local store that cannot be opened: other users may read its file.
  def broken_store
    name = "ruby-guard-#{Process.pid}"
    path = "/dev/shm/polylimit-#{Process.uid}-#{name}"
    File.write(path, '')
    File.chmod(0o640, path)
    "local:#{name}"
  end

  def options(guard)
    options = guard.reject { |name, _| NO_OPTIONS.include?(name) }.to_h { |name, value| option(name, value) }
    %i[cost spent].each { |name| options[name] = guard['policy'].zip(options[name]).to_h.compact if options[name].is_a?(Array) }
    if guard['policies_of']
      of = options.delete(:policies_of)
      plan = header(of['header'])
      options[:policy] = ->(env) { plan.call(env).then { |name| name ? of['plans'][name] : guard['policy'] } }
    end
    options
  end

  def option(name, value)
    case name
    when 'key_parts' then [:key, value]
    when 'key', 'skip' then [name.to_sym, header(value['header'])]
    when 'cost' then [:cost, value.is_a?(Hash) ? ->(env) { header(value['header']).call(env).to_i } : value]
    when 'costs' then [:cost, value]
    when 'spent' then [:spent, value.is_a?(Hash) ? ->(_, _, headers) { headers[value['header']]&.to_i } : value]
    when 'ttl_ms' then [:ttl, value / 1000r]
    when 'wait_ms' then [:wait, value / 1000r]
    when 'count' then [:count, ->(_, status, _) { counts?(value, status) }]
    when 'on_denied' then [:on_denied, ->(_, _) { [value['status'], {}, [value['body']]] }]
    when 'on_outage' then [:on_outage, ->(_, _) { value.to_sym }]
    else [name.to_sym, value]
    end
  end

  def header(name)
    ->(env) { env["HTTP_#{name.upcase.tr('-', '_')}"] }
  end

  def counts?(count, status)
    status >= count.fetch('status_from', 0) && status < count.fetch('status_below', 1000)
  end

  def answer(requests, options, limiter)
    asked = nil
    is_handled = false
    done = {}
    app = lambda do |_|
      is_handled = true
      raise 'broken' if asked['fail']

      name = asked['open']
      body = name ? OpenBody.new(-> { done[name] }) : asked.fetch('body', [])
      [asked.fetch('respond', 200), { 'x-spent' => asked['spent']&.to_s, 'content-type' => asked['content_type'] }.compact, body]
    end
    serve(stack(app, options)) do |port|
      opened = {}
      requests.each do |request|
        asked = request
        is_handled = false
        if (name = request['close'] || request['leave'])
          done[name] = true if request['close']
          finish(opened.fetch(name), request)
        else
          answered = elapsing(request['elapse_ms']) { response(port, request) { |socket| opened[request['open']] = socket } }
          check(request['expect'], answered, is_handled)
        end
        (request['then'] || []).each { |left| assert_left(limiter, left) }
      end
    ensure
      opened.each_key { |name| done[name] = true }
    end
  end

  # Lets time pass while the request is under way, so that a guard that holds it does so first.
  def elapsing(elapse_ms)
    passing = elapse_ms && Thread.new { loop { sleep(0.1) && @clock.advance(elapse_ms / 1000r) } }
    yield
  ensure
    passing&.kill&.join
  end

  def serve(app)
    server, port = own_puma(app)
    yield port
  ensure
    server&.stop(true)
  end

  # Reads a response to its end, or leaves it.
  def finish(socket, request)
    socket.read if request['close']
    socket.close
  end

  def assert_left(limiter, left)
    remaining = nil
    is_so = 2000.times.any? do
      remaining = limiter.peek(left['key'], policy: left['policy']).remaining
      remaining == left['remaining'] || (sleep(0.01) && false)
    end
    assert is_so, "#{left}: #{remaining}"
  end

  def response(port, request, &opened)
    return open_response(port, request, &opened) if request['open']

    method = request.fetch('method', 'GET')
    # A client that expects a body after HEAD waits until the server closes the connection.
    sent = Net::HTTPGenericRequest.new(method, false, method != 'HEAD', '/')
    sent.delete('accept')
    request.fetch('headers', {}).each { |name, value| sent[name] = value }
    Net::HTTP.start('127.0.0.1', port) { |http| http.request(sent) }
  end

  # The head of a response whose body goes on, and its socket.
  def open_response(port, request)
    socket = TCPSocket.new('127.0.0.1', port)
    fields = { 'host' => 'localhost', 'connection' => 'close' }.merge(request.fetch('headers', {}))
    socket.write("GET / HTTP/1.1\r\n#{fields.map { |name, value| "#{name}: #{value}\r\n" }.join}\r\n")
    yield socket
    Net::HTTPResponse.read_new(Net::BufferedIO.new(socket))
  end

  def check(expect, response, is_handled)
    assert_empty expect.keys - %w[status handled text fields problem]
    assert_equal expect['status'], response.code.to_i
    assert_equal expect['handled'], is_handled
    assert_equal expect['text'], response.body if expect['text']
    (expect['fields'] || {}).each { |name, value| value ? assert_equal(value, response[name], name) : assert_nil(response[name], name) }
    problem = expect['problem'] ? JSON.parse(response.body) : {}
    (expect['problem'] || {}).each do |member, value|
      assert_equal value, problem[member == 'violated' ? 'violated-policies' : member], member
    end
  end
end
