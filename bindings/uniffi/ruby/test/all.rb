# frozen_string_literal: true

require_relative 'watch'

Dir[File.join(__dir__, '*_test.rb')].sort.each { |file| require file }
