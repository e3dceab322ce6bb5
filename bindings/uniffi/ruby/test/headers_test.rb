# frozen_string_literal: true

require 'json'
require 'minitest/autorun'
require 'polylimit'

# Fields and responses of decisions that a program has made itself.
class HeadersTest < Minitest::Test
  def setup
    @limiter = Polylimit::Limiter.new(policies: { api: '5/minute', day: '9/day; 100/week' }, clock: Polylimit::ManualClock.new(0))
  end

  def teardown
    @limiter.close
  end

  def outcome(policy, cost)
    Polylimit::Outcome.new(@limiter.policy_for(policy), @limiter.check('key', policy: policy, cost: cost))
  end

  def test_fields_of_one_policy_and_of_several
    first = outcome('api', 2)
    assert_equal({ 'ratelimit-policy' => '"api";q=5;w=60', 'ratelimit' => '"api";r=3;t=66' }, Polylimit.header_fields(first))
    both = Polylimit.header_fields([first, outcome('day', 1)])
    assert_equal '"api";q=5;w=60, "day:1";q=9;w=86400, "day:2";q=100;w=604800', both['ratelimit-policy']
    assert_empty Polylimit.header_fields([])
  end

  def test_fields_have_the_style_the_form_and_the_names_of_the_options
    fields = Polylimit.header_fields(outcome('api', 2), headers: 'legacy x-ratelimit-limit=x-limit')
    assert_equal({ 'x-limit' => '5', 'x-ratelimit-remaining' => '3', 'x-ratelimit-reset' => '66' }, fields)
    before = Time.now.to_i
    fields = Polylimit.header_fields(outcome('api', 2), headers: 'legacy epoch')
    assert_operator fields['x-ratelimit-reset'].to_i, :>, before
    assert_equal({ 'retry-after' => '66' }, Polylimit.header_fields(outcome('api', 5), headers: 'none'))
  end

  def test_problem_of_a_denial
    assert_nil Polylimit.problem_of(outcome('api', 4))
    denied = outcome('api', 2)
    problem = Polylimit.problem_of(denied, cost: 2)
    assert_equal [429, ['api'], 'Not enough of the quota is left: retry in 62 s.'], [problem.status, problem.violated, problem.detail]
    assert_equal({ 'content-type' => 'application/problem+json', 'vary' => 'accept' }, problem.fields)
    assert_equal({ 'status' => 429, 'violated-policies' => ['api'] }, JSON.parse(problem.body).slice('status', 'violated-policies'))
    assert_equal "#{problem.detail}\n", Polylimit.problem_of([denied], cost: 2, accept: 'text/plain').body
    # One unit is left, so none is missing for another request.
    assert_equal ['day:1'], Polylimit.problem_of([outcome('api', 1), outcome('day', 10)], cost: 10).violated
  end

  def test_outcomes_of_quotas_without_a_name
    decision = @limiter.check('key', policy: '3/second')
    fields = Polylimit.header_fields(Polylimit::Outcome.new(@limiter.policy_for('3/second'), decision))
    assert_equal '"3|second";q=3;w=1', fields['ratelimit-policy']
  end

  def test_what_is_not_allowed_is_refused
    good = outcome('api', 1)
    [-> { Polylimit.header_fields(good, headers: 'new') }, -> { Polylimit.header_fields(good, headers: 'x=y') },
     -> { Polylimit.header_fields(good.decision) }, -> { Polylimit.header_fields(Polylimit::Outcome.new('api', good.decision)) },
     -> { Polylimit.problem_of(good, cost: -1) }, -> { Polylimit.problem_of([nil]) }, -> { Polylimit.problem_of(good, accept: 1) }]
      .each { |call| assert_raises(Polylimit::InvalidArgument) { call.call } }
  end
end
