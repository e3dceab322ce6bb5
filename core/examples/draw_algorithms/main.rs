//! Draws how each algorithm admits the same bursty traffic:
//! `cargo run -p polylimit --example draw_algorithms > docs/algorithms.svg`

mod drawing;
mod traffic;

fn main() -> Result<(), polylimit::Error> {
    print!("{}", drawing::draw()?);
    Ok(())
}
