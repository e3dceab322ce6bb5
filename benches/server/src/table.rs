//! A table of servers that get the same load in turns, slice by slice, and the ratios that are its goals.

use std::error::Error;
use std::time::Duration;

use crate::figures::{Slice, median, ratio};
use crate::generators::Load;
use crate::options::Options;
use crate::process::processor_time;

pub(crate) struct Table {
    /// What `--only` calls it.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// What the reader has to know about its rows.
    pub(crate) about: &'static str,
    pub(crate) rows: Vec<Row>,
    pub(crate) goals: Vec<Goal>,
}

/// One server under one load.
pub(crate) struct Row {
    pub(crate) title: &'static str,
    /// The process of the server.
    pub(crate) server: u32,
    /// The processes of Redis that the server keeps its states in.
    pub(crate) stores: Vec<u32>,
    pub(crate) load: Load,
    slices: Vec<Slice>,
}

/// What a row should reach compared with another one; both by their place in the table.
pub(crate) struct Goal {
    pub(crate) row: usize,
    pub(crate) beside: usize,
    pub(crate) bound: Bound,
}

#[derive(Clone, Copy)]
pub(crate) enum Bound {
    /// At least this multiple of the rate.
    Rate(f64),
    /// At most this multiple of the latency that 99 % of the answers do not exceed.
    P99(f64),
}

impl Row {
    pub(crate) fn new(title: &'static str, server: u32, load: Load) -> Self {
        Self { title, server, stores: Vec::new(), load, slices: Vec::new() }
    }

    pub(crate) fn on(mut self, stores: impl IntoIterator<Item = u32>) -> Self {
        self.stores.extend(stores);
        self
    }

    fn slice(&self, time: Duration, options: &Options) -> Result<Slice, Box<dyn Error>> {
        let stores = || -> Result<Duration, Box<dyn Error>> {
            self.stores.iter().map(|store| Ok(processor_time(*store)?)).sum()
        };
        let explained = |error: Box<dyn Error>| format!("{}: {error}", self.title);
        let requests = self.load.requests(time, options).map_err(explained)?;
        let before = (processor_time(self.server)?, stores()?);
        let measured = self.load.run(time, requests, options).map_err(explained)?;
        Ok(Slice {
            answers: measured.answers,
            wall: measured.wall,
            latency: measured.latency,
            processor: processor_time(self.server)?.saturating_sub(before.0),
            store: stores()?.saturating_sub(before.1),
        })
    }
}

impl Table {
    /// Measures all rows in turns, and prints the table.
    pub(crate) fn measure(mut self, options: &Options) -> Result<(), Box<dyn Error>> {
        if !options.includes(self.name) {
            return Ok(());
        }
        for row in &self.rows {
            row.slice(options.slice / 4, options)?;
        }
        let count = self.rows.len();
        for round in 0..options.rounds {
            for turn in 0..count {
                let row = &mut self.rows[(round + turn) % count];
                let slice = row.slice(options.slice, options)?;
                row.slices.push(slice);
            }
        }
        self.print(options);
        Ok(())
    }

    fn print(&self, options: &Options) {
        println!("\n### {}\n\n{}\n", self.title, self.about);
        println!(
            "| | answers/s | median, us | 99 %, us | processor time, us an answer | of a core | Redis, us an answer |\n\
             |---|---:|---:|---:|---:|---:|---:|"
        );
        for Row { title, slices, stores, .. } in &self.rows {
            let told = |figure: f64| if figure.is_nan() { String::new() } else { format!("{figure:.0}") };
            let store = median(slices, Slice::store_us);
            println!(
                "| {title} | {:.0} | {} | {} | {:.2} | {:.2} | {} |",
                median(slices, Slice::per_second),
                told(median(slices, Slice::median_us)),
                told(median(slices, Slice::p99_us)),
                median(slices, Slice::processor_us),
                median(slices, Slice::core),
                if stores.is_empty() { String::new() } else { format!("{store:.2}") },
            );
        }
        if !self.goals.is_empty() {
            println!("\n| goal | ratio | by processor time | reached |\n|---|---:|---:|---|");
        }
        for goal in &self.goals {
            self.print_goal(goal);
        }
        println!("\nOne slice of each, on the core of the generators:\n");
        for Row { title, load, .. } in &self.rows {
            println!("- {title}: {}", load.description(options));
        }
    }

    fn print_goal(&self, goal: &Goal) {
        let (row, beside) = (&self.rows[goal.row], &self.rows[goal.beside]);
        let shown = |[middle, low, high]: [f64; 3]| format!("{middle:.2} ({low:.2}-{high:.2})");
        let (text, by_time, by_processor, reached) = match goal.bound {
            Bound::Rate(least) => {
                let by_time = ratio(&row.slices, &beside.slices, Slice::per_second);
                let by_processor = ratio(&beside.slices, &row.slices, Slice::processor_us);
                (
                    format!("at least {least} times the rate"),
                    by_time,
                    shown(by_processor),
                    by_time[0] >= least,
                )
            }
            Bound::P99(most) => {
                let by_time = ratio(&row.slices, &beside.slices, Slice::p99_us);
                (
                    format!("at most {most} times the 99th percentile"),
                    by_time,
                    String::new(),
                    by_time[0] <= most,
                )
            }
        };
        println!(
            "| {}: {text} of {} | {} | {by_processor} | {} |",
            row.title,
            beside.title,
            shown(by_time),
            if reached { "yes" } else { "no" },
        );
    }
}
