//! The files that this process has open: each is opened once, however many limiters use it.
//!
//! So a process takes one place among the owners of a file, one mapping and one descriptor, and releases them when its
//! last limiter of that file is closed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use crate::error::Error;
use crate::runtime::fork::ProcessGeneration;
use crate::store::shared_file::location::SharedFileOptions;
use crate::store::shared_file::mapped_store::MappedStore;

/// The open files of one process. A forked child starts without any: locks may be held by threads that do not exist in
/// the child.
struct Files {
    generation: ProcessGeneration,
    by_path: Mutex<Vec<(PathBuf, Arc<Place>)>>,
}

/// One file, shared by the limiters of a process; locked while one of them opens the file.
type Place = Mutex<Weak<MappedStore>>;

static FILES: ArcSwapOption<Files> = ArcSwapOption::const_empty();

/// The file that the options name: the one that this process has open, or newly opened.
pub(crate) fn open(options: &SharedFileOptions) -> Result<Arc<MappedStore>, Error> {
    let path = options.path()?;
    let place = files().place(&path);
    let mut known = place.lock();
    if let Some(opened) = known.upgrade().filter(|opened| opened.is_usable())
        && opened.is_good_for(options)?
    {
        return Ok(opened);
    }
    let opened = Arc::new(MappedStore::open(options, &path)?);
    *known = Arc::downgrade(&opened);
    Ok(opened)
}

fn files() -> Arc<Files> {
    loop {
        let found = FILES.load();
        if let Some(files) = found.as_ref().filter(|files| files.generation.is_here()) {
            return Arc::clone(files);
        }
        let made = Arc::new(Files { generation: ProcessGeneration::here(), by_path: Mutex::default() });
        FILES.compare_and_swap(&found, Some(made));
    }
}

impl Files {
    fn place(&self, path: &Path) -> Arc<Place> {
        let mut by_path = self.by_path.lock();
        if let Some((_, place)) = by_path.iter().find(|(known, _)| known == path) {
            return Arc::clone(place);
        }
        by_path.retain(|(_, place)| Arc::strong_count(place) > 1 || is_open(place));
        let place = Arc::default();
        by_path.push((path.to_owned(), Arc::clone(&place)));
        place
    }
}

fn is_open(place: &Place) -> bool {
    place.lock().strong_count() > 0
}
