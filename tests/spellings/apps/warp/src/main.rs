//! The application of tests/spellings on warp.

mod serve;

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use polylimit::Limiter;
use polylimit::http::guard::KeyPart;
use polylimit::http::tower::{RateLimitBuilder, RateLimitLayer};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tower_layer::Layer as _;
use warp::{Filter, Rejection, Reply, header, path, reply};

const QUOTAS: &str = "3/hour fixed_window";
const ALL: &str = "login,report,user";

/// How often each handler of a site ran for each client.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<HashMap<(&'static str, String), usize>>>);

impl Runs {
    /// Counts an execution, and returns the value of the field `x-runs`.
    fn add(&self, handler: &'static str, client: Option<String>) -> String {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = runs.entry((handler, client.unwrap_or_default())).or_default();
        *count += 1;
        format!("{handler}={count}")
    }
}

/// A limiter by the document whose rules name the path of each handler.
fn ruled() -> Result<Limiter, polylimit::Error> {
    let rules =
        [("login", "POST", "/login"), ("report", "GET", "/report"), ("user", "GET", "/v1/users/{id}")];
    let rules = rules.map(|(name, method, path)| {
        format!(
            "[policies.{name}]\nquotas = {QUOTAS:?}\n[[rules]]\nmatch = {{ method = {method:?}, path = {path:?} }}\n\
             apply = [{{ policy = {name:?}, key = \"{{header.x-client}}\" }}]\n"
        )
    });
    let text = format!("polylimit = 1\n{}", rules.concat());
    Limiter::builder().document(&text).build()
}

fn limit<B>() -> Result<RateLimitBuilder<B>, polylimit::Error> {
    let part = KeyPart::Header("x-client".to_owned());
    let limiter = Limiter::builder().build()?;
    Ok(RateLimitLayer::builder(limiter, |_| "anonymous").policy(QUOTAS).key_part(part))
}

/// The version of warp in the lock file of the workspace.
fn version() -> &'static str {
    let mut lines = include_str!("../../../../../Cargo.lock").lines();
    let found = lines.find(|line| *line == r#"name = "warp""#).and_then(|_| lines.next());
    found.and_then(|line| line.split('"').nth(1)).unwrap_or("unknown")
}

fn handlers() -> impl Filter<Extract: Reply, Error = Rejection> + Clone + Send + Sync + 'static {
    let runs = Runs::default();
    let counted = move |name: &'static str| {
        let runs = runs.clone();
        header::optional("x-client")
            .map(move |client| reply::with_header(name, "x-runs", runs.add(name, client)))
    };
    let read = || warp::get().or(warp::head()).unify();
    let login = path!("login").and(warp::post()).and(counted("login"));
    let report = path!("report").and(read()).and(counted("report"));
    let user = path!("v1" / "users" / u64).and(read()).and(counted("user"));
    login.or(report).or(user.map(|_, counted| counted))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let layers = [
        ("global", limit()?.scope("all").build()?),
        ("methods", limit()?.scope("all").method("get").method("post").build()?),
        ("path_rules", RateLimitLayer::by_configuration(ruled()?, |_| None).build()?),
    ];
    for (site, layer) in layers {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("listening {site} {} {ALL}", listener.local_addr()?.port());
        tokio::spawn(serve::serve(listener, layer.layer(warp::service(handlers()))));
    }
    println!("version warp {}", version());
    println!("note route no: filters have none");
    println!("ready");
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(())
}
