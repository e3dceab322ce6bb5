//! A table by attributes' values: a request finds the data for its own values, however many others there are.

use crate::Map;
use crate::attributes::{Attributes, Reference};

/// Data by values of attributes. A lookup costs one probe for each attribute that occurs.
#[derive(Clone, Debug)]
pub(crate) struct ValueTable<T> {
    attributes: Vec<(Reference, Values<T>)>,
}

type Values<T> = Map<Box<[u8]>, T>;

impl<T> Default for ValueTable<T> {
    fn default() -> Self {
        Self { attributes: Vec::new() }
    }
}

impl<T: Default> ValueTable<T> {
    /// The data for a value of an attribute.
    pub(crate) fn entry(&mut self, reference: &Reference, value: &[u8]) -> &mut T {
        let found = self.attributes.iter().position(|(other, _)| other == reference);
        let at = found.unwrap_or_else(|| {
            self.attributes.push((reference.clone(), Values::default()));
            self.attributes.len() - 1
        });
        self.attributes[at].1.entry(value.into()).or_default()
    }

    /// The data for the values of a request.
    pub(crate) fn of<'t>(&'t self, request: &Attributes<'_>) -> impl Iterator<Item = &'t T> {
        self.attributes.iter().filter_map(|(reference, values)| values.get(request.value(reference)?))
    }
}
