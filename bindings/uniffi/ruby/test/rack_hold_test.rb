# frozen_string_literal: true

require 'async'
require 'socket'
require_relative 'rack_case'

# Requests that reserve until their response is done.
class RackHoldTest < RackCase
  # A body that the server sends from a file.
  class FileBody
    attr_reader :is_closed

    def to_path
      '/file'
    end

    def close
      @is_closed = true
    end
  end

  def setup
    @limiter = limiter(model: '1 concurrent; 100/hour')
    @options = { limiter: @limiter, key: ->(_) { 'k' }, cost: 40 }
  end

  def left(limiter = @limiter, key = 'k')
    limiter.peek(key).quotas.map(&:remaining)
  end

  def assert_soon
    assert(2000.times.any? { yield || (sleep(0.01) && false) })
  end

  def env
    { 'REQUEST_METHOD' => 'GET', 'REMOTE_ADDR' => '127.0.0.1' }
  end

  def middleware(app, **options)
    Polylimit::Rack.new(app, **@options, **options)
  end

  # Serves the application in Puma, and hands over a socket that has sent a request.
  def request_to(app)
    server, port = own_puma(app, threads: 1)
    socket = TCPSocket.new('127.0.0.1', port)
    socket.write("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    yield socket
  ensure
    socket&.close
    server&.stop(true)
  end

  def test_socket_that_the_application_takes_over_holds_until_it_is_closed
    sockets = Queue.new
    take_over = lambda do |env|
      socket = env['rack.hijack'].call
      socket.write('taken over')
      sockets << socket
      [200, {}, []]
    end
    request_to(middleware(take_over, spent: ->(*) { 7 })) do |client|
      assert_equal 'taken over', client.readpartial(100)
      assert_equal [0, 60], left
      sockets.pop.close
      assert_soon { left == [1, 93] }
    end
  end

  def test_socket_that_is_closed_before_the_response_holds_no_longer
    request_to(middleware(->(env) { env['rack.hijack'].call.close.then { [200, {}, []] } })) do |client|
      assert_empty client.read
      assert_soon { left == [1, 60] }
    end
  end

  def test_socket_of_a_response_holds_until_it_is_closed
    sockets = Queue.new
    take_over = ->(_) { [200, { 'rack.hijack' => ->(socket) { sockets << socket } }, []] }
    request_to(middleware(take_over)) do |client|
      assert_match(/\AHTTP.1.1 200/, client.readpartial(100))
      socket = sockets.pop
      assert_equal [0, 60], left
      socket.close
      assert_soon { left == [1, 60] }
    end
  end

  def test_body_can_what_that_of_the_application_can
    body = FileBody.new
    _, _, held = middleware(->(_) { [200, {}, body] }).call(env)
    assert_equal '/file', held.to_path
    assert_equal([true, false, false], %i[to_path each to_ary].map { |name| held.respond_to?(name) })
    assert_raises(NoMethodError) { held.unknown }
    assert_equal [0, 60], left
    held.close
    assert body.is_closed
    assert_equal [1, 60], left
    held.close
    assert_equal [1, 60], left
  end

  def test_body_with_a_stream_holds_until_the_stream_is_closed
    body = ->(stream) { stream.write('streamed') }
    _, _, held = middleware(->(_) { [200, {}, body] }).call(env)
    reader, writer = IO.pipe
    held.call(writer)
    held.close
    assert_equal 'streamed', reader.readpartial(100)
    assert_equal [0, 60], left
    writer.close
    assert_equal [1, 60], left
  end

  def test_two_middlewares_notice_the_end_of_one_socket
    other = limiter(slots: '1 concurrent')
    reader, = IO.pipe
    app = middleware(->(_) { [200, {}, []] })
    outer = Polylimit::Rack.new(app, limiter: other)
    outer.call(env.merge('rack.hijack_io' => reader))
    assert_equal [[0, 60], [0]], [left, left(other, '127.0.0.1')]
    reader.close
    assert_equal [[1, 60], [1]], [left, left(other, '127.0.0.1')]
  end

  def test_application_that_raises_ends_what_was_reserved
    broken = middleware(->(_) { raise IOError, 'broken' }, spent: ->(*) { flunk })
    assert_raises(IOError) { broken.call(env) }
    assert_equal [1, 60], left
  end

  def test_units_that_are_not_allowed_are_refused_and_the_cost_is_spent
    [-1, 10**12 + 1, 1.5].each_with_index do |units, number|
      @limiter.reset('k')
      _, _, body = middleware(->(_) { [200, {}, []] }, spent: ->(*) { units }).call(env)
      assert_raises(Polylimit::InvalidArgument, number) { body.close }
      assert_equal [1, 60], left
    end
  end

  # In a stack of its own, to which nothing refers afterwards.
  def lose(app)
    Thread.new { 10.times { app.call(env) } }.join
  end

  def test_response_that_a_server_loses_is_ended_when_it_is_collected
    limiter = limiter(slots: '10 concurrent')
    # The collector may run at any time.
    was_disabled = GC.disable
    begin
      lose(Polylimit::Rack.new(->(_) { [200, {}, []] }, limiter: limiter))
      assert_equal [0], left(limiter, '127.0.0.1')
    ensure
      GC.enable unless was_disabled
    end
    # A collector that is conservative may keep one of them.
    assert_soon do
      GC.start
      left(limiter, '127.0.0.1').first >= 8
    end
  end

  def test_several_policies_are_reserved_and_checked_in_redis
    limiter = limiter(ENV.fetch('POLYLIMIT_REDIS'), model: '1 concurrent; 100/hour', slots: '2 concurrent', rate: '3/hour')
    key = "hold #{Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)}"
    app = Polylimit::Rack.new(->(_) { [200, {}, []] }, limiter: limiter, policy: %w[model slots rate], key: ->(_) { key })
    left = -> { %w[model slots rate].map { |policy| limiter.peek(key, policy: policy).quotas.first.remaining } }
    inside = ->(&block) { Sync { block.call && nil } }
    [->(&block) { block.call }, inside].each do |place|
      limiter.reset(key, policy: 'rate')
      place.call do
        status, _, body = app.call(env)
        assert_equal [200, [0, 1, 2]], [status, left.call]
        status, headers, = app.call(env)
        # A reservation and a check that were not relied on are given back.
        assert_equal [429, [0, 1, 2]], [status, left.call]
        assert_match(/"slots";r=1/, headers['ratelimit'])
        body.close
        assert_soon { left.call == [1, 2, 2] }
      end
    end
  end
end
