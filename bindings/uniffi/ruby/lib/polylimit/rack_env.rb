# frozen_string_literal: true

module Polylimit
  # Reads from the env what the guard needs.
  class RackEnv
    # The peer of a Unix socket.
    THIS_HOST = '127.0.0.1'
    PATH_PARAMETERS = 'action_dispatch.request.path_parameters'
    private_constant :THIS_HOST, :PATH_PARAMETERS

    # `parts` are those of the key; `header` is the one in which proxies name the client.
    def initialize(parts, header)
      @parts = parts.map do |part|
        kind, name = part.split(':', 2)
        [kind, kind == 'header' ? variable(name) : name]
      end
      @forwarded = header && variable(header)
    end

    # The values of the parts of the key; nil where one is missing. The guard finds the address.
    def parts(env)
      @parts.map { |kind, name| value(env, kind, name)&.to_s }
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

    # What a configuration may be about, with what the application knows besides.
    def attributes(env, known)
      user = env['REMOTE_USER']
      known = { user: user }.merge(known || {}) unless user.to_s.empty?
      headers = env.filter_map { |name, value| [field(name), value.to_s] if field?(name) && value }
      { method: env['REQUEST_METHOD'], path: "#{env['SCRIPT_NAME']}#{env['PATH_INFO']}", peer: peer(env), headers: headers, attributes: known }
    end

    def method(env)
      text(env['REQUEST_METHOD']).to_s
    end

    private

    def field?(variable)
      variable.start_with?('HTTP_') || variable == 'CONTENT_TYPE' || variable == 'CONTENT_LENGTH'
    end

    # The name of the header that a variable of the env has.
    def field(variable)
      variable.delete_prefix('HTTP_').tr('_', '-').downcase
    end

    def value(env, kind, name)
      case kind
      when 'user' then env['REMOTE_USER'].then { |user| user unless user.to_s.empty? }
      when 'header' then env[name]
      when 'cookie' then cookie(env['HTTP_COOKIE'], name)
      when 'path' then env[PATH_PARAMETERS]&.then { |known| known[name.to_sym] || known[name] }
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

    # Rack's strings are bytes. What is not UTF-8 in them is nothing that is looked for, and takes nothing beside it along.
    def text(bytes)
      return bytes if bytes.nil? || bytes.ascii_only?

      bytes.dup.force_encoding(Encoding::UTF_8).scrub('?')
    end
  end
  private_constant :RackEnv
end
