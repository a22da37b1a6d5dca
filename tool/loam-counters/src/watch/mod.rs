//! Looks at many processes repeatedly. `top` and `export` share this code.
//!
//! `sampler` finds processes and reads them, each tick at as little cost as possible; `rates`
//! compares two ticks. A process that ends, refuses or misleads the reader loses only its own row.

pub mod rates;
pub mod sampler;
