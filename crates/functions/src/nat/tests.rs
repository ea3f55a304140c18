//! Tests of NAT: the RFCs' requirements by name, an oracle under random sequences, ICMP, settings.
//!
//! They drive the function itself, without a runtime: [`rig`] keeps flows and groups as a runtime
//! would.

mod changes;
mod established;
mod exhaustion;
mod frames;
mod icmp;
mod oracle;
mod planted;
mod rfc;
mod rig;
mod settings;
mod whole;
