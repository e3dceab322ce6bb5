//! Draws how each algorithm admits the same bursty traffic:
//! `cargo run -p polylimit-simulation --example draw_algorithms > docs/algorithms.svg`

mod picture;
mod traffic;

fn main() -> Result<(), polylimit::Error> {
    print!("{}", picture::algorithms()?.svg());
    Ok(())
}
