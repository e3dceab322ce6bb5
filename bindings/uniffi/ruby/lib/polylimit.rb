# frozen_string_literal: true

# Exact rate limiting: in memory, on a host, or in Redis.
module Polylimit
  # The native library, which is part of the gem.
  LIBRARY = File.expand_path("polylimit/libpolylimit_uniffi.#{RUBY_PLATFORM.include?('darwin') ? 'dylib' : 'so'}", __dir__)
end

require_relative 'polylimit/version'
require_relative 'polylimit/names'
require_relative 'polylimit/blocking_calls'
require_relative 'polylimit/span'
begin
  require_relative 'polylimit/polylimit_native'
rescue LoadError => e
  # Another gem may be missing.
  raise unless e.message.include?(Polylimit::LIBRARY)

  advice = if File.exist?(Polylimit::LIBRARY)
             'the file must be complete and lie on a file system that allows programs (mounted without noexec), and the system needs ' \
               "the C library of the gem's platform"
           else
             'install the gem of this platform; a checkout of the sources has none until it is built'
           end
  raise LoadError, "polylimit cannot load its native library for #{RUBY_PLATFORM}: #{e.message}: #{advice}"
end
require_relative 'polylimit/errors'
require_relative 'polylimit/argument'
require_relative 'polylimit/server_wait'
require_relative 'polylimit/decision'
require_relative 'polylimit/answer_reader'
require_relative 'polylimit/direct'
require_relative 'polylimit/waiting'
require_relative 'polylimit/events'
require_relative 'polylimit/credentials'
require_relative 'polylimit/reservation'
require_relative 'polylimit/configuration'
require_relative 'polylimit/list_options'
require_relative 'polylimit/calls'
require_relative 'polylimit/admin'
require_relative 'polylimit/limiter'
require_relative 'polylimit/guard_check'
require_relative 'polylimit/headers'
require_relative 'polylimit/guard_options'
require_relative 'polylimit/guard'
