//! The results of checks of servers, as they are handed out.

use crate::metrics::Text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A server that is checked.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct BackendStatus {
    /// The function that it is behind, as chains name it.
    pub function: String,
    /// The service.
    pub service: String,
    /// Its name there.
    pub backend: String,
    /// Where it is checked.
    pub endpoint: String,
    /// Whether its checks pass; without, no check has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
    /// Why the last check that failed did; empty while it is up.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// How long it has been so.
    pub seconds: f64,
}

impl BackendStatus {
    /// As people read it.
    pub fn state(&self) -> &'static str {
        match self.up {
            None => "unknown",
            Some(true) => "up",
            Some(false) => "failing",
        }
    }
}

/// Appends the figures.
pub(crate) fn metrics(text: &mut Text, backends: &[BackendStatus]) {
    let mut metric = text.gauge("backend_up", "Whether the checks of a server pass: 1 or 0.");
    for one in backends {
        let labels = [
            ("function", one.function.as_str()),
            ("service", one.service.as_str()),
            ("backend", one.backend.as_str()),
        ];
        if let Some(up) = one.up {
            metric.sample(&labels, u8::from(up));
        }
    }
}
