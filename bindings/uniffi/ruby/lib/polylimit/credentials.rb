# frozen_string_literal: true

module Polylimit
  # Answers the calls of a limiter for credentials, on a thread of its own until the limiter is closed or collected. No native thread
  # calls Ruby: the core writes a byte to a pipe for each call, since a thread of Ruby that reads from a pipe can be interrupted.
  class CredentialsServer
    # Those of this process, each for as long as its thread runs: a forked child starts them again.
    SERVERS = []
    ALLOWED = 'allowed is a text, or a hash with :username and :password'
    private_constant :SERVERS, :ALLOWED

    # Restarts the threads, which a child does not have.
    module AfterFork
      def _fork
        super.tap { |child| CredentialsServer.restart if child.zero? }
      end
    end
    private_constant :AfterFork
    Process.singleton_class.prepend(AfterFork)

    class << self
      # The calls that the proc answers.
      def answering(give)
        unless give.respond_to?(:call)
          raise InvalidArgument, "credentials is of the class #{give.class}: allowed is a proc, or what else has call"
        end
        PolylimitNative::CredentialsCalls.new.tap { |calls| new(calls, give).start }
      end

      def restart
        SERVERS.dup.each(&:start)
      end
    end

    def initialize(calls, give)
      @calls = calls
      @give = give
    end

    def start
      # A child shares the pipe with its parent, and has one of its own.
      @reader, @writer = IO.pipe
      @calls.wake_by(@writer.fileno)
      SERVERS.push(self) unless SERVERS.include?(self)
      thread = Thread.new { serve }
      thread.name = 'polylimit-credentials'
      thread.report_on_exception = false
    end

    private

    def serve
      reader = @reader
      loop do
        reader.readbyte
        break if @calls.has_ended

        answer
      end
    ensure
      SERVERS.delete(self)
    end

    def answer
      given = @give.call
      given = { password: given } if given.is_a?(String)
      password, username = given.values_at(:password, :username) if given.is_a?(Hash)
      # The value is not shown: it may hold a password.
      raise InvalidArgument, "the result of credentials is of the class #{given.class}: #{ALLOWED}" unless password.is_a?(String)

      @calls.give(Argument.secret('password', password), Argument.text('username', username))
    rescue StandardError, ScriptError, SystemStackError, NoMemoryError => e
      @calls.fail(e.message.to_s.encode(Encoding::UTF_8, invalid: :replace, undef: :replace))
    end
  end
  private_constant :CredentialsServer
end
