# frozen_string_literal: true

module Polylimit
  # One request within one limit, from the decision to the end of its response.
  class RackPassage
    # The name of the decisions in the env.
    RATE_LIMIT = 'polylimit.rate_limit'
    # The fields that the limits on a request have written, so that those of an application are distinguished.
    FIELDS = 'polylimit.fields'
    CHECK = 'polylimit.check'
    # What Rack::Cors leaves in the env: whether it knows the origin.
    CORS = 'rack.cors'
    ALLOWED_ORIGIN = 'access-control-allow-origin'
    private_constant :CHECK, :CORS, :ALLOWED_ORIGIN

    # The passage of a request through the limit of a guard, or nil for a request that is not limited.
    def self.enter(guard, events, env)
      outer = env[CHECK]
      check = guard.decide(env, outer)
      return unless check

      events.decided(env, check)
      new(guard, env, check, outer)
    end

    # The response to a request that does not proceed, or nil.
    attr_reader :denial

    def initialize(guard, env, check, outer)
      @guard = guard
      @env = env
      @check = check
      @outer = outer
      env[RATE_LIMIT] = check.rate_limit
      env[FIELDS] = check.fields
      @denial = check.problem ? deny : nil
      env[CHECK] = check unless @denial
    end

    # The response of the application, with the fields of all limits.
    def finished(status, headers, body)
      headers = @env[FIELDS].merge(headers)
      left = finish(status, headers)
      headers = rewritten(headers, left) if left
      return [status, headers, body] unless @check.holds?

      @is_held = true
      guard, env, check = @guard, @env, @check
      read = ->(part) { check.read_body(part) } if guard.reads_responses? && check.read_head(headers)
      RackHold.new(read) { guard.done(env, check, status, headers) }.response(env, status, headers, body)
    end

    # An application that raises has no response. Its status is the one that something around it responds with.
    def failed(status)
      finish(status, {})
    end

    # Ends what is not held until the response is done. Requests that the application makes afterwards are not nested in this one.
    def close
      leave
      @check.close unless @is_held
    end

    private

    def leave
      @env[CHECK] = @outer unless @denial
    end

    def finish(status, headers)
      @guard.finish(@env, @check, @outer, status, headers)
    ensure
      leave
    end

    def deny
      status, headers, body = @guard.response(@env, @check)
      return readable(status, @check.fields.merge(headers), body) if status

      problem = @check.problem
      readable(problem.status, @check.fields.merge(problem.fields), @env['REQUEST_METHOD'] == 'HEAD' ? [] : [problem.body])
    end

    # A denial with the fields by which a page of another origin may read it, unless Rack::Cors around this limit or the program adds them.
    def readable(status, headers, body)
      names = headers.keys.to_h { |name| [name.to_s.downcase, name] }
      unless names.key?(ALLOWED_ORIGIN) || (@env[CORS].respond_to?(:hit?) && @env[CORS].hit?)
        @guard.cors_fields(@env).each do |name, value|
          known = names[name]
          headers[known || name] = name == 'vary' && known ? "#{headers[known]}, #{value}" : value
        end
      end
      [status, headers, body]
    end

    # The headers with these fields in place of those before, unless the application has written others.
    def rewritten(headers, now)
      before = @env[FIELDS]
      @env[FIELDS] = now
      (now.keys | before.keys).each do |name|
        next unless headers[name] == before[name]

        now.key?(name) ? headers[name] = now[name] : headers.delete(name)
      end
      headers
    end
  end
  private_constant :RackPassage
end
