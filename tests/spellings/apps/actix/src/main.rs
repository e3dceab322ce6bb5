//! The application of tests/spellings on actix-web: `polylimit-spellings-actix newest`.

use std::collections::HashMap;
use std::error::Error;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex, PoisonError};

use actix_web::middleware::{Condition, NormalizePath, TrailingSlash};
use actix_web::web::{get, head, post, resource, scope};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use polylimit::Limiter;
use polylimit::http::actix::{RateLimitMiddleware, route};
use polylimit::http::guard::KeyPart;
use polylimit::http::tower::RateLimitBuilder;
use tokio::io::AsyncReadExt as _;

const QUOTAS: &str = "3/hour fixed_window";
const ALL: &str = "login,report,user";

type Builder = RateLimitBuilder<actix_web::body::BoxBody>;

/// How often each handler of a site ran for each client.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<HashMap<(&'static str, String), usize>>>);

impl Runs {
    /// A handler that counts its executions.
    fn handler(
        &self,
        handler: &'static str,
    ) -> impl Fn(HttpRequest) -> Ready<HttpResponse> + Clone + 'static {
        let runs = Arc::clone(&self.0);
        move |request| {
            let client = request.headers().get("x-client").and_then(|client| client.to_str().ok());
            let mut runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
            let count = runs.entry((handler, client.unwrap_or_default().to_owned())).or_default();
            *count += 1;
            ready(HttpResponse::Ok().append_header(("x-runs", format!("{handler}={count}"))).body(handler))
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

fn limit(quotas: &str) -> Result<Builder, polylimit::Error> {
    let part = KeyPart::Header("x-client".to_owned());
    let limiter = Limiter::builder().build()?;
    Ok(RateLimitMiddleware::builder(limiter, |_| "anonymous").policy(quotas).key_part(part))
}

fn rules(attribute: &str) -> Result<Builder, polylimit::Error> {
    Ok(RateLimitMiddleware::by_configuration(ruled(attribute)?, |_| None).route(route))
}

/// Where a site has its limit.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Application,
    Resources,
    Scope,
}

/// Serves the handlers with a limit at this place, and prints the port. Paths may be normalized.
fn serve(
    site: &str,
    limit: RateLimitMiddleware,
    place: Place,
    is_normalized: bool,
) -> Result<(), Box<dyn Error>> {
    let runs = Runs::default();
    let server = HttpServer::new(move || {
        let around = |at: Place| Condition::new(place == at, limit.clone());
        let login = resource("/login").route(post().to(runs.handler("login")));
        let report = resource("/report")
            .route(get().to(runs.handler("report")))
            .route(head().to(runs.handler("report")));
        let user = resource("/users/{id}")
            .route(get().to(runs.handler("user")))
            .route(head().to(runs.handler("user")));
        App::new()
            .service(login.wrap(around(Place::Resources)))
            .service(report.wrap(around(Place::Resources)))
            .service(scope("/v1").service(user.wrap(around(Place::Resources))).wrap(around(Place::Scope)))
            .wrap(around(Place::Application))
            .wrap(Condition::new(is_normalized, NormalizePath::new(TrailingSlash::Trim)))
    });
    let server = server.workers(1).disable_signals().bind("127.0.0.1:0")?;
    let handlers = if place == Place::Scope { "user" } else { ALL };
    println!("listening {site} {} {handlers}", server.addrs()[0].port());
    actix_web::rt::spawn(server.run());
    Ok(())
}

fn serve_separate(limit: RateLimitMiddleware) -> Result<(), Box<dyn Error>> {
    let runs = Runs::default();
    let server = HttpServer::new(move || {
        let numbers = || resource("/{id}").route(get().to(runs.handler("number")));
        App::new()
            .service(scope("/a").service(numbers()))
            .service(scope("/b").service(numbers()))
            .service(scope("/c").service(scope("/d").service(numbers())))
            .route("/e", get().to(runs.handler("e")))
            .route("/f", get().to(runs.handler("f")))
            .wrap(limit.clone())
    });
    let server = server.workers(1).disable_signals().bind("127.0.0.1:0")?;
    println!("listening separate {} GET:/a/1,GET:/b/1,GET:/c/d/1,GET:/e,GET:/f", server.addrs()[0].port());
    actix_web::rt::spawn(server.run());
    Ok(())
}

/// The version of actix-web in the lock file of the workspace.
fn version() -> &'static str {
    let mut lines = include_str!("../../../../../Cargo.lock").lines();
    let found = lines.find(|line| *line == r#"name = "actix-web""#).and_then(|_| lines.next());
    found.and_then(|line| line.split('"').nth(1)).unwrap_or("unknown")
}

async fn run() -> Result<(), Box<dyn Error>> {
    use Place::{Application, Resources, Scope};
    serve("global", limit(QUOTAS)?.scope("all").build()?, Application, false)?;
    serve("methods", limit(QUOTAS)?.scope("all").method("get").method("post").build()?, Application, false)?;
    serve("path_rules", rules("path")?.build()?, Application, false)?;
    serve("path_rules_with_normalized_paths", rules("path")?.build()?, Application, true)?;
    serve("path_rules_of_the_scope", rules("path")?.build()?, Scope, false)?;
    serve("path_rules_on_resources", rules("path")?.build()?, Resources, false)?;
    serve("route_rules", rules("route")?.build()?, Application, false)?;
    serve("route_rules_with_normalized_paths", rules("route")?.build()?, Application, true)?;
    serve("route_rules_on_resources", rules("route")?.build()?, Resources, false)?;
    serve("route", limit(QUOTAS)?.route(route).build()?, Resources, false)?;
    serve("router", limit(QUOTAS)?.route(route).build()?, Scope, false)?;
    serve_separate(limit("1/hour fixed_window")?.route(route).build()?)?;
    println!("version actix-web {}", version());
    println!("note route yes, in every position");
    println!("ready");
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    actix_web::rt::System::new().block_on(run())
}
