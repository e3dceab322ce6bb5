# frozen_string_literal: true

module Polylimit
  # The frameworks that the middleware and the limits of handlers are made for: the oldest version, and the first one that is too new.
  FRAMEWORKS = { 'Rack' => %w[2.2 4], 'Rails' => %w[6.1 9], 'Sinatra' => %w[3 5] }.freeze
  # The same for those that are checked only where a program limits in them.
  LIMITED_INSIDE = { 'Grape' => %w[1.6 2], 'Sidekiq' => %w[6.4 9], 'Active Job' => %w[6.1 9] }.freeze

  # Which frameworks the program has.
  module Frameworks
    module_function

    # Refuses versions among those that are loaded that the library was not made for, before a request finds out.
    def check(loaded = Frameworks.loaded)
      loaded.each do |name, version|
        oldest, too_new = FRAMEWORKS.fetch(name) { LIMITED_INSIDE.fetch(name) }
        next if Gem::Version.new(version).between?(Gem::Version.new(oldest), Gem::Version.new("#{too_new}.a"))

        raise InvalidArgument, "#{name} is #{version}: allowed is #{oldest} or newer, below #{too_new}: use a version between them, or " \
                               'another version of polylimit'
      end
    end

    # The versions of the frameworks that the program has loaded.
    def loaded
      {
        'Rack' => (::Rack.release if defined?(::Rack) && ::Rack.respond_to?(:release)),
        'Rails' => (::Rails::VERSION::STRING if defined?(::Rails::VERSION::STRING)),
        'Sinatra' => (::Sinatra::VERSION if defined?(::Sinatra::VERSION))
      }.compact
    end

    # Whether the router behind takes `/login.json` for `/login`: Rails' does, and so does Grape's.
    def format_suffix?
      !RackEnv.rails.nil? || !defined?(::Grape::API).nil?
    end
  end
  private_constant :Frameworks
end
