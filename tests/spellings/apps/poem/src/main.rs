//! The application of tests/spellings on poem.

mod limited;

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use poem::endpoint::{BoxEndpoint, make_sync};
use poem::http::request::Parts;
use poem::listener::{Acceptor as _, Listener as _, TcpListener};
use poem::{EndpointExt as _, IntoEndpoint, IntoResponse as _, PathPattern, Route, Server, get, post};
use polylimit::Limiter;
use polylimit::http::guard::KeyPart;
use polylimit::http::tower::{RateLimitBuilder, RateLimitLayer};
use tokio::io::AsyncReadExt as _;

use crate::limited::{Body, limited};

const QUOTAS: &str = "3/hour fixed_window";
const ALL: &str = "login,report,user";

type Layer = RateLimitLayer<Body>;
type Builder = RateLimitBuilder<Body>;

/// How often each handler of a site ran for each client.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<HashMap<(&'static str, String), usize>>>);

impl Runs {
    /// Counts an execution, and returns the value of the field `x-runs`.
    fn add(&self, handler: &'static str, client: Option<&str>) -> String {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = runs.entry((handler, client.unwrap_or_default().to_owned())).or_default();
        *count += 1;
        format!("{handler}={count}")
    }

    /// The handler with a name, with a limit if there is a layer.
    fn handler(&self, name: &'static str, layer: Option<&Layer>) -> BoxEndpoint<'static> {
        let runs = self.clone();
        let handler =
            make_sync(move |request| name.with_header("x-runs", runs.add(name, request.header("x-client"))));
        match layer {
            Some(layer) => limited(handler, layer.clone()).boxed(),
            None => handler.map_to_response().boxed(),
        }
    }
}

/// A limiter by the document whose rules name the path or the route of each handler.
fn ruled(attribute: &str) -> Result<Limiter, polylimit::Error> {
    let rules =
        [("login", "POST", "/login"), ("report", "GET", "/report"), ("user", "GET", "/v1/users/{id}")];
    let rules = rules.map(|(name, method, path)| {
        format!(
            "[policies.{name}]\nquotas = {QUOTAS:?}\n[[rules]]\nmatch = {{ method = {method:?}, {attribute} = {path:?} }}\n\
             apply = [{{ policy = {name:?}, key = \"{{header.x-client}}\" }}]\n"
        )
    });
    let text = format!("polylimit = 1\n{}", rules.concat());
    Limiter::builder().document(&text).build()
}

fn route(request: &Parts) -> Option<String> {
    Some(request.extensions.get::<PathPattern>()?.0.to_string())
}

fn limit(quotas: &str) -> Result<Builder, polylimit::Error> {
    let part = KeyPart::Header("x-client".to_owned());
    let limiter = Limiter::builder().build()?;
    Ok(Layer::builder(limiter, |_| "anonymous").policy(quotas).key_part(part).route(route))
}

fn rules(attribute: &str) -> Result<Layer, polylimit::Error> {
    Layer::by_configuration(ruled(attribute)?, |_| None).route(route).build()
}

/// The handlers, each with a limit if there is a layer; `users` may limit those of /v1.
fn router(layer: Option<&Layer>, users: impl FnOnce(Route) -> BoxEndpoint<'static>) -> Route {
    let runs = Runs::default();
    let handler = |name| runs.handler(name, layer);
    let users = users(Route::new().at("/users/:id", get(handler("user")).head(handler("user"))));
    Route::new()
        .at("/login", post(handler("login")))
        .at("/report", get(handler("report")).head(handler("report")))
        .nest("/v1", users)
}

fn unlimited(users: Route) -> BoxEndpoint<'static> {
    users.boxed()
}

fn whole(layer: Layer) -> BoxEndpoint<'static> {
    limited(router(None, unlimited), layer).boxed()
}

fn each(layer: &Layer) -> BoxEndpoint<'static> {
    router(Some(layer), unlimited).boxed()
}

fn separate(layer: &Layer) -> BoxEndpoint<'static> {
    let runs = Runs::default();
    let numbers = || Route::new().at("/:id", runs.handler("number", Some(layer)));
    Route::new()
        .nest("/a", numbers())
        .nest("/b", numbers())
        .nest("/c", Route::new().nest("/d", numbers()))
        .at("/e", runs.handler("e", Some(layer)))
        .at("/f", runs.handler("f", Some(layer)))
        .boxed()
}

/// The version of poem in the lock file of the workspace.
fn version() -> &'static str {
    let mut lines = include_str!("../../../../../Cargo.lock").lines();
    let found = lines.find(|line| *line == r#"name = "poem""#).and_then(|_| lines.next());
    found.and_then(|line| line.split('"').nth(1)).unwrap_or("unknown")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let of_user = limit(QUOTAS)?.build()?;
    let rules_of_user = rules("path")?;
    let sites = [
        ("global", ALL, whole(limit(QUOTAS)?.build()?)),
        ("methods", ALL, whole(limit(QUOTAS)?.method("get").method("post").build()?)),
        ("path_rules", ALL, whole(rules("path")?)),
        ("path_rules_on_endpoints", ALL, each(&rules("path")?)),
        (
            "path_rules_of_the_router",
            "user",
            router(None, |users| limited(users, rules_of_user).boxed()).boxed(),
        ),
        ("route_rules_on_endpoints", ALL, each(&rules("route")?)),
        ("endpoint", ALL, each(&limit(QUOTAS)?.build()?)),
        ("router", "user", router(None, |users| limited(users, of_user).boxed()).boxed()),
        (
            "separate",
            "GET:/a/1,GET:/b/1,GET:/c/d/1,GET:/e,GET:/f",
            separate(&limit("1/hour fixed_window")?.build()?),
        ),
    ];
    for (site, handlers, app) in sites {
        let acceptor = TcpListener::bind("127.0.0.1:0").into_acceptor().await?;
        let address = acceptor.local_addr().into_iter().next().ok_or("no address")?;
        let address = address.as_socket_addr().copied().ok_or("no address of a socket")?;
        println!("listening {site} {} {handlers}", address.port());
        tokio::spawn(Server::new_with_acceptor(acceptor).run(app.into_endpoint()));
    }
    println!("version poem {}", version());
    println!("note route yes, where the limit is behind routing");
    println!("ready");
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(())
}
