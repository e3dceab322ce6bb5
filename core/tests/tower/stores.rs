//! Services that share a store admit exactly the limit, in every kind of store.

use axum::Router;
use axum::routing::get;
use polylimit::http::tower::RateLimitLayer;
use polylimit::{Limiter, Policy};
use polylimit_test_servers::{Kind, Server};

use crate::service::{Service, limiter};

const QUOTAS: &str = "40/day sliding_log";
const CLIENTS: usize = 4;
const REQUESTS_EACH: usize = 25;

/// How many requests these services admit together.
fn admitted(limiters: [Limiter; 2]) -> usize {
    let services = limiters.map(|limiter| {
        let limit =
            RateLimitLayer::builder(limiter, |request| request.uri.path().to_owned()).build().unwrap();
        Service::start(Router::new().route("/", get(|| async {})).layer(limit))
    });
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let service = &services[client % services.len()];
                scope.spawn(move || service.statuses("/", REQUESTS_EACH))
            })
            .collect();
        let statuses: Vec<u16> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
        statuses.iter().filter(|status| **status == 200).count()
    })
}

fn at(url: &str) -> Limiter {
    Limiter::builder().store(url).policy(Policy::parse("api", QUOTAS).unwrap()).build().unwrap()
}

#[test]
fn services_in_one_process_share_the_memory_store() {
    let limiter = limiter(&[("api", QUOTAS)]);
    assert_eq!(admitted([limiter.clone(), limiter]), 40);
}

#[cfg(target_os = "linux")]
#[test]
fn services_share_the_shared_file_store() {
    let path = std::env::temp_dir().join(format!("polylimit-tower-{}", std::process::id()));
    let url = format!("file://{}?size=1MiB", path.display());
    let admitted = admitted([at(&url), at(&url)]);
    std::fs::remove_file(path).unwrap();
    assert_eq!(admitted, 40);
}

#[test]
fn services_share_the_redis_store() {
    let server = Server::start(Kind::Redis, &[]);
    // A deadline that a busy machine does not miss.
    let url = format!("{}?deadline=30s", server.url());
    assert_eq!(admitted([at(&url), at(&url)]), 40);
}
