# frozen_string_literal: true

require 'rack/lint'
require 'rack/mock'
require_relative 'rack_case'

# What clients read in responses: fields of their limits, and the default response to a denial.
class RackFieldsTest < RackCase
  def test_exactly_the_limit_passes_and_header_fields_show_it
    ['memory:', "local:rack-#{Process.pid}?size=1MiB", ENV.fetch('POLYLIMIT_REDIS')].each do |store|
      name = "api#{Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)}"
      serve({ limiter: limiter(store, name => '20/hour fixed_window'), headers: :both }) do |get|
        answers = Array.new(4) { Thread.new { Array.new(8) { get.call('/') } } }.flat_map(&:value)
        passed, denied = answers.partition { |answer| answer.code == '200' }
        assert_equal (0..19).to_a, passed.map { |answer| answer.body.to_i }.sort, store
        assert_equal ['429'] * 12, denied.map(&:code), store
        answers.each { |answer| assert_equal "\"#{name}\";q=20;w=3600", answer['ratelimit-policy'] }
        answers.each { |answer| assert_equal '20', answer['x-ratelimit-limit'] }
        assert(passed.none? { |answer| answer['retry-after'] })
        assert(denied.all? { |answer| answer['retry-after'].to_i.between?(1, 3600) })
        assert_equal ['application/problem+json', 'accept'], [denied[0]['content-type'], denied[0]['vary']]
        assert_includes denied[0].body, "\"violated-policies\":[\"#{name}\"]"
        assert_equal 'text/plain; charset=utf-8', get.call('/', 'accept' => 'text/plain')['content-type']
      end
    end
  end

  def test_header_fields_of_several_policies_and_middlewares_are_merged
    limiter = limiter(a: '1/hour', b: '5/hour', c: '9/hour')
    serve({ limiter: limiter, policy: %w[a b] }, { limiter: limiter, policy: 'c' }) do |get|
      assert_equal 3, get.call('/')['ratelimit-policy'].split(', ').size
      3.times { assert_equal '429', get.call('/').code }
      assert_equal 4, limiter.peek('127.0.0.1', policy: 'b').remaining
      assert_equal 8, limiter.peek('127.0.0.1', policy: 'c').remaining
    end
  end

  def test_header_fields_include_the_refund_of_a_response_that_does_not_count
    limiter = limiter(api: '5/hour fixed_window', out: '9/hour fixed_window')
    uncounted = { limiter: limiter, policy: 'api', count: ->(_, status, _) { status >= 400 }, headers: 'both' }
    counted = { limiter: limiter, policy: 'out', headers: 'both' }
    [[uncounted, counted], [counted, uncounted]].each_with_index do |middlewares, at|
      serve(*middlewares) do |get|
        answer = get.call('/200')
        assert_equal ['"api";r=5', %("out";r=#{8 - at})], answer['ratelimit'].gsub(/;t=\d+/, '').split(', ').sort
        assert_equal '5', answer['x-ratelimit-remaining']
      end
    end
    serve(uncounted) { |get| assert_includes get.call('/401')['ratelimit'], '"api";r=4' }
    assert_equal [4, 7], (%w[api out].map { |policy| limiter.peek('127.0.0.1', policy: policy).remaining })
  end

  def test_fields_of_the_application_stay_after_a_refund
    own = ->(_) { [200, { 'ratelimit' => 'own' }, []] }
    app = Polylimit::Rack.new(own, limiter: limiter(api: '5/hour'), count: ->(*) { false })
    headers = app.call({ 'REMOTE_ADDR' => '192.0.2.1' })[1]
    assert_equal ['own', '"api";q=5;w=3600'], headers.values_at('ratelimit', 'ratelimit-policy')
  end

  def test_denial_of_an_inner_middleware_includes_the_refund
    limiter = limiter(out: '2/hour fixed_window', in: '0/hour')
    serve({ limiter: limiter, policy: 'out' }, { limiter: limiter, policy: 'in' }) do |get|
      denied = get.call('/')
      assert_equal '429', denied.code
      assert_match(/"out";r=2/, denied['ratelimit'])
    end
  end

  def test_on_denied_that_returns_nil_keeps_the_default_response
    heard = Queue.new
    listen = lambda do |_, denial|
      heard << denial.problem.status
      nil
    end
    serve({ limiter: limiter(api: '0/hour'), on_denied: listen }) do |get|
      denied = get.call('/')
      assert_equal %w[429 application/problem+json], [denied.code, denied['content-type']]
      assert_equal [429], Array.new(heard.size) { heard.pop }
    end
  end

  # Calls the application behind the middlewares, every one of which is looked at by Rack's own checks.
  def linted(*all)
    app = lambda do |env|
      [200, { 'content-type' => 'text/plain' }, env['REQUEST_METHOD'] == 'HEAD' ? [] : ['here']]
    end
    limited = all.reverse.reduce(app) do |inner, options|
      ::Rack::Lint.new(Polylimit::Rack.new(::Rack::Lint.new(inner), **options))
    end
    ::Rack::MockRequest.new(limited)
  end

  def test_responses_conform_to_rack
    limiter = limiter(api: '1/hour')
    { 'GET' => /\A{.*quota/, 'HEAD' => /\A\z/ }.each do |method, body|
      limiter.reset('127.0.0.1')
      request = linted({ limiter: limiter, headers: :both })
      assert_equal 200, request.request(method, '/', fatal: true).status
      denied = request.request(method, '/', fatal: true)
      assert_equal [429, 'application/problem+json'], [denied.status, denied['content-type']]
      assert denied['retry-after']
      assert_match body, denied.body
    end
  end
end
