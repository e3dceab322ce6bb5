# frozen_string_literal: true

require_relative 'rack_case'

# Units that a request gives back, and those that several middlewares share.
class RackRefundTest < RackCase
  def test_outer_middlewares_refund_once_when_an_inner_one_denies
    limiter = limiter(out: '9/hour', between: '9/hour')
    %w[out between].each { |policy| limiter.check('127.0.0.1', policy: policy, cost: 5) }
    outer = { limiter: limiter, policy: 'out', count: ->(*) { false } }
    serve(outer, { limiter: limiter, policy: 'between', cost: 2 }, { limiter: limiter(in: '0/hour') }) do |get|
      assert_equal '429', get.call('/').code
      assert_equal([4, 4], %w[out between].map { |policy| limiter.peek('127.0.0.1', policy: policy).remaining })
    end
  end

  def test_error_of_an_inner_middleware_is_a_response_of_status_500_which_count_decides_about
    inner = limiter(in: '1/hour')
    limiter = limiter(out: '9/hour', between: '9/hour')
    outer = { limiter: limiter, policy: 'out', count: ->(_, status, _) { status < 500 } }
    serve(outer, { limiter: limiter, policy: 'between', cost: 2 }, { limiter: inner }) do |get|
      inner.close
      assert_equal '500', get.call('/').code
      assert_equal([9, 7], %w[out between].map { |policy| limiter.peek('127.0.0.1', policy: policy).remaining })
    end
  end

  def test_middleware_does_not_refund_units_spent_beside_it
    limiter = limiter(a: '9/hour', b: '0/hour')
    beside = %w[a b].map { |policy| Polylimit::Rack.new(LEFT, limiter: limiter, policy: policy) }
    env = { 'REMOTE_ADDR' => '127.0.0.1', 'PATH_INFO' => '/' }
    assert_equal([200, 429], beside.map { |one| one.call(env).first })
    assert_equal 8, limiter.peek('127.0.0.1', policy: 'a').remaining
  end

  def test_failed_refund_of_one_middleware_does_not_stop_the_others
    limiters = { a: limiter(a: '9/hour'), b: limiter(b: '9/hour'), c: limiter(c: '0/hour') }
    closing = ->(_) { limiters[:a].close && 'k' }
    options = limiters.map { |name, one| { limiter: one, key: name == :c ? closing : ->(_) { 'k' } } }
    serve(*options) do |get|
      assert_equal '429', get.call('/').code
      assert_equal 9, limiters[:b].peek('k').remaining
    end
  end

  def test_limiter_that_is_closed_during_a_request_leaves_its_response
    limiter = limiter(api: '5/hour')
    app = Polylimit::Rack.new(->(_) { limiter.close.then { [201, {}, []] } }, limiter: limiter, count: ->(*) { false })
    status, headers, = app.call({ 'REMOTE_ADDR' => '192.0.2.1' })
    assert_equal [201, '"api";q=5;w=3600'], [status, headers['ratelimit-policy']]
    assert_raises(Polylimit::Closed) { app.call({ 'REMOTE_ADDR' => '192.0.2.1' }) }
  end

  def test_application_that_raises_counts_as_status_500
    { 500 => 4, 401 => 5 }.each do |counted, left|
      limiter = limiter(api: '5/hour')
      options = { limiter: limiter, key: ->(_) { 'k' }, count: ->(_, status, _) { status == counted } }
      broken = Polylimit::Rack.new(->(_) { raise IOError, 'broken' }, **options)
      assert_equal('broken', assert_raises(IOError) { broken.call({}) }.message)
      assert_equal left, limiter.peek('k').remaining
    end
  end

  def test_policy_and_key_are_charged_once_a_request
    limiter = limiter(a: '9/hour', b: '9/hour')
    outer = { limiter: limiter, policy: ['a', '5/hour'] }
    inner = { limiter: limiter, policy: %w[b a], count: ->(*) { false } }
    serve(outer, inner, { limiter: limiter, policy: '5 per 60m', cost: 4 }) do |get|
      answer = get.call('/')
      assert_equal %w[200 1], [answer.code, answer.body]
      assert_equal ['"b";r=9', '"a";r=8', '"5|hour";r=1'].sort, answer['ratelimit'].gsub(/;t=\d+/, '').split(', ').sort
      left = %w[a b 5/hour].map { |policy| limiter.peek('127.0.0.1', policy: policy).remaining }
      # Of several costs the highest is charged. What only the middleware relied on that does not count is refunded, and the
      # fields tell it.
      assert_equal [8, 9, 1], left
    end
    serve({ limiter: limiter, policy: 'a' }, { limiter: limiter, policy: 'a', key: ->(_) { 'another' } }) do |get|
      assert_equal '200', get.call('/').code
      assert_equal([7, 8], %w[127.0.0.1 another].map { |key| limiter.peek(key, policy: 'a').remaining })
    end
  end
end
