//! Writes the tests of the documents: one for each Rust block, and one for all other blocks of each document.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

#[path = "src/blocks.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library exports it, and the script uses a part of it")]
mod blocks;

use blocks::Block;

/// Addresses that documents use, which the tests replace by the addresses of their servers.
const ADDRESSES: [&str; 3] = ["waymaker://127.0.0.1:7420", "http://127.0.0.1:7421", "ws://127.0.0.1:7422"];

fn main() {
    let root = Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo")).join("..");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    for path in blocks::DOCUMENTS.iter().copied().chain(["documents/src/blocks.rs"]) {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    let (mut rust, mut shell) = (String::new(), String::new());
    for document in blocks::documents(&root) {
        println!("cargo::rerun-if-changed={}", root.join(&document).display());
        let mut others = false;
        for block in blocks::blocks(&root, &document) {
            if block.language == "rust" && !block.has("other") {
                write_rust_test(&mut rust, &block);
            } else {
                others = true;
            }
        }
        if others {
            let name = identifier(&document);
            writeln!(shell, "#[test]\nfn {name}() {{ crate::documents::run({document:?}); }}\n").unwrap();
        }
    }
    fs::write(out.join("rust_blocks.rs"), rust).unwrap();
    fs::write(out.join("documents.rs"), shell).unwrap();
}

/// Writes a module with the block and a test that runs it.
fn write_rust_test(out: &mut String, block: &Block) {
    let name = format!("{}_line_{}", identifier(&block.document), block.line);
    let text = with_addresses(&block.text);
    let is_program = text.contains("fn main(");
    writeln!(out, "// {}", block.place()).unwrap();
    if is_program {
        write!(out, "mod {name} {{\n{text}\n#[test]\nfn runs() {{ crate::rust::program(main); }}\n}}\n\n")
            .unwrap();
    } else {
        let calls = functions_of_a_client(&text);
        write!(
            out,
            "mod {name} {{\nuse crate::rust::prelude::*;\nasync fn example(client: Client) -> Result<(), Box<dyn \
             std::error::Error>> {{\n{text}\n;{calls}Ok(())\n}}\n#[test]\nfn runs() {{ crate::rust::body(example); \
             }}\n}}\n\n"
        )
        .unwrap();
    }
}

/// Returns calls of all functions in a block that take a client.
fn functions_of_a_client(text: &str) -> String {
    let functions =
        text.lines().filter_map(|line| line.strip_prefix("async fn ")?.split_once("(client: &Client)"));
    functions.map(|(name, _)| format!("{name}(&client).await?;")).collect()
}

/// Replaces string literals with an address of the documents by the address of the test's server.
fn with_addresses(text: &str) -> String {
    let mut text = text.to_owned();
    for address in ADDRESSES {
        let literal = format!("\"{address}");
        let mut done = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once(&literal) {
            let (tail, after) = after.split_once('"').expect("the literal ends");
            write!(done, "{before}&crate::rust::address({:?})", format!("{address}{tail}")).unwrap();
            rest = after;
        }
        done.push_str(rest);
        text = done;
    }
    text
}

/// Returns the path of a document as an identifier, such as `docs_guides_cron`.
fn identifier(document: &str) -> String {
    let name = document.trim_end_matches(".md").to_lowercase();
    name.replace(|character: char| !character.is_ascii_alphanumeric(), "_")
}
