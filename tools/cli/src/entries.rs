//! The lists of clients, attributes and keys that are denied or admitted.

use polylimit::admin::{ListName, ListOptions, ListedItem};
use polylimit::raw::printable;
use serde::Serialize;

use crate::arguments::{Author, GlobalOptions, ListCommand};
use crate::exit::{Exit, Failure};
use crate::output::table;
use crate::terminal::Terminal;

#[derive(Serialize)]
struct ChangeReport<'a> {
    entry: &'a str,
    version: u64,
}

pub(crate) fn run(
    options: &GlobalOptions,
    list: ListName,
    command: &ListCommand,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let limiter = options.configured_limiter()?;
    match command {
        ListCommand::Add { item, time, author } => {
            let item = item.join(" ");
            let mut noted = noted(author);
            noted.lasts = *time;
            let version = limiter.admin().add_list_item(list, &item, noted)?.version;
            report(options, "set", &format!("{list} {item}"), version, terminal)
        }
        ListCommand::Remove { item, author } => {
            let item = item.join(" ");
            let entry = format!("{list} {item}");
            let Some(status) = limiter.admin().remove_list_item(list, &item, noted(author))? else {
                let message = format!("there is no entry {entry:?}: `polylimit {list} list` lists them");
                return Err(Failure::new(Exit::Problem, message));
            };
            report(options, "removed", &entry, status.version, terminal)
        }
        ListCommand::List => show(options, &limiter.admin().list_items(list)?, terminal),
    }
}

fn noted(author: &Author) -> ListOptions<'_> {
    ListOptions::default().by(&author.by).why(&author.why)
}

fn report(
    options: &GlobalOptions,
    done: &str,
    entry: &str,
    version: u64,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    if options.json {
        terminal.json(&ChangeReport { entry, version })?;
    } else {
        terminal.line(format_args!("{done}: {} (version {version})", printable(entry)))?;
    }
    Ok(Exit::Fine)
}

fn show(options: &GlobalOptions, items: &[ListedItem], terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut rows = table(["item", "until", "by", "why", "origin"]);
    for item in items {
        if options.json {
            terminal.json(item)?;
        }
        let [until, by, why] =
            [&item.until, &item.by, &item.why].map(|note| note.as_deref().unwrap_or_default());
        rows.add_row([&*item.item, until, by, why, item.origin]);
    }
    if !options.json {
        terminal.table(&rows)?;
    }
    Ok(Exit::Fine)
}
