//! Everything that needs a server: one process, so that all of it shares one Cassandra, which takes
//! seconds to start.

mod apart;
mod authority;
mod cassandra;
mod cassandra_ended;
mod cassandra_faults;
mod cassandra_lies;
mod cassandra_settings;
mod cassandra_three;
mod cassandra_tls;
mod cassandra_users;
mod conformance;
mod faults;
mod hostile_node;
mod mirror;
mod proxies;
mod random_calls;
mod redb_faults;
mod redis;
mod redis_cluster;
mod redis_lies;
mod redis_tls;
mod whole;
