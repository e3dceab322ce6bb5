//! Lines of Markdown outside of code.

/// The lines of a page with their numbers, and whether each is code or the fence of it.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (usize, &str, bool)> {
    let mut is_code = false;
    text.lines().enumerate().map(move |(at, line)| {
        let is_fence = line.starts_with("```");
        let of_code = is_code || is_fence;
        is_code ^= is_fence;
        (at + 1, line, of_code)
    })
}
