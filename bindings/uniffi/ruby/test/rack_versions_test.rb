# frozen_string_literal: true

require 'minitest/mock'
require 'rack'
require_relative 'rack_case'

# Which versions of the frameworks the middleware is made for.
class RackVersionsTest < RackCase
  def check(**versions)
    Polylimit.const_get(:Frameworks).check(versions.transform_keys(&:to_s))
  end

  def test_supported_versions_pass
    { Rack: %w[2.2 2.2.22 3.0.0 3.2.7], Rails: %w[6.1.7.10 7.1.0 8.2.0.alpha], Sinatra: %w[3.0.5 4.2.1] }.each do |name, versions|
      versions.each { |version| check(name => version) }
    end
  end

  def test_others_are_refused_with_a_sentence
    { Rack: %w[2.1.4 4.0.0 4.0.0.alpha], Rails: %w[6.0.6 9.0.0.beta1], Sinatra: %w[2.2.4 5.0.0] }.each do |name, versions|
      versions.each do |version|
        error = assert_raises(Polylimit::InvalidArgument) { check(name => version) }
        assert_match(/\A#{name} is #{Regexp.escape(version)}: allowed is [\d.]+ or newer, below \d: use a version between them/, error.message)
      end
    end
  end

  def test_the_middleware_is_not_made_with_an_unsupported_version
    ::Rack.stub(:release, '1.6.13') do
      error = assert_raises(Polylimit::InvalidArgument) { Polylimit::Rack.new(LEFT, limiter: limiter(api: '1/s')) }
      assert_match(/\ARack is 1\.6\.13/, error.message)
    end
    assert Polylimit::Rack.new(LEFT, limiter: limiter(api: '1/s'))
  end

  def test_the_gem_names_the_versions
    gem = Gem::Specification.load(File.expand_path('../polylimit.gemspec', __dir__))
    assert_equal ['>= 2.2, < 4', '>= 6.1, < 9', '>= 3, < 5'], gem.metadata.values_at('rack_versions', 'rails_versions', 'sinatra_versions')
  end
end
