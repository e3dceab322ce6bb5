# frozen_string_literal: true

module Polylimit
  VERSION = '0.1.0'
end
