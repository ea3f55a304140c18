//! The functions a binary knows, by name.
//!
//! ```no_run
//! use flowkeep::registry;
//! use functions::{firewall::Firewall, load_balancer::LoadBalancer};
//!
//! fn main() -> std::process::ExitCode {
//!     flowkeep::main(registry![Firewall, LoadBalancer])
//! }
//! ```
//!
//! The runtime never sees the functions and the functions never see the runtime: an [`Entry`]
//! brings them together, made where both are known.

use nf::{Affinity, NetworkFunction};
use runtime::fused::{Fused, Sequence};
use runtime::stage::{Configured, Factory};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;
use std::fmt;
use std::marker::PhantomData;
use std::sync::OnceLock;
use toml::Spanned;
use toml::de::DeTable;

/// Reads a function's table: its name in chains, and the table's content.
pub type Read = fn(&str, Spanned<DeTable<'_>>) -> Result<Box<dyn Factory>, toml::de::Error>;

/// A function that can stand in a chain.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in configurations.
    pub name: &'static str,
    /// Which flows it needs together.
    pub affinity: Affinity,
    /// Settings that name files, which are read before the table is.
    pub files: &'static [&'static str],
    /// Reads its table of the configuration; the name is what chains call it.
    pub read: Read,
    /// The JSON schema of its table.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
}

impl Entry {
    /// The entry of a function. `schema` is made by the macro [`registry!`](crate::registry!),
    /// which knows whether the settings have one.
    pub fn of<F: NetworkFunction>(schema: fn(&mut SchemaGenerator) -> Schema) -> Self {
        Entry {
            name: F::NAME,
            affinity: F::AFFINITY,
            files: F::FILES,
            read: |name, table| {
                use serde::Deserialize;
                let config = F::Config::deserialize(toml::de::Deserializer::from(table))?;
                Ok(Box::new(Configured::<F>::new(name, config)))
            },
            schema,
        }
    }

    /// The function with the settings it has without a table.
    pub fn defaults(&self) -> Result<Box<dyn Factory>, toml::de::Error> {
        (self.read)(self.name, Spanned::new(0..0, DeTable::new()))
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({})", self.name)
    }
}

/// The functions a binary knows.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    entries: Vec<Entry>,
    fused: Vec<Fused>,
    /// The configuration's schema with these functions, once a caller has asked for it.
    pub(crate) schema: OnceLock<Value>,
}

impl Registry {
    /// A registry of these functions.
    ///
    /// # Panics
    /// If two have the same name.
    pub fn new(entries: Vec<Entry>) -> Self {
        for (index, entry) in entries.iter().enumerate() {
            let twice = entries[..index].iter().any(|other| other.name == entry.name);
            assert!(!twice, "two functions are called `{}`: rename one", entry.name);
        }
        Registry {
            entries,
            fused: Vec::new(),
            schema: OnceLock::new(),
        }
    }

    /// These functions and others behind them.
    ///
    /// # Panics
    /// If two have the same name.
    #[must_use]
    pub fn and(mut self, others: Registry) -> Self {
        self.entries.extend(others.entries);
        self.fused.extend(others.fused);
        let fused = self.fused;
        Registry {
            fused,
            ..Registry::new(self.entries)
        }
    }

    /// Chains of exactly these functions are compiled in one piece, which takes fewer instructions:
    /// `registry![Firewall, Nat].fuse::<(Firewall, Nat)>()`. Two to four functions.
    #[must_use]
    pub fn fuse<S: Sequence>(mut self) -> Self {
        self.fused.push(Fused::of::<S>());
        self
    }

    /// The chains that are compiled in one piece.
    pub fn fused(&self) -> &[Fused] {
        &self.fused
    }

    /// All of them, in the order in which they were given.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The function of that name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// All names.
    pub fn names(&self) -> Vec<&'static str> {
        self.entries.iter().map(|entry| entry.name).collect()
    }
}

/// Makes a [`Registry`] of network functions: `registry![Firewall, Nat]`.
#[macro_export]
macro_rules! registry {
    ($($function:ty),* $(,)?) => {
        $crate::registry::Registry::new(vec![$(
            $crate::registry::Entry::of::<$function>(|generator| {
                #[allow(unused_imports, reason = "it is for settings that have no schema of their own")]
                use $crate::registry::NoSchema as _;
                $crate::registry::SchemaOf::<<$function as $crate::nf::NetworkFunction>::Config>::new()
                    .schema(generator)
            })
        ),*])
    };
}

/// The schema of a type, if it has one: then this type's own method is found, otherwise
/// [`NoSchema`]'s.
#[doc(hidden)]
#[derive(Debug)]
pub struct SchemaOf<T>(PhantomData<T>);

impl<T> SchemaOf<T> {
    #[doc(hidden)]
    #[allow(clippy::new_without_default, reason = "only the macro makes it")]
    pub fn new() -> Self {
        SchemaOf(PhantomData)
    }
}

impl<T: JsonSchema> SchemaOf<T> {
    #[doc(hidden)]
    pub fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }
}

/// For settings without a schema: any table will do.
#[doc(hidden)]
pub trait NoSchema {
    #[doc(hidden)]
    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}

impl<T> NoSchema for SchemaOf<T> {}
