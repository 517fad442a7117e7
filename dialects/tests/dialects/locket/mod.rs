//! The dialect of Locket.

mod calls;
mod fake;
mod joint;
mod runners;

use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use waymaker_dialects::locket::{Error, Locket, Resource, TypeCode};

use crate::patience::{eventually, soon};
use crate::real::{RealServer, server};

/// Arguments of a server with gRPC.
const GRPC: &[&str] = &["--grpc-listen", "127.0.0.1:0"];

/// Arguments of a server that speaks gRPC and has one worker, for [`undisturbed`](crate::undisturbed::undisturbed).
const GRPC_OF_ONE_WORKER: &[&str] = &["--grpc-listen", "127.0.0.1:0", "--workers", "1"];

/// Connects; tries again if the server does not answer in time.
async fn client(server: &RealServer) -> Locket {
    let address = format!("http://{}", server.listener("grpc"));
    soon(async {
        loop {
            if let Ok(locket) = Locket::connect(&address).await {
                return locket;
            }
        }
    })
    .await
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

/// Waits until the key is free.
async fn until_gone(locket: &Locket, key: &str) {
    eventually(async || locket.fetch(key).await.is_err()).await;
    assert!(matches!(locket.fetch(key).await, Err(Error::ResourceNotFound)));
}
