//! Reads the Markdown documents of this repository, so that tests can run their examples and follow their links.
//!
//! The suite `documents` (`tests/documents/`) runs every fenced block of the documents in [`DOCUMENTS`]. The word after the fence
//! says how:
//!
//! | Fence | Test |
//! |---|---|
//! | `sh` | Bash runs the block with `-eu` against a server of its own. It must succeed, and it must call each `./NAME` that it names |
//! | `sh,etcd`, `sh,redis`, `sh,postgresql` | The same, beside that server. Skipped if it is not installed |
//! | `console` | Lines after `$ ` are run; the other lines are their output, in which `...` stands for anything |
//! | `crontab`, `ini` | The command of each schedule, and of `ExecStart=`, is run like `sh` |
//! | `rust` | Compiled, and run against a server of its own. Without `fn main` it is the body of a function with a `client` |
//! | `sql` | SQLite and PostgreSQL run the block, with the parameter `:fence` |
//! | `sql,postgresql` | PostgreSQL runs the block |
//! | `python`, `go`, `js` | `compatibility/` runs the block: a file of `compatibility/examples/`, or a document of `test_documents.py` |
//! | `text` | Nothing to run |
//! | anything with `,other` | Code of another system; not run |
//!
//! Functions with the parameter `client: &Client` in such a body are called. Documents name their server by the default addresses, and its
//! data directory by `/var/lib/waymaker`, `waymaker-data` or `$DATA_DIR`; the tests replace them.
//!
//! Any other fence fails the suite. Blocks of one document share a directory and a server, and run in their order.

pub mod blocks;
pub mod links;

pub use blocks::{Block, DOCUMENTS, blocks, documents};
