# frozen_string_literal: true

require 'minitest'

# A test that hangs is named, with what each thread and fiber does, and ends the process.
module Watch
  # Many times as long as any test takes.
  LONGEST = 300

  class << self
    attr_accessor :running

    def start
      Thread.new do
        Thread.current.name = 'watch'
        loop do
          sleep 5
          name, since = running
          report(name) if name && now - since > LONGEST
        end
      end
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    def report(name)
      warn "#{name} has not ended for #{LONGEST} s"
      Thread.list.each { |thread| warn "#{thread.inspect}\n  #{thread.backtrace&.join("\n  ")}" }
      ObjectSpace.each_object(Fiber) { |fiber| warn "#{fiber.inspect}\n  #{fiber.backtrace&.join("\n  ")}" if fiber.alive? }
      exit!(1)
    end
  end

  def before_setup
    Watch.running = ["#{self.class}##{name}", Watch.now]
    super
  end

  def after_teardown
    super
    Watch.running = nil
  end
end

Minitest::Test.prepend(Watch)
Watch.start
