# frozen_string_literal: true

require 'json'
require 'minitest/autorun'
require 'polylimit/faraday'
require 'socket'
require 'timeout'

# Waits and backoffs by the cases of all languages.
class ServerWaitTest < Minitest::Test
  CASES = JSON.parse(File.read(File.expand_path('../../../../tests/conformance/server_wait.json', __dir__)))

  def us(seconds)
    seconds && (seconds * 1_000_000).round
  end

  def seconds(microseconds)
    microseconds && (microseconds / 1_000_000.0)
  end

  def backoff(settings)
    durations = %w[base_us cap_us max_wait_us].map { |name| seconds(settings[name]) }
    Polylimit::Backoff.new(*durations, settings['max_retries'])
  end

  def test_server_waits_agree_with_the_cases
    CASES['server_wait'].each do |one|
      headers = { 'Retry-After' => one['retry_after'], 'RateLimit' => one['rate_limit'] }
      wait = Polylimit.server_wait(headers, now_us: one['now_us'])
      assert_equal [one['wait_us']], [us(wait)], one['name']
    end
  end

  def test_milliseconds_and_the_date_of_the_response_count
    assert_equal 120_000, us(Polylimit.server_wait({ 'retry-after-ms' => '120', 'retry-after' => ['1'] }))
    skewed = { 'date' => 'Sun, 06 Nov 1994 08:49:37 GMT', 'retry-after' => 'Sun, 06 Nov 1994 08:49:39 GMT' }
    assert_equal 2, Polylimit.server_wait(skewed)
  end

  def test_backoffs_agree_with_the_cases
    CASES['backoff'].each do |one|
      wait = us(backoff(one['settings']).wait(one['retry'], seconds(one['server_wait_us'])))
      range = one['wait_us']
      range ? assert_includes(range[0]..range[1], wait, one['name']) : assert_nil(wait, one['name'])
    end
    CASES['refused'].each do |one|
      error = assert_raises(Polylimit::InvalidArgument) { backoff(one['settings']) }
      assert_equal one['message'], error.message
    end
    assert_raises(Polylimit::InvalidArgument) { Polylimit.server_wait(5) }
    assert_raises(Polylimit::InvalidArgument) { Polylimit.server_wait({ 'retry-after' => 5 }) }
    assert_raises(Polylimit::InvalidArgument) { Polylimit::Backoff.new(-1) }
  end
end

