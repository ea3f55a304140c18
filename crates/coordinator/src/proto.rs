//! Messages and calls, made of `proto/flowkeep.proto`, which says their meaning.

#![allow(
    missing_docs,
    clippy::missing_docs_in_private_items,
    reason = "made of a file that has the comments"
)]

// The generated code names it.
use tonic_prost as _;

tonic::include_proto!("flowkeep.v1");

/// The part of etcd's that is used here.
pub mod etcd {
    tonic::include_proto!("etcdserverpb");
}
