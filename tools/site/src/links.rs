//! Paths and links inside of the repository.

/// A link that leads somewhere in the site, without what follows `#`, and with what follows.
pub(crate) struct Target<'a> {
    pub(crate) path: &'a str,
    pub(crate) fragment: Option<&'a str>,
}

/// The home page. Packages are installed outside of the repository, so their pages name others by this address.
const HOME: &str = "https://polylimit.dev/";

/// The parts of a link into the repository; `None` for other addresses.
pub(crate) fn target<'a>(page: &str, link: &'a str) -> Option<(String, Target<'a>)> {
    let (path, fragment) = match link.split_once('#') {
        Some((path, fragment)) => (path, Some(fragment)),
        None => (link, None),
    };
    let at = if let Some(path) = path.strip_prefix(HOME) {
        normal("", path)
    } else if has_scheme(path) {
        return None;
    } else if path.is_empty() {
        page.to_owned()
    } else {
        normal(folder(page), path)
    };
    Some((at, Target { path, fragment }))
}

pub(crate) fn has_scheme(link: &str) -> bool {
    link.split_once(':')
        .is_some_and(|(scheme, _)| scheme.chars().all(|letter| letter.is_ascii_alphanumeric()))
}

pub(crate) fn folder(page: &str) -> &str {
    page.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The path from the root. One that leaves the root keeps its `..`, so that no file is found there.
pub(crate) fn normal(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The relative link from a page to another path of the repository.
pub(crate) fn relative(page: &str, path: &str) -> String {
    let from: Vec<&str> = folder(page).split('/').filter(|part| !part.is_empty()).collect();
    let to: Vec<&str> = path.split('/').collect();
    let shared = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
    let up = std::iter::repeat_n("..", from.len() - shared);
    up.chain(to[shared..].iter().copied()).collect::<Vec<_>>().join("/")
}

#[test]
fn links_are_resolved_from_the_page_and_from_the_home_page() {
    let resolved = |link| target("docs/http.md", link).map(|(path, target)| (path, target.fragment));
    assert_eq!(resolved("redis.md"), Some(("docs/redis.md".to_owned(), None)));
    assert_eq!(resolved("../bindings/c/"), Some(("bindings/c".to_owned(), None)));
    assert_eq!(resolved("#keys"), Some(("docs/http.md".to_owned(), Some("keys"))));
    assert_eq!(
        resolved("https://polylimit.dev/docs/redis.md#rights"),
        Some(("docs/redis.md".to_owned(), Some("rights")))
    );
    assert_eq!(resolved("https://example.org/a.md"), None);
    assert_eq!(normal("docs", "../../other"), "../other");
    assert_eq!(relative("docs/internals/scripts.md", "docs/redis.md"), "../redis.md");
    assert_eq!(relative("README.md", "docs/start.md"), "docs/start.md");
}
