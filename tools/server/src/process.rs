//! What the system knows of the process, under the names that the client libraries of Prometheus give it. Only Linux has it; elsewhere
//! the families have no samples.

use polylimit::metrics::{Family, FamilyKind, SampleValue};

/// What is measured of a process.
#[derive(Default)]
struct Measured {
    cpu_seconds: Option<f64>,
    resident_bytes: Option<f64>,
    virtual_bytes: Option<f64>,
    open_fds: Option<f64>,
    max_fds: Option<f64>,
    threads: Option<f64>,
    /// Since 1970.
    start_seconds: Option<f64>,
}

pub(crate) fn families() -> Vec<Family> {
    let measured = Measured::now();
    let gauge = FamilyKind::Gauge;
    [
        (
            "process_cpu_seconds_total",
            FamilyKind::Counter,
            "Processor time of the process, of user and system together.",
            measured.cpu_seconds,
        ),
        ("process_resident_memory_bytes", gauge, "Resident memory of the process.", measured.resident_bytes),
        ("process_virtual_memory_bytes", gauge, "Virtual memory of the process.", measured.virtual_bytes),
        ("process_open_fds", gauge, "Open file descriptors of the process.", measured.open_fds),
        ("process_max_fds", gauge, "How many file descriptors the process may have open.", measured.max_fds),
        ("process_threads", gauge, "Threads of the process.", measured.threads),
        (
            "process_start_time_seconds",
            gauge,
            "When the process started, since 1970.",
            measured.start_seconds,
        ),
    ]
    .into_iter()
    .map(|(name, kind, help, value)| {
        let mut family = Family::new(name, kind, help);
        if let Some(value) = value {
            family.add([], SampleValue::Number(value));
        }
        family
    })
    .collect()
}

impl Measured {
    #[cfg(not(target_os = "linux"))]
    fn now() -> Self {
        Self::default()
    }

    /// What cannot be read is left out: a container may hide parts of /proc.
    #[cfg(target_os = "linux")]
    #[expect(clippy::cast_precision_loss, reason = "sizes and times are far below 2^53")]
    fn now() -> Self {
        use procfs::process::{LimitValue, Process};
        let Ok(process) = Process::myself() else { return Self::default() };
        let stat = process.stat().ok();
        let stat = stat.as_ref();
        let ticks = procfs::ticks_per_second() as f64;
        let limits = process.limits().ok();
        Self {
            cpu_seconds: stat.map(|stat| (stat.utime + stat.stime) as f64 / ticks),
            resident_bytes: stat.map(|stat| (stat.rss * procfs::page_size()) as f64),
            virtual_bytes: stat.map(|stat| stat.vsize as f64),
            open_fds: process.fd_count().ok().map(|count| count as f64),
            max_fds: limits.map(|limits| match limits.max_open_files.soft_limit {
                LimitValue::Unlimited => f64::INFINITY,
                LimitValue::Value(most) => most as f64,
            }),
            threads: stat.map(|stat| stat.num_threads as f64),
            start_seconds: stat
                .zip(procfs::boot_time_secs().ok())
                .map(|(stat, boot)| boot as f64 + stat.starttime as f64 / ticks),
        }
    }
}
