# frozen_string_literal: true

module Polylimit
  # Reads from the env what the guard needs.
  class RackEnv
    # The peer of a Unix socket.
    THIS_HOST = '127.0.0.1'
    PATH_PARAMETERS = 'action_dispatch.request.path_parameters'
    # What stands in PATH_INFO only as itself: servers that decode the path have cut off the query before.
    QUOTED = /[^\x21-\x7e]|[?#]/n.freeze
    # Rack::Protection, which Sinatra has in front of its router, takes a backslash for a slash. Rules count an escaped slash in both ways.
    BACKSLASH = /\\|%5c/i.freeze
    SLASH = '%2F'
    # The bit of a router that accepts a suffix such as `.json`.
    FORMAT_SUFFIX = 4
    SINATRA_ROUTE = 'sinatra.route'
    private_constant :THIS_HOST, :PATH_PARAMETERS, :QUOTED, :FORMAT_SUFFIX, :SINATRA_ROUTE, :BACKSLASH, :SLASH

    # Makes the reader of a guard's requests, with what the guard does not know.
    Maker = Struct.new(:reader, :format_suffix) do
      def new(parts, header)
        reader.new(parts, header, format_suffix)
      end
    end

    # `parts` are those of the key; `header` is the one in which proxies name the client; `format_suffix` says whether the router takes
    # a suffix off, or nil where the framework says it.
    def initialize(parts, header, format_suffix)
      GuardOptions.flag('format_suffix', format_suffix) unless format_suffix.nil?
      @format_suffix = format_suffix
      @parts = parts.map do |part|
        kind, name = part.split(':', 2)
        [kind, kind == 'header' ? variable(name) : name]
      end
      @forwarded = header && variable(header)
    end

    # The values of the parts of the key; nil where one is missing or empty. The guard finds the address.
    def parts(env)
      @parts.map { |kind, name| value(env, kind, name)&.then { |value| value unless value.empty? } }
    end

    def peer(env)
      peer = text(env['REMOTE_ADDR'])
      peer.nil? || peer.empty? ? THIS_HOST : peer
    end

    def forwarded(env)
      [@forwarded && env[@forwarded]].compact
    end

    def accept(env)
      text(env['HTTP_ACCEPT'])
    end

    # What has a budget of its own under quotas without a name: the place where the program is mounted. Rails' own router may have
    # taken parameters for it, which do not make budgets.
    def handler(env)
      mount = env['SCRIPT_NAME']
      return if mount.nil? || mount.empty?

      rails = env[PATH_PARAMETERS] && RackEnv.rails
      text(rails ? RailsRoute.mount(env, rails) : mount)
    end

    # The application of Rails, if there is one.
    def self.rails
      ::Rails.application if defined?(::Rails) && ::Rails.respond_to?(:application)
    end

    # What a configuration may be about, with what the application knows besides.
    def attributes(env, known)
      found = { user: env['REMOTE_USER'], route: route(env) }.reject { |_, value| value.nil? || value == '' }
      known = found.merge(known || {})
      headers = env.filter_map { |name, value| [field(name), value.to_s] if field?(name) && value }
      {
        method: env['REQUEST_METHOD'], path: path(env), peer: peer(env), headers: headers, attributes: known,
        router_paths: takes_suffix? ? FORMAT_SUFFIX : 0
      }
    end

    def method(env)
      text(env['REQUEST_METHOD']).to_s
    end

    def origin(env)
      text(env['HTTP_ORIGIN'])
    end

    # What a browser asks in a preflight.
    def requested_method(env)
      text(env['HTTP_ACCESS_CONTROL_REQUEST_METHOD']) if env['HTTP_ORIGIN']
    end

    private

    # The pattern of the route, where a router has found one before.
    def route(env)
      if env.key?(SINATRA_ROUTE)
        RailsRoute.joined(env['SCRIPT_NAME'].to_s, RailsRoute.translated(env[SINATRA_ROUTE].split(' ', 2).last))
      elsif env[PATH_PARAMETERS] && (rails = RackEnv.rails)
        RailsRoute.pattern(env, rails)
      end
    end

    # The program may load its framework after it has made the middleware.
    def takes_suffix?
      @format_suffix.nil? ? Frameworks.format_suffix? : @format_suffix
    end

    # The path as the router sees it, with the places where applications are mounted.
    def path(env)
      path = "#{env['SCRIPT_NAME']}#{env['PATH_INFO']}".b
      path = path.gsub(BACKSLASH, SLASH) if defined?(::Rack::Protection::PathTraversal) && path.match?(BACKSLASH)
      path.match?(QUOTED) ? path.gsub(QUOTED) { |byte| format('%%%02X', byte.ord) } : path
    end

    def field?(variable)
      variable.start_with?('HTTP_') || variable == 'CONTENT_TYPE' || variable == 'CONTENT_LENGTH'
    end

    # The name of the header that a variable of the env has.
    def field(variable)
      variable.delete_prefix('HTTP_').tr('_', '-').downcase
    end

    def value(env, kind, name)
      case kind
      when 'user' then plain('REMOTE_USER', env['REMOTE_USER'])
      when 'header' then env[name]
      when 'cookie' then cookie(env['HTTP_COOKIE'], name)
      when 'path' then env[PATH_PARAMETERS]&.then { |known| plain("the path parameter #{name}", known[name.to_sym] || known[name]) }
      end
    end

    # Objects have no text that stays the same for the same user.
    def plain(name, value)
      case value
      when nil, String then value
      when Symbol, Integer then value.to_s
      else raise InvalidArgument, "#{name} is #{Argument.described(value)}: allowed are strings, symbols and whole numbers"
      end
    end

    def cookie(header, name)
      pair = header&.b&.split(/; */)&.find { |one| one.start_with?("#{name}=".b) }
      pair&.delete_prefix("#{name}=".b)
    end

    # The name of a header in the env.
    def variable(header)
      name = header.upcase.tr('-', '_')
      %w[CONTENT_TYPE CONTENT_LENGTH].include?(name) ? name : "HTTP_#{name}"
    end

    # Rack's strings are bytes. What is not UTF-8 in them is nothing that is looked for, and takes nothing else along.
    def text(bytes)
      return bytes if bytes.nil? || bytes.ascii_only?

      bytes.dup.force_encoding(Encoding::UTF_8).scrub('?')
    end
  end
  private_constant :RackEnv
end
