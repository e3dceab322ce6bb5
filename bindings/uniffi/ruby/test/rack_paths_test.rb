# frozen_string_literal: true

require 'rack'
require_relative 'rack_case'

# The path of a request, as the rules of a document and budgets see it.
class RackPathsTest < RackCase
  # An example of the documentation may have loaded Grape, whose routers drop suffixes.
  def setup
    super
    @grape = Object.send(:remove_const, :Grape) if defined?(::Grape)
  end

  def teardown
    Object.const_set(:Grape, @grape) if @grape
    super
  end

  DOCUMENT = <<~TOML
    polylimit = 1
    [policies.p]
    quotas = "100/hour fixed_window"
    [[rules]]
    match = { path = "%s" }
    apply = [{ policy = "p", key = "k" }]
  TOML

  # Which of these requests a rule for the path limits.
  def limited(rule, paths, **options)
    app = Polylimit::Rack.new(LEFT, limiter: Polylimit::Limiter.new(document: format(DOCUMENT, rule)), **options)
    paths.select do |script_name, path|
      env = { 'REQUEST_METHOD' => 'GET', 'SCRIPT_NAME' => script_name, 'PATH_INFO' => path, 'REMOTE_ADDR' => '192.0.2.7' }
      !app.call(env)[1]['ratelimit'].nil?
    end
  end

  def plain(paths)
    paths.map { |path| ['', path] }
  end

  def test_the_path_has_the_places_where_applications_are_mounted
    paths = [['/v1', '/users/7'], ['', '/v1/users/7'], ['/v1/users', '/7'], ['', '/users/7'], ['/v2', '/users/7']]
    assert_equal paths.first(3), limited('/v1/users/{id}', paths)
  end

  def test_a_path_that_the_server_has_decoded_is_what_its_router_sees
    # A query is never in it, so that these are characters of a segment.
    spelled = plain(['/a?b/c', '/a#b/c', "/a\xE9b/c".b, "/a\xC3\xA9b/c", '/a b/c'])
    assert_equal spelled, limited('/{x}/c', spelled)
    assert_empty limited('/login', plain(%w[/login?x /login#x]))
  end

  def test_a_suffix_is_dropped_where_the_router_drops_it
    paths = plain(%w[/login /login.json /login.x /login.json;a=1 /login/ /login.j%2Fson])
    kept = plain(%w[/login /login/])
    assert_equal kept, limited('/login', paths)
    assert_equal kept, limited('/login', paths, format_suffix: false)
    assert_equal paths, limited('/login', paths, format_suffix: true)
    error = assert_raises(Polylimit::InvalidArgument) { limited('/login', paths, format_suffix: 'json') }
    assert_equal 'format_suffix is "json": allowed are true and false', error.message
  end

  def test_matrix_parameters_and_case_are_compared
    paths = plain(%w[/login;a=1 /LOGIN /login%3Ba=1])
    assert_empty limited('/login', paths)
    assert_empty limited('/login', paths, format_suffix: true)
  end

  def test_grape_takes_a_suffix
    Object.const_set(:Grape, Module.new.tap { |grape| grape.const_set(:API, Class.new) })
    assert_equal plain(%w[/login.json]), limited('/login', plain(%w[/login.json]))
  ensure
    Object.send(:remove_const, :Grape)
  end

  def test_quotas_without_a_name_have_a_budget_for_each_mount
    limiter = Polylimit::Limiter.new
    app = ::Rack::Builder.new do
      %w[/a /b].each do |mount|
        map mount do
          use Polylimit::Rack, limiter: limiter, policy: '1/hour fixed_window'
          run LEFT
        end
      end
    end.to_app
    send = ->(path) { app.call(::Rack::MockRequest.env_for('/').merge('PATH_INFO' => path, 'REMOTE_ADDR' => '192.0.2.7')).first }
    assert_equal([200, 200, 429, 429], %w[/a/200 /b/200 /a/200 //b/200].map { |path| send.call(path) })
  end
end
