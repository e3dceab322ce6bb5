//! Tabs: what stands between `<!-- tabs -->` and `<!-- end of tabs -->`, each tab under a line with its bold name. On a Git host
//! the tabs stand one below the other.

use std::fmt::Write;

use crate::markdown;

const START: &str = "<!-- tabs -->";
const END: &str = "<!-- end of tabs -->";

/// The page with its tabs as HTML, which works without scripts: radio buttons, their labels, and what each one shows.
pub(crate) fn render(text: &str) -> Result<String, String> {
    let mut page = String::new();
    let mut groups = 0;
    // How many tabs the group has so far.
    let mut open: Option<usize> = None;
    for (at, line, is_code) in markdown::lines(text) {
        match (line, open) {
            (START, None) if !is_code => {
                groups += 1;
                open = Some(0);
                page.push_str("<div class=\"tabs\">\n");
            }
            (END, Some(tabs)) if !is_code => {
                if tabs < 2 {
                    return Err(format!("line {at}: read {tabs} tabs, allowed are 2 or more"));
                }
                open = None;
                page.push_str("</div>\n</div>\n");
            }
            (START | END, _) if !is_code => {
                return Err(format!("line {at}: {line} does not belong to the tabs before it"));
            }
            (_, Some(tabs)) if !is_code => match name(line) {
                Some(name) => {
                    open = Some(tabs + 1);
                    start_tab(&mut page, groups, tabs, name);
                }
                None if tabs == 0 && !line.is_empty() => {
                    return Err(format!("line {at}: read {line:?}, allowed is the bold name of a tab"));
                }
                None => line_of(&mut page, line),
            },
            _ => line_of(&mut page, line),
        }
    }
    match open {
        Some(_) => Err(format!("the last tabs have no {END}")),
        None => Ok(page),
    }
}

fn line_of(page: &mut String, line: &str) {
    page.push_str(line);
    page.push('\n');
}

/// A line with a bold name and nothing else.
fn name(line: &str) -> Option<&str> {
    let name = line.strip_prefix("**")?.strip_suffix("**")?;
    (!name.is_empty() && !name.contains('*')).then_some(name)
}

fn start_tab(page: &mut String, group: usize, before: usize, name: &str) {
    let id = format!("tabs-{group}-{}", before + 1);
    let checked = if before == 0 { " checked" } else { "" };
    if before > 0 {
        page.push_str("</div>\n");
    }
    // An empty line ends HTML and begins Markdown.
    let written = write!(
        page,
        "<input type=\"radio\" name=\"tabs-{group}\" id=\"{id}\" value=\"{name}\"{checked}>\n\
         <label for=\"{id}\">{name}</label>\n<div class=\"tab\">\n\n"
    );
    debug_assert!(written.is_ok());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tabs_become_radio_buttons_and_code_stays_as_it_is() {
        let page =
            "a\n<!-- tabs -->\n**C++**\n\n```cpp\n**x**\n```\n\n**Go**\n\ntext\n<!-- end of tabs -->\nb\n";
        let rendered = render(page).unwrap_or_default();
        assert_eq!(rendered.matches("<input").count(), 2);
        assert_eq!(rendered.matches(" checked>").count(), 1);
        assert_eq!(rendered.matches("<div").count(), rendered.matches("</div>").count());
        assert!(rendered.contains("```cpp\n**x**\n```"), "{rendered}");
        assert!(rendered.contains("<label for=\"tabs-1-2\">Go</label>"), "{rendered}");
    }

    #[test]
    fn tabs_without_an_end_a_name_or_a_second_tab_are_errors() {
        for (page, message) in [
            ("<!-- tabs -->\n**a**\n**b**\n", "the last tabs have no <!-- end of tabs -->"),
            ("<!-- end of tabs -->\n", "line 1: <!-- end of tabs --> does not belong to the tabs before it"),
            ("<!-- tabs -->\ntext\n", "line 2: read \"text\", allowed is the bold name of a tab"),
            ("<!-- tabs -->\n**a**\n<!-- end of tabs -->\n", "line 3: read 1 tabs, allowed are 2 or more"),
        ] {
            assert_eq!(render(page), Err(message.to_owned()), "{page}");
        }
    }
}
