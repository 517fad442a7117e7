//! The dialect of Locket.

mod calls;
mod fake;
mod joint;
mod runners;

use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use waymaker_client::dialect::locket::{Error, Locket, Resource, TypeCode};

use crate::fake::soon;
use crate::real::{RealServer, server};

/// What a server is told to speak gRPC.
const GRPC: &[&str] = &["--grpc-listen", "127.0.0.1:0"];

async fn client(server: &RealServer) -> Locket {
    Locket::connect(&format!("http://{}", server.listener("grpc"))).await.expect("it is there")
}

fn resource(key: &str, owner: &str, type_code: TypeCode) -> Resource {
    Resource {
        key: key.to_owned(),
        owner: owner.to_owned(),
        type_code: type_code.into(),
        ..Resource::default()
    }
}

fn lock(key: &str, owner: &str) -> Resource {
    resource(key, owner, TypeCode::Lock)
}

/// Waits until nobody has the key.
async fn until_gone(locket: &Locket, key: &str) {
    let gone = async {
        while locket.fetch(key).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(gone).await;
    assert!(matches!(locket.fetch(key).await, Err(Error::ResourceNotFound)));
}
