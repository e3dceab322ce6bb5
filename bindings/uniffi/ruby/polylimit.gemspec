# frozen_string_literal: true

require_relative 'lib/polylimit/version'
require_relative 'lib/polylimit/frameworks'

Gem::Specification.new do |spec|
  spec.name = 'polylimit'
  spec.version = Polylimit::VERSION
  spec.summary = 'Exact rate limiting for Ruby and Rack: in memory, on a host, or in Redis.'
  spec.authors = ['The polylimit authors']
  spec.licenses = ['MIT', 'Apache-2.0']
  spec.required_ruby_version = '>= 3.1'
  # The native library is for one platform. That of a published gem has no suffix for glibc, which the RubyGems of Ruby 3.1 cannot read.
  spec.platform = ENV.fetch('POLYLIMIT_GEM_PLATFORM', Gem::Platform.local.to_s)
  # `native` copies the licences beside this file: a gem holds nothing from further out.
  spec.files = Dir.chdir(__dir__) { Dir['lib/**/*.{rb,so,dylib}', 'README.md', 'LICENSE-*', 'THIRD_PARTY_NOTICES'] }
  spec.add_dependency 'ffi', '~> 1.15'
  spec.add_dependency 'logger', '~> 1.4'
  spec.homepage = 'https://polylimit.dev'
  # The frameworks are the program's, and none of them is needed: the library refuses other versions where it meets them.
  frameworks = Polylimit::FRAMEWORKS.merge(Polylimit::LIMITED_INSIDE).to_h { |name, (oldest, too_new)| ["#{name.downcase.tr(' ', '')}_versions", ">= #{oldest}, < #{too_new}"] }
  spec.metadata = { 'homepage_uri' => spec.homepage, 'rubygems_mfa_required' => 'true', **frameworks }
  # Only what publishes knows its address.
  spec.metadata['source_code_uri'] = ENV['POLYLIMIT_REPOSITORY'] if ENV['POLYLIMIT_REPOSITORY']
end
