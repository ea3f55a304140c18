//! Everything that needs a server: one process, so that all of it shares one Cassandra, which takes seconds to start.

mod cassandra;
mod cassandra_faults;
mod conformance;
mod faults;
mod redis;
mod redis_tls;
mod whole;
