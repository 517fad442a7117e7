//! Parts that the fuzz targets share.

pub mod bytes;
pub mod contracts;
pub mod http2;
pub mod memory;
pub mod web_socket;
