# frozen_string_literal: true

require 'active_support'
require 'active_support/notifications'
require_relative 'rack_case'

# The event that ActiveSupport has of each decision of the middleware.
class RackEventsTest < RackCase
  # What the subscriber receives about these requests.
  def heard(*middlewares, paths: ['/'])
    payloads = Queue.new
    subscriber = ActiveSupport::Notifications.subscribe('throttle.polylimit') { |event| payloads << event.payload }
    serve(*middlewares) { |get| paths.each { |path| get.call(path, 'X-Client' => 'alice') } }
    Array.new(payloads.size) { payloads.pop }
  ensure
    ActiveSupport::Notifications.unsubscribe(subscriber)
  end

  def test_every_decision_is_an_event_without_a_key
    admitted, denied, *others = heard({ limiter: limiter(api: '1/hour fixed_window'), key: ->(_) { 'hunter2' } }, paths: %w[/ /])
    assert_empty others
    expected = { policy: 'api', allowed: true, status: nil, source: 'store', cause: nil, degraded: nil, remaining: 0, retry_after: 0 }
    assert_equal expected, admitted
    wait = denied.delete(:retry_after)
    assert_includes 0..3600, wait
    assert_equal expected.merge(allowed: false, status: 429, cause: 'quota').except(:retry_after), denied
  end

  def test_key_of_an_event_is_what_the_program_says
    (event,) = heard({ limiter: limiter(api: '1/hour'), event_key: ->(env) { env['HTTP_X_CLIENT'] } })
    assert_equal 'alice', event[:key]
    error = assert_raises(Polylimit::InvalidArgument) { Polylimit::Rack.new(LEFT, limiter: limiter(api: '1/s'), event_key: 'user') }
    assert_match(/\Aevent_key is of the class String: allowed is what can be called/, error.message)
  end

  def test_event_is_about_the_policy_that_denies
    (event,) = heard({ limiter: limiter(a: '5/hour', b: '0/hour'), policy: %w[a b] })
    assert_equal ['b', false], event.values_at(:policy, :allowed)
  end

  def test_outage_says_what_answered_in_place_of_the_store
    lost = limiter('redis://127.0.0.1:1?deadline=50ms', api: { quotas: '1/hour', outage: 'deny' })
    (event,) = heard({ limiter: lost })
    assert_equal ['deny', false, 503], event.values_at(:source, :allowed, :status)
  end

  def test_requests_that_are_not_limited_are_no_events
    assert_empty heard({ limiter: limiter(api: '1/hour'), skip: ->(_) { true } })
  end
end
