//! Many processes, looked at again and again: what `top` and `export` share.
//!
//! `sampler` finds processes and reads them, each tick as cheaply as may be; `rates` compares two
//! ticks. A process that ends, refuses or confuses costs its own row and nothing else.

pub mod rates;
pub mod sampler;
