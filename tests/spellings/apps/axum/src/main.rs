//! The application of tests/spellings on axum: `polylimit-spellings-axum oldest|newest`.

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use polylimit::Limiter;
use polylimit::http::guard::KeyPart;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

const QUOTAS: &str = "3/hour fixed_window";
const ALL: &str = "login,report,user";

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

/// The version of axum in the lock file of the workspace that begins with this text.
fn version(beginning: &str) -> &'static str {
    let mut lines = include_str!("../../../../../Cargo.lock").lines();
    let mut versions = std::iter::from_fn(|| {
        lines.find(|line| *line == r#"name = "axum""#)?;
        lines.next()?.split('"').nth(1)
    });
    versions.find(|version| version.starts_with(beginning)).unwrap_or("unknown")
}

macro_rules! application_on {
    ($module:ident, $axum:ident, $beginning:literal, $user:literal, $id:literal) => {
        mod $module {
            use std::future::{Ready, ready};

            use polylimit::http::tower::{RateLimitBuilder, RateLimitLayer};
            use tower_layer::Layer as _;
            use $axum::Router;
            use $axum::body::Body;
            use $axum::extract::{MatchedPath, OriginalUri};
            use $axum::http::HeaderMap;
            use $axum::http::request::Parts;
            use $axum::routing::{get, post};

            use super::*;

            type Layer = RateLimitLayer<Body>;
            type Builder = RateLimitBuilder<Body>;

            fn route(request: &Parts) -> Option<String> {
                Some(request.extensions.get::<MatchedPath>()?.as_str().to_owned())
            }

            fn limit(quotas: &str) -> Result<Builder, polylimit::Error> {
                let part = KeyPart::Header("x-client".to_owned());
                let limiter = Limiter::builder().build()?;
                Ok(Layer::builder(limiter, |_| "anonymous").policy(quotas).key_part(part))
            }

            fn rules(attribute: &str) -> Result<Builder, polylimit::Error> {
                Ok(Layer::by_configuration(ruled(attribute)?, |_| None))
            }

            type Answer = ([(&'static str, String); 1], &'static str);

            fn counted(
                runs: &Runs,
                name: &'static str,
            ) -> impl Fn(HeaderMap) -> Ready<Answer> + Clone + Send + Sync + 'static {
                let runs = runs.clone();
                move |headers| {
                    let client = headers.get("x-client").and_then(|client| client.to_str().ok());
                    ready(([("x-runs", runs.add(name, client))], name))
                }
            }

            /// The handlers; `users` may put a layer around those of /v1.
            fn router(users: impl FnOnce(Router) -> Router) -> Router {
                let runs = Runs::default();
                let inner = Router::new().route($user, get(counted(&runs, "user")));
                Router::new()
                    .route("/login", post(counted(&runs, "login")))
                    .route("/report", get(counted(&runs, "report")))
                    .nest("/v1", users(inner))
            }

            fn plain() -> Router {
                router(|users| users)
            }

            /// The handlers, each behind the layer.
            fn each(layer: &Layer) -> Router {
                let runs = Runs::default();
                let inner = Router::new().route($user, get(counted(&runs, "user")).layer(layer.clone()));
                Router::new()
                    .route("/login", post(counted(&runs, "login")).layer(layer.clone()))
                    .route("/report", get(counted(&runs, "report")).layer(layer.clone()))
                    .nest("/v1", inner)
            }

            fn separate() -> Result<Router, polylimit::Error> {
                let layer = limit("1/hour fixed_window")?.route(route).build()?;
                let runs = Runs::default();
                let numbers = Router::new().route($id, get(counted(&runs, "number")));
                let within = Router::new().route($id, get(counted(&runs, "within")).layer(layer.clone()));
                Ok(Router::new()
                    .nest("/a", numbers.clone())
                    .nest("/b", numbers)
                    .route("/e", get(counted(&runs, "e")))
                    .route("/f", get(counted(&runs, "f")))
                    .layer(layer)
                    .nest("/c", within.clone())
                    .nest("/d", within))
            }

            pub(super) async fn serve() -> Result<(), Box<dyn Error>> {
                let whole_path =
                    |request: &Parts| Some(request.extensions.get::<OriginalUri>()?.path().to_owned());
                let in_front = rules("path")?.build()?.layer(plain());
                let of_user = limit(QUOTAS)?.route(route).build()?;
                let rules_of_user = rules("path")?.path(whole_path).build()?;
                let sites = [
                    ("global", ALL, plain().layer(limit(QUOTAS)?.scope("all").build()?)),
                    ("methods", ALL, plain().layer(limit(QUOTAS)?.method("get").method("post").build()?)),
                    ("path_rules", ALL, plain().layer(rules("path")?.build()?)),
                    ("path_rules_in_front_of_routing", ALL, Router::new().fallback_service(in_front)),
                    ("path_rules_on_routes", ALL, each(&rules("path")?.path(whole_path).build()?)),
                    ("path_rules_of_the_router", "user", router(|users| users.layer(rules_of_user))),
                    ("route_rules", ALL, plain().layer(rules("route")?.route(route).build()?)),
                    ("route_rules_on_routes", ALL, each(&rules("route")?.route(route).build()?)),
                    ("route", ALL, each(&limit(QUOTAS)?.route(route).build()?)),
                    ("router", "user", router(|users| users.layer(of_user))),
                    ("separate", "GET:/a/1,GET:/b/1,GET:/c/1,GET:/d/1,GET:/e,GET:/f", separate()?),
                ];
                for (site, handlers, app) in sites {
                    let listener = TcpListener::bind("127.0.0.1:0").await?;
                    println!("listening {site} {} {handlers}", listener.local_addr()?.port());
                    tokio::spawn(async move { $axum::serve(listener, app).await });
                }
                println!("version axum {}", version($beginning));
                Ok(())
            }
        }
    };
}

application_on!(oldest, axum_oldest, "0.7", "/users/:id", "/:id");
application_on!(newest, axum, "0.8", "/users/{id}", "/{id}");

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1).as_deref() {
        Some("oldest") => oldest::serve().await?,
        Some("newest") => newest::serve().await?,
        _ => return Err("which version: oldest or newest".into()),
    }
    println!("note route yes, by RateLimitBuilder::route");
    println!("ready");
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(())
}
