# frozen_string_literal: true

require 'minitest/autorun'
require 'net/http'
require 'puma'
require 'rack/builder'
require 'rack/lint'
require 'rack/mock'
require 'socket'
require 'polylimit/rack'

class RackTest < Minitest::Test
  LEFT = lambda do |env|
    decided = env[Polylimit::Rack::RATE_LIMIT]
    [(env['PATH_INFO'][/\d+\z/] || 200).to_i, { 'content-type' => 'text/plain' }, [decided&.decision&.remaining.to_s]]
  end

  # Serves the application behind the middlewares with puma, and hands over how to send a request.
  def serve(*all)
    app = all.reverse.reduce(LEFT) { |inner, options| Polylimit::Rack.new(inner, **options) }
    server = Puma::Server.new(app, Puma::Events.strings, min_threads: 4, max_threads: 4)
    port = server.add_tcp_listener('127.0.0.1', 0).addr[1]
    server.run
    yield(->(path, fields = {}) { Net::HTTP.get_response(URI("http://127.0.0.1:#{port}#{path}"), fields) })
  ensure
    server&.stop(true)
  end

  def limiter(store = nil, **policies)
    Polylimit::Limiter.new(store, policies: policies)
  end

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

  def test_failed_refund_of_one_middleware_does_not_stop_the_others
    limiters = { a: limiter(a: '9/hour'), b: limiter(b: '9/hour'), c: limiter(c: '0/hour') }
    closing = ->(_) { limiters[:a].close && 'k' }
    options = limiters.map { |name, one| { limiter: one, key: name == :c ? closing : ->(_) { 'k' } } }
    serve(*options) do |get|
      assert_equal '429', get.call('/').code
      assert_equal 9, limiters[:b].peek('k').remaining
    end
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

  def test_invalid_options_are_refused_when_the_middleware_is_built
    two = limiter(a: '1/hour', b: '1/hour')
    {
      [] => /\Apolicy is an empty list: allowed is a policy's name/,
      ['a', nil] => /\Apolicy is nil: allowed is a policy's name/,
      [:a, '5/hour', 'a'] => /\Apolicy "a" is given twice: once is enough\z/,
      ['5/hour', '5 per 60m'] => /\Apolicy "5 per 60m" is given twice: once is enough\z/,
      'apy' => /\Apolicy "apy" is not known: this limiter has a, b\z/,
      '100/minut' => /minut/,
      5 => /\Apolicy is 5: allowed is text/
    }.each do |policy, message|
      error = assert_raises(Polylimit::InvalidArgument) { Polylimit::Rack.new(LEFT, limiter: two, policy: policy) }
      assert_match message, error.message
    end
    {
      { policy: nil } => /several/,
      { headers: 'IETF' } => /IETF/,
      { policy: '5/hour', scope: '' } => /allowed is a text of 1 to 256 bytes/,
      { scope: 5 } => /\Ascope is 5/,
      { limiter: nil } => /\Alimiter is nil: allowed is a Polylimit::Limiter/,
      { limiter: 'redis://localhost' } => /\Alimiter is of the class String/,
      { key: 'HTTP_USER' } => /\Akey part "HTTP_USER" cannot be read: allowed are address, user/,
      { key: 5 } => /\Akey is of the class Integer: allowed is what can be called/,
      { missing_key: 'no' } => /\Amissing key "no" is not known/, { status: '429' } => /\Astatus is "429"/,
      { status: 200 } => /\Astatus is 200: allowed is 400 to 599/, { dry_run: 1 } => /\Adry_run is 1/,
      { header_names: 'x' } => /\Aheader_names is of the class String/, { message: 5 } => /\Amessage is 5/,
      { methods: 5 } => /\Amethods is 5/,
      { skip: true } => /\Askip is of the class TrueClass/,
      { count: 1 } => /\Acount is of the class Integer/,
      { on_denied: 'no' } => /\Aon_denied is of the class String/,
      { on_outage: :admit } => /\Aon_outage is of the class Symbol/,
      { client_address: ['10.0.0.0/8'] } => /\Aclient_address is of the class Array/,
      { cost: -1 } => /\Acost is -1/, { cost: 0.5 } => /\Acost is 0.5/, { cost: 10**13 } => /\Acost is 10000000000000/,
      { limit: 5 } => /\Aunknown keyword: limit: use policy, with quotas such as/,
      { period: 60 } => /\Aunknown keyword: period: use policy/,
      { discriminator: 1 } => /\Aunknown keyword: discriminator: use key\z/,
      { within: 60 } => /\Aunknown keyword: within: use policy/, { by: 1 } => /\Aunknown keyword: by: use key\z/,
      { colour: 'red' } => /\Aunknown keyword: colour: allowed are limiter, policy, scope/
    }.each do |options, message|
      error = assert_raises(Polylimit::InvalidArgument, options) do
        Polylimit::Rack.new(LEFT, **{ limiter: two, policy: 'a' }.merge(options))
      end
      assert_match message, error.message
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

  def test_policy_and_key_are_charged_once_a_request
    limiter = limiter(a: '9/hour', b: '9/hour')
    outer = { limiter: limiter, policy: ['a', '5/hour'] }
    inner = { limiter: limiter.asynchronous, policy: %w[b a], count: ->(*) { false } }
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

  def test_denial_of_an_inner_middleware_removes_the_field_of_an_outage
    lost = limiter('redis://127.0.0.1:1?deadline=50ms', out: { quotas: '1/hour', outage: 'allow' })
    serve({ limiter: lost }, { limiter: limiter(in: '0/hour') }) do |get|
      denied = get.call('/')
      assert_equal ['429', nil], [denied.code, denied['x-ratelimit-outage']]
    end
    serve({ limiter: lost }) { |get| assert_equal 'allow', get.call('/')['x-ratelimit-outage'] }
  end
end
