# frozen_string_literal: true

require 'socket'
require_relative 'rack_case'

# Requests that the store did not decide.
class RackOutageTest < RackCase
  def test_outage_responds_with_503_unless_on_outage_admits_the_request
    limiter = limiter('redis://127.0.0.1:1?deadline=50ms', api: { quotas: '1/hour', outage: 'deny' })
    heard = Queue.new
    listen = lambda do |env, outage|
      heard << outage.rate_limit.decision.source
      :admit if env['PATH_INFO'] == '/important'
    end
    serve({ limiter: limiter, on_outage: listen }) do |get|
      assert_equal '503', get.call('/').code
      assert_equal '200', get.call('/important').code
      assert_equal %w[deny deny], Array.new(heard.size) { heard.pop }
    end
  end

  # Knows of one unit that was used before the store was lost.
  def lost(**policies)
    limiter = limiter('redis://127.0.0.1:1?deadline=50ms', **policies)
    assert limiter.check('k').allowed
    limiter
  end

  def test_overruled_outage_denial_spends_and_refunds_nothing
    limiter = lost(api: { quotas: '1/hour', outage: 'fallback' })
    options = { limiter: limiter, key: ->(_) { 'k' }, count: ->(*) { false }, on_outage: ->(*) { :admit } }
    serve(options) do |get|
      assert_equal '200', get.call('/').code
      assert_equal 0, limiter.peek('k').remaining
    end
  end

  def test_overruled_denial_is_in_the_decisions_and_hidden_from_the_client
    lost = lost(out: { quotas: '1/hour', outage: 'fallback' })
    outer = { limiter: lost, key: ->(_) { 'k' }, on_outage: ->(*) { :admit } }
    inner = limiter(in: '3/hour')
    serve(outer, { limiter: inner }) do |get|
      answer = get.call('/')
      assert_equal %w[200 0 on_outage], [answer.code, answer.body, answer['x-ratelimit-outage']]
      assert_equal ['"in";q=3;w=3600', nil], [answer['ratelimit-policy'], answer['retry-after']]
      assert_equal 2, inner.peek('127.0.0.1').remaining
    end
    serve(outer) do |get|
      answer = get.call('/')
      assert_equal ['200', nil, nil], [answer.code, answer['ratelimit'], answer['retry-after']]
    end
  end

  # Hands over a store that is reached over one connection, and what ends it.
  def reached_once
    server = TCPServer.new('127.0.0.1', 0)
    store = URI(ENV.fetch('POLYLIMIT_REDIS'))
    ends = []
    Thread.new do
      ends << server.accept << TCPSocket.new(store.host, store.port)
      server.close
      [ends, ends.reverse].each { |from, to| Thread.new { IO.copy_stream(from, to) } }
    end
    yield "redis://127.0.0.1:#{server.addr[1]}?deadline=1s&denial_cache_max=1h", -> { ends.each(&:shutdown) }
  end

  def test_on_outage_does_not_overrule_a_denial_of_the_store
    reached_once do |store, cut|
      limiter = limiter(store, a: { quotas: '0/hour', outage: 'deny' }, b: { quotas: '5/hour', outage: 'deny' })
      heard = Queue.new
      listen = lambda do |_, outage|
        heard << outage.rate_limit.outcomes.map { |outcome| outcome.decision.source }
        :admit
      end
      serve({ limiter: limiter, policy: %w[a b], on_outage: listen }) do |get|
        assert_equal 'store', limiter.check('127.0.0.1', policy: 'a').source
        cut.call
        assert_equal '429', get.call('/').code
        assert_equal [%w[denial_cache deny]], Array.new(heard.size) { heard.pop }
      end
    end
  end

  def test_denial_of_an_inner_middleware_removes_the_field_of_an_outage
    lost = limiter('redis://127.0.0.1:1?deadline=50ms', out: { quotas: '1/hour', outage: 'allow' })
    serve({ limiter: lost }, { limiter: limiter(in: '0/hour') }) do |get|
      denied = get.call('/')
      assert_equal ['429', nil], [denied.code, denied['x-ratelimit-outage']]
    end
    serve({ limiter: lost }) { |get| assert_equal 'allow', get.call('/')['x-ratelimit-outage'] }
  end
end
