//! The channel between two workers: messages in order and exactly once, beside data packets on the same path.
