//! Requests and their attributes, as `ts/` passes them.

use polylimit::Request;
use polylimit::document::RequestAttributes;
use polylimit::raw::ReservationTerms;
use polylimit::reservation::{ReservationId, ReserveOptions};
use serde::Deserialize;

use crate::arguments::{Result, UNITS, duration, to_js, whole};

/// A key, with the options of its request.
#[derive(Deserialize)]
pub(crate) struct KeyRequest {
    #[serde(with = "bytes")]
    key: Vec<u8>,
    policy: Option<String>,
    cost: Option<f64>,
    headroom: Option<f64>,
    plan: Option<String>,
    #[serde(skip)]
    units: Option<u64>,
    #[serde(skip)]
    percent: Option<u8>,
}

impl KeyRequest {
    /// Checks the numbers, which JavaScript has as floating point.
    pub(crate) fn checked(mut self) -> Result<Self> {
        self.units = self.cost.map(|cost| whole("cost", cost, UNITS)).transpose()?;
        let percent =
            self.headroom.map(|headroom| whole("headroom", headroom, "a whole number from 0 to 99 percent"));
        self.percent = percent.transpose()?.map(|percent| u8::try_from(percent).unwrap_or(u8::MAX));
        Ok(self)
    }

    pub(crate) fn request(&self) -> Request<'_> {
        let mut request = Request::new(&self.key);
        if let Some(policy) = &self.policy {
            request = request.policy(policy);
        }
        if let Some(units) = self.units {
            request = request.cost(units);
        }
        if let Some(percent) = self.percent {
            request = request.headroom(percent);
        }
        if let Some(plan) = &self.plan {
            request = request.plan(plan);
        }
        request
    }
}

/// The terms of a reservation.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Terms {
    #[serde(default, with = "optional_bytes")]
    id: Option<Vec<u8>>,
    ttl_ms: Option<f64>,
    remember_ms: Option<f64>,
}

impl Terms {
    pub(crate) fn read(&self) -> Result<ReservationTerms> {
        let mut options = ReserveOptions::default();
        if let Some(id) = &self.id {
            options = options.id(reservation_id(id)?);
        }
        if let Some(ms) = self.ttl_ms {
            options = options.ttl(duration("ttlMs", ms)?);
        }
        if let Some(ms) = self.remember_ms {
            options = options.remember(duration("rememberMs", ms)?);
        }
        options.terms().map_err(|error| to_js(&error))
    }
}

pub(crate) fn reservation_id(id: &[u8]) -> Result<ReservationId> {
    ReservationId::new(id).map_err(|error| to_js(&error))
}

/// What a program knows about a request.
#[derive(Deserialize)]
pub(crate) struct RequestValues {
    method: Option<String>,
    path: Option<String>,
    peer: Option<String>,
    headers: Vec<(String, String)>,
    attributes: Vec<Attribute>,
}

#[derive(Deserialize)]
struct Attribute {
    name: String,
    #[serde(with = "bytes")]
    value: Vec<u8>,
}

impl RequestValues {
    pub(crate) fn read(&self) -> RequestAttributes<'_> {
        let mut request = RequestAttributes::new();
        if let Some(method) = &self.method {
            request = request.method(method);
        }
        if let Some(path) = &self.path {
            request = request.path(path);
        }
        if let Some(peer) = &self.peer {
            request = request.peer(peer);
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        for Attribute { name, value } in &self.attributes {
            request = request.attribute(name, value);
        }
        request
    }
}

/// Bytes of a `Uint8Array`.
mod bytes {
    use serde::de::{Deserializer, Visitor};

    struct Bytes;

    impl Visitor<'_> for Bytes {
        type Value = Vec<u8>;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("a Uint8Array")
        }

        fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
            Ok(bytes)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        deserializer.deserialize_byte_buf(Bytes)
    }
}

mod optional_bytes {
    use serde::{Deserialize, Deserializer};

    #[derive(Deserialize)]
    struct Bytes(#[serde(with = "super::bytes")] Vec<u8>);

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<u8>>, D::Error> {
        Ok(Option::<Bytes>::deserialize(deserializer)?.map(|Bytes(bytes)| bytes))
    }
}
