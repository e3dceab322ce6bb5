# frozen_string_literal: true

# An application of Rails: controllers in a scope, and an engine that is mounted at /v1. A limit belongs to the site that the request
# has come to.
require_relative '../rack/sites'
require 'action_controller/railtie'
require 'logger'
require 'polylimit/rails'

SITE = 'spellings.site'
ON = ->(name) { ->(env) { env[SITE] != name } }
LIMITER = Polylimit::Limiter.new
SEPARATE = Polylimit::Limiter.new
ROUTES = by_rules('route')

# Controllers with the limits of all sites.
module Limited
  def self.included(controller)
    controller.include Polylimit::Rails
    controller.polylimit(limiter: LIMITER, policy: QUOTAS, key: KEY, if: -> { request.env[SITE] == 'action' })
    controller.polylimit(limiter: ROUTES, if: -> { request.env[SITE] == 'route_rules' })
  end

  def run(name)
    response.headers['x-runs'] = runs(name, request.env)
    render plain: name
  end
end

class SessionsController < ActionController::Base
  include Limited

  def create
    run('login')
  end
end

class ReportsController < ActionController::Base
  include Limited

  def show
    run('report')
  end
end

# An engine with a limit of its own.
module Api
  class Engine < ::Rails::Engine
    isolate_namespace Api
    middleware.use Polylimit::Rack, **limit(skip: ON['router'])
  end

  class UsersController < ActionController::Base
    include Limited

    def show
      run('user')
    end
  end
end

# Engines whose middlewares have the same quotas, and controllers in scopes that have them.
ENGINES = %w[a b].map do |name|
  engine = Class.new(::Rails::Engine) do
    middleware.use Polylimit::Rack, limiter: SEPARATE, policy: '1/hour fixed_window', key: KEY, skip: ON['separate']
  end
  Object.const_set("Engine#{name.upcase}", engine)
  engine
end

%w[C D].each do |name|
  controller = Class.new(ActionController::Base) do
    include Polylimit::Rails
    polylimit limiter: SEPARATE, policy: '1/hour fixed_window', key: KEY

    def show
      render plain: params[:id]
    end

    def list
      render plain: 'list'
    end
  end
  Object.const_set("#{name}Controller", controller)
end

class Spellings < ::Rails::Application
  config.eager_load = false
  config.logger = Logger.new(nil)
  config.hosts.clear
  config.secret_key_base = 'spellings'
  config.active_support.deprecation = :silence
  config.middleware.insert_after ::Rack::MethodOverride, Polylimit::Rack, **limit(methods: %w[get post], skip: ON['override'])
  config.middleware.insert_after ::Rack::MethodOverride, Polylimit::Rack, limiter: by_rules('path'), skip: ON['path_rules']
  config.middleware.use Polylimit::Rack, limiter: by_rules('route'), skip: ON['middleware_route_rules'],
                                         attributes: ->(env) { { route: Polylimit::Rails.route(env) } }
end

Spellings.initialize!
# What was drawn before is forgotten then.
Api::Engine.routes.draw { get '/users/:id', to: 'users#show' }
ENGINES.each { |engine| engine.routes.draw { get '/:id', to: ->(_env) { [200, { 'content-type' => 'text/plain' }, ['x']] } } }
Spellings.routes.draw do
  post '/login', to: 'sessions#create'
  get '/report', to: 'reports#show'
  mount Api::Engine => '/v1'
  mount ENGINES[0] => '/a'
  mount ENGINES[1] => '/b'
  scope('/c') { get '/:id', to: 'c#show' }
  scope '/d' do
    get '/', to: 'd#list'
    get '/:id', to: 'd#show'
  end
end

# The application as the requests to a site reach it, behind middlewares of the site.
def at(name, *outer)
  ::Rack::Builder.new do
    outer.each { |options| use Polylimit::Rack, **options }
    run ->(env) { Spellings.call(env.merge!(SITE => name)) }
  end.to_app
end

site 'global', at('global', limit)
site 'methods', at('methods', limit(methods: %w[get post]))
%w[action path_rules route_rules middleware_route_rules override].each { |name| site name, at(name) }
site 'router', at('router'), %w[user]
site 'separate', at('separate'), %w[GET:/a/1 GET:/b/1 GET:/c/1 GET:/d/1 GET:/d]

puts 'note route in controllers, and where Polylimit::Rails.route gives it'
serve('rails', ::Rails.version)
