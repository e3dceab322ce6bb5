//! Callers in Rust: `shared-budget-rust URL CALLERS ATTEMPTS`. For each line of the input, a key and quotas with a tab
//! between them, all callers ask at the same time, every other one asynchronously; the answer is how many were admitted.

use std::error::Error;
use std::io::{BufRead, Write};

use polylimit::{Decision, Limiter, Request};
use tokio::runtime::Runtime;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, callers, attempts] = arguments.as_slice() else {
        return Err("usage: shared-budget-rust URL CALLERS ATTEMPTS".into());
    };
    let (callers, attempts): (usize, usize) = (callers.parse()?, attempts.parse()?);
    let limiter = Limiter::builder().store(url).build()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut output = std::io::stdout().lock();
    writeln!(output, "ready")?;
    output.flush()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (key, quotas) = line.split_once('\t').ok_or("a line has no tab")?;
        let admitted: Result<usize, Failure> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..callers)
                .map(|caller| {
                    let (limiter, runtime) = (&limiter, &runtime);
                    scope.spawn(move || call(limiter, runtime, caller, attempts, key, quotas))
                })
                .collect();
            running.into_iter().map(|caller| caller.join().map_err(|_| "a caller has panicked")?).sum()
        });
        writeln!(output, "{}", admitted?)?;
        output.flush()?;
    }
    Ok(())
}

/// How many of one caller's requests are admitted.
fn call(
    limiter: &Limiter,
    runtime: &Runtime,
    caller: usize,
    attempts: usize,
    key: &str,
    quotas: &str,
) -> Result<usize, Failure> {
    let request = || Request::new(key).policy(quotas);
    if caller.is_multiple_of(2) {
        let limiter = limiter.blocking();
        return (0..attempts).map(|_| counted(&limiter.check(request())?)).sum();
    }
    runtime.block_on(async {
        let mut admitted = 0;
        for _ in 0..attempts {
            admitted += counted(&limiter.check(request()).await?)?;
        }
        Ok(admitted)
    })
}

/// 1 when admitted. What the store did not decide would say nothing about a shared budget.
fn counted(decision: &Decision) -> Result<usize, Failure> {
    if let Some(degradation) = decision.degraded() {
        return Err(format!("a decision is degraded: {}", degradation.name()).into());
    }
    Ok(usize::from(decision.allowed()))
}
