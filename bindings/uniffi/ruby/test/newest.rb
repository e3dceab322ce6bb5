# frozen_string_literal: true

# What is run with the newest frameworks, too: the middleware, without servers but Puma. `bindings/uniffi/ruby/newest` has them.
require_relative 'watch'
%w[configuration events keys options paths refund methods versions].each { |name| require_relative "rack_#{name}_test" }
require_relative 'guard_test'
