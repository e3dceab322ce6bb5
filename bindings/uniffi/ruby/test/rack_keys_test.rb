# frozen_string_literal: true

require_relative 'rack_case'

# By what requests are counted: keys, addresses, costs and scopes.
class RackKeysTest < RackCase
  def test_skip_cost_key_and_count_apply_to_each_request
    limiter = limiter(api: '5/hour')
    options = {
      limiter: limiter, skip: ->(env) { env['PATH_INFO'] == '/free' },
      cost: ->(env) { env['PATH_INFO'] == '/dear' ? 3 : 1 }, key: ->(env) { env['HTTP_USER'] || 'nobody' },
      count: ->(_, status, _) { status >= 400 }
    }
    serve(options) do |get|
      assert_nil get.call('/free')['ratelimit']
      9.times { assert_equal '200', get.call('/200', 'user' => 'a').code }
      assert_equal 5, limiter.peek('a').remaining
      assert_equal '401', get.call('/401', 'user' => 'a').code
      assert_equal 4, limiter.peek('a').remaining
      assert_equal '2', get.call('/dear', 'user' => 'b').body
    end
  end

  def test_on_denied_makes_the_response_and_trusted_proxies_name_the_client
    rules = Polylimit::ClientAddressRules.new(['loopback'], 'x-forwarded-for')
    teapot = ->(_, denial) { [418, {}, [denial.problem.detail]] }
    serve({ limiter: limiter(api: '1/hour'), client_address: rules, on_denied: teapot }) do |get|
      from = ->(address) { get.call('/', 'x-forwarded-for' => "192.0.2.1, #{address}") }
      assert_equal(%w[200 200 418], %w[203.0.113.7 203.0.113.8 203.0.113.7].map { |address| from.call(address).code })
      assert_match(/\ANot enough of the quota is left/, from.call('203.0.113.7').body)
    end
  end

  def test_header_fields_and_keys_may_contain_any_bytes
    limiter = limiter(api: '1/hour')
    rules = Polylimit::ClientAddressRules.new(['loopback'], 'x-forwarded-for')
    serve({ limiter: limiter, client_address: rules }) do |get|
      from = ->(line) { get.call('/', 'x-forwarded-for' => line.b, 'accept' => "text/plain, \xff\xc3".b) }
      assert_equal '200', from.call("\xe9\xc3, 192.0.2.1").code
      denied = from.call("\xc3\xa9,192.0.2.1")
      assert_equal ['429', 'text/plain; charset=utf-8'], [denied.code, denied['content-type']]
    end
    serve({ limiter: limiter, key: ->(env) { env['HTTP_USER'] } }) do |get|
      codes = ["\xff\xc3", "\xff\xc3", "\xfe\xc3"].map { |key| get.call('/', 'user' => key.b).code }
      assert_equal %w[200 429 200], codes
      assert_equal 0, limiter.peek("\xff\xc3".b).remaining
    end
  end

  def test_peer_without_an_address_counts_as_this_host
    limiter = limiter(api: '9/hour')
    app = Polylimit::Rack.new(LEFT, limiter: limiter)
    [{}, { 'REMOTE_ADDR' => nil }, { 'REMOTE_ADDR' => '' }].each do |env|
      assert_equal 200, app.call(env.merge('PATH_INFO' => '/')).first
    end
    assert_equal 6, limiter.peek('127.0.0.1').remaining
  end

  def test_request_without_a_key_counts_for_its_address_and_an_integer_is_a_key
    limiter = limiter(api: '5/hour')
    app = Polylimit::Rack.new(LEFT, limiter: limiter, key: ->(env) { env['user'] })
    env = { 'REMOTE_ADDR' => '192.0.2.7', 'PATH_INFO' => '/' }
    assert_equal 200, app.call(env.dup).first
    assert_equal 4, limiter.peek('192.0.2.7').remaining
    2.times { assert_equal 200, app.call(env.merge('user' => 42)).first }
    assert_equal 3, limiter.peek('42').remaining
    broken = Polylimit::Rack.new(LEFT, limiter: limiter, key: ->(_) { raise KeyError, 'no user' })
    assert_raises(KeyError) { broken.call(env.dup) }
  end

  def test_key_has_the_parts_of_the_request
    limiter = limiter(api: '5/hour')
    part = Polylimit::KeyPart
    env = { 'REMOTE_ADDR' => '192.0.2.1', 'REMOTE_USER' => 'ann', 'HTTP_COOKIE' => 'c=d; a=b', 'PATH_INFO' => '/',
            'action_dispatch.request.path_parameters' => { team: 7 }, 'HTTP_X_TAG' => 'one, two', 'CONTENT_TYPE' => 'a/b' }
    {
      part.address => '192.0.2.1', [part.user, part.address] => 'user:ann|192.0.2.1', :user => 'user:ann',
      [part.path('team'), part.cookie('a')] => 'path:team:7|cookie:a:b', 'header:X-Tag' => 'x-tag:one, two',
      part.header('Content-Type') => 'content-type:a/b'
    }.each do |key, expected|
      limiter.reset(expected)
      assert_equal 200, Polylimit::Rack.new(LEFT, limiter: limiter, key: key).call(env.dup).first
      assert_equal 4, limiter.peek(expected).remaining, expected
    end
    strict = Polylimit::Rack.new(LEFT, limiter: limiter, key: :user, missing_key: 'refuse')
    assert_equal([400, 400, 200], ['', nil, 'bob'].map { |user| strict.call(env.merge('REMOTE_USER' => user)).first })
  end

  def test_unnamed_quotas_have_separate_states_in_each_scope
    limiter = limiter(api: '9/hour')
    env = { 'REMOTE_ADDR' => '192.0.2.7', 'PATH_INFO' => '/' }
    left = lambda do |**options|
      Polylimit::Rack.new(LEFT, limiter: limiter, **options).call(env.dup).last.first.to_i
    end
    assert_equal 4, left.call(policy: '5/hour', scope: '/login')
    assert_equal 4, left.call(policy: '5/hour', scope: '/search')
    assert_equal 4, left.call(policy: '5/hour')
    assert_equal 3, left.call(policy: '5 per hour', scope: '/login')
    # One that has a name is shared.
    assert_equal 8, left.call(policy: 'api', scope: '/login')
    assert_equal 7, left.call(scope: '/search')
  end
end
