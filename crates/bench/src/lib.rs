//! The I/O evaluation tool: declared experiments, exact workloads, verified data, honest statistics.
//!
//! ```text
//!   experiment ──expand──▶ plan ──▶ execute ──assignments──▶ coordinator ══TCP══▶ workers ──▶ backend
//!   (JSON/YAML/TOML,        (runs in      │                  (start together,      (requests with
//!    IORE, IOR's words)      blocks)      ▼                   deaths noticed)       signatures, timed)
//!                                       rows ──▶ statistics ──▶ tables, CSV, Parquet, HTML
//! ```
//!
//! It measures from outside: nothing that is measured is linked in, except as a backend with a name. Invariants: bytes
//! and requests are counted, never inferred; every byte that is read is checked unless the experiment says otherwise;
//! rates are of all workers together, and no rate is ever averaged arithmetically.

pub mod backend;
pub mod cache;
pub mod claims;
pub mod clock;
pub mod compare;
pub mod coordinator;
pub mod error;
pub mod execute;
pub mod experiment;
pub mod io500;
pub mod ior;
pub mod iore;
pub mod latencies;
pub mod layout;
pub mod mdtest;
pub mod names;
pub mod needs;
pub mod origins;
pub mod plan;
pub mod protocol;
pub mod quantity;
pub mod report;
pub mod results;
pub mod settings;
pub mod signature;
pub mod statistics;
pub mod stop;
pub mod strict;
pub mod tiers;
pub mod worker;
pub mod workload;
