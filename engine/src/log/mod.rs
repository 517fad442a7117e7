//! The durable log: what it says (`record`), and what that adds up to (`image`). Pure functions of bytes.

pub mod image;
pub mod record;

pub use image::Image;
pub use record::{BadRecord, Hold, Item, Record, SessionTag, Started};