# Throttled clients of Faraday against servers of this process.
class FaradayTest < Minitest::Test
  # Admits every request at once.
  FREE = '1000000/s token_bucket'

  # A server that answers by a script, then by 200.
  class Server
    attr_reader :seen, :times

    def initialize(*script)
      @script = script
      @seen = []
      @times = []
      @socket = TCPServer.new('127.0.0.1', 0)
      @thread = Thread.new { loop { answer(@socket.accept) } }
    end

    def url
      "http://127.0.0.1:#{@socket.addr[1]}/"
    end

    def close
      @thread.kill.join
      @socket.close
    end

    private

    def answer(client)
      head = client.gets("\r\n\r\n")
      length = head[/^content-length: (\d+)/i, 1].to_i
      @seen << "#{head[/\A\w+/]} #{client.read(length)}".strip
      @times << Process.clock_gettime(Process::CLOCK_MONOTONIC)
      status, fields = @script.shift || [200, {}]
      lines = { 'Content-Length' => 0, 'Connection' => 'close', **fields }.map { |name, value| "#{name}: #{value}\r\n" }
      client.write("HTTP/1.1 #{status} Scripted\r\n#{lines.join}\r\n")
    ensure
      client.close
    end
  end

  def serve(*script)
    (@servers ||= []) << Server.new(*script)
    @servers.last
  end

  def teardown
    @servers&.each(&:close)
  end

  def client(limiter: Polylimit::Limiter.new, policy: FREE, timeout: nil, **options)
    Faraday.new(request: { timeout: timeout }) do |connection|
      connection.use Polylimit::FaradayRateLimit, limiter: limiter, policy: policy, **options
      connection.adapter :net_http
    end
  end

  def backoff(max_wait: nil, max_retries: nil)
    Polylimit.backoff(base: 0.001, cap: 0.001, max_wait: max_wait, max_retries: max_retries)
  end

  def test_response_with_retry_after_is_retried_after_that_time
    server = serve([429, { 'Retry-After' => 1 }])
    assert_equal 200, client.post(server.url, 'sent again').status
    assert_equal ['POST sent again'] * 2, server.seen
    assert_operator server.times[1] - server.times[0], :>=, 1
  end

  def test_other_requests_of_the_host_are_held_back_and_those_of_other_hosts_are_not
    server, other = serve([503, { 'Retry-After' => 1 }]), serve
    client = client(backoff: backoff(max_retries: 0))
    assert_equal [503, 200, 200], [server, other, server].map { |one| client.get(one.url).status }
    assert_operator server.times[1] - server.times[0], :>=, 1
    assert_operator other.times[0], :<, server.times[1]
  end

  def test_fields_with_nothing_left_hold_back_the_next_request
    server = serve([200, { 'RateLimit' => '"a";r=0;t=1' }])
    client = client()
    2.times { assert_equal 200, client.get(server.url).status }
    assert_operator server.times[1] - server.times[0], :>=, 1
  end

  def test_retries_depend_on_the_method_and_are_bounded
    now = [503, { 'Retry-After' => 0 }]
    server = serve(now, now)
    client = client(backoff: backoff(max_retries: 2))
    assert_equal 503, client.post(server.url, 'x').status
    assert_equal 200, client.put(server.url, 'x').status
    assert_equal ['POST x', 'PUT x', 'PUT x'], server.seen
    server = serve(*([[429, {}]] * 9))
    assert_equal 429, client.get(server.url).status
    assert_equal 3, server.seen.size
  end

  def test_wait_that_does_not_fit_returns_the_response_and_refuses_the_next_request
    [{ backoff: backoff(max_wait: 10) }, { timeout: 10 }].each do |bound|
      server = serve([429, { 'Retry-After' => 60 }])
      client = client(**bound)
      assert_equal 429, client.get(server.url).status
      error = assert_raises(Polylimit::FaradayRateLimit::Throttled) { client.get(server.url) }
      assert_match(/\Athe server asked for a wait of 60 s with status 429: /, error.message)
      assert_includes 10..60, error.retry_after
      assert_equal 1, server.seen.size
    end
  end

  def test_limiter_paces_requests_and_refuses_those_that_it_admits_too_late
    server = serve
    paced = client(policy: '2/s token_bucket burst=1', key: ->(_) { 'shared' })
    start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    3.times { assert_equal 200, paced.get(server.url).status }
    # The bucket counts by the wall clock.
    assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - start, :>=, 0.99
    late = client(policy: '1/hour', backoff: backoff(max_wait: 5))
    assert_equal 200, late.get(server.url).status
    assert_raises(Polylimit::FaradayRateLimit::Throttled) { late.get(server.url) }
    never = client(policy: '1/hour', cost: 2)
    assert_nil assert_raises(Polylimit::FaradayRateLimit::Throttled) { never.get(server.url) }.retry_after
    assert_raises(Polylimit::InvalidArgument) { client(policy: 'unknown').get(server.url) }
    assert_equal 4, server.seen.size
  end

  def test_interrupted_request_leaves_the_queue
    server = serve
    limiter = Polylimit::Limiter.new
    client = client(limiter: limiter, policy: '1/hour', key: ->(_) { 'k' }, backoff: backoff(max_wait: 86_400))
    assert_equal 200, client.get(server.url).status
    assert_raises(Timeout::Error) { Timeout.timeout(0.2) { client.get(server.url) } }
    limiter.reset('k', policy: '1/hour')
    assert_equal 200, client.get(server.url).status
    assert_equal %w[GET GET], server.seen
  end
end
