# frozen_string_literal: true

require_relative 'rack_case'

# Policies of one limit with costs of their own: the tokens of a request under one, the request itself under another.
class RackCostsTest < RackCase
  POLICIES = { tokens: '10000/day fixed_window', requests: '3/day fixed_window' }.freeze

  def setup
    @limiter = limiter(**POLICIES)
    @options = { limiter: @limiter, policy: %w[tokens requests], key: ->(_) { 'k' } }
  end

  def left
    %w[tokens requests].map { |policy| @limiter.peek('k', policy: policy).remaining }
  end

  def assert_soon_left(*remaining)
    2000.times.any? { left == remaining || (sleep(0.01) && false) }
    assert_equal remaining, left
  end

  def tokens(units)
    { 'x-tokens' => units.to_s }
  end

  def refusal(**options)
    assert_raises(Polylimit::InvalidArgument) { Polylimit::Rack.new(LEFT, **@options, **options) }.message
  end

  def test_tokens_and_requests_are_limited_together
    serve({ **@options, cost: { 'tokens' => ->(env) { env['HTTP_X_TOKENS'].to_i } } }) do |get|
      assert_equal ['200', [6000, 2]], [get.call('/', tokens(4000)).code, left]
      denied = get.call('/', tokens(6001))
      # A denial by one spends nothing under the other.
      assert_equal ['429', [6000, 2]], [denied.code, left]
      assert_match(/"violated-policies":\["tokens"\]/, denied.body)
      assert_equal(%w[200 200 429], Array.new(3) { get.call('/', tokens(1)).code })
      assert_equal [5998, 0], left
    end
  end

  def test_costs_are_numbers_or_functions_by_names_or_quotas
    per_hour = '100/hour fixed_window'
    options = { **@options, policy: [:tokens, per_hour, :requests], cost: { tokens: 4000, per_hour => ->(_) { 30 } } }
    serve(options) { |get| assert_equal '2', get.call('/').body }
    assert_equal [6000, 2], left
    assert_equal 70, @limiter.peek('k', policy: per_hour).remaining
  end

  def test_what_was_spent_under_a_policy_settles_what_was_reserved
    during = nil
    app = lambda do |_|
      during = left
      [404, {}, []]
    end
    _, _, body = Polylimit::Rack.new(app, **@options, cost: { tokens: 4000 }, spent: { tokens: ->(_, status, _) { status } }).call(env)
    assert_equal [[6000, 2], [6000, 2]], [during, left]
    body.close
    assert_soon_left 9596, 2
  end

  def test_what_is_not_known_or_not_allowed_is_the_cost
    answers = [nil, -1, 'all']
    spent = { tokens: ->(*) { answers.shift }, requests: ->(*) { 0 } }
    app = Polylimit::Rack.new(->(_) { [200, {}, []] }, **@options, cost: { tokens: 100 }, spent: spent)
    app.call(env).last.close
    assert_soon_left 9900, 3
    [[9800, 2], [9700, 1]].each do |remaining|
      error = assert_raises(Polylimit::InvalidArgument) { app.call(env).last.close }
      assert_match(/\Aspent for policy "tokens" is/, error.message)
      assert_soon_left(*remaining)
    end
  end

  def test_cost_that_a_function_returns_is_checked
    { nil => /\Athe request has no cost for policy "tokens"/, -1 => /\Acost for policy "tokens" is -1: allowed is 0 or more/,
      0.5 => /\Acost for policy "tokens" is 0.5: allowed are whole numbers/, 10**13 => /\Acost is 10000000000000/ }.each do |units, message|
      app = Polylimit::Rack.new(LEFT, **@options, cost: { tokens: ->(_) { units } })
      assert_match message, assert_raises(Polylimit::InvalidArgument) { app.call(env) }.message
    end
    assert_equal [10_000, 3], left
  end

  def test_costs_that_no_policy_of_the_list_can_have_are_refused
    unknown = 'which the limit does not have: allowed are "tokens", "requests"'
    assert_equal "cost is given for policy \"token\", #{unknown}", refusal(cost: { token: 5 })
    assert_equal "cost is given for policy \"token\", #{unknown}", refusal(cost: { 'token' => ->(_) { 5 } })
    assert_equal "spent is given for policy \"token\", #{unknown}", refusal(spent: { token: ->(*) { 5 } })
    {
      { cost: { tokens: -1 } } => /\Acost for policy "tokens" is -1: allowed is 0 or more/,
      { cost: { tokens: '5' } } => /\Acost for policy "tokens" is "5": allowed are whole numbers/,
      { cost: { tokens: nil } } => /\Acost for policy "tokens" is nil: leave the policy out of the hash/,
      { cost: { nil => 5 } } => /\Aa policy of cost is nil/,
      { cost: { requests: 4 } } => /\Acost is 4 for policy "requests", which never admits more than 3 at once/,
      { spent: { tokens: 5 } } => /\Aspent for policy "tokens" is of the class Integer: allowed is what can be called/,
      { policy: ->(_) { 'tokens' }, cost: { tokens: 5 } } => /\Acost is given for single policies, and each request brings its policies/
    }.each { |options, message| assert_match message, refusal(**options) }
  end

  def test_only_policy_of_a_limiter_may_be_named
    only = limiter(only: '10/hour fixed_window')
    serve({ limiter: only, cost: { only: ->(_) { 4 } } }) { |get| assert_equal '6', get.call('/').body }
    error = assert_raises(Polylimit::InvalidArgument) { Polylimit::Rack.new(LEFT, limiter: only, cost: { tokens: 4 }) }
    assert_match(/does not have: allowed is "only"\z/, error.message)
  end

  private

  def env
    { 'REQUEST_METHOD' => 'GET', 'REMOTE_ADDR' => '127.0.0.1' }
  end
end
