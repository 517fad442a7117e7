//! A connection of the client without its task: how the benches drive it.
//!
//! Public for `waymaker-bench` alone, and hidden from the documentation. `Session` stays private: it relies on the order
//! of calls of `connection.rs`, and [`Lane`] keeps that order.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::sync::mpsc;
use tokio_util::codec::Decoder;
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{Welcome, next_frame};

use crate::acquire::AcquireBuilder;
use crate::claim::Wanted;
use crate::clock::Clock;
use crate::codec::FrameCodec;
use crate::error::Result;
use crate::job::Command;
use crate::session::{Session, SessionOptions};
use crate::shared_session::SharedSession;
use crate::space::Shared;

/// An open connection: its handles, the channel of their commands, the session, and the codec of its reader. Bytes
/// replace the socket, and calls replace the task.
pub struct Lane {
    shared: Arc<Shared>,
    commands: mpsc::UnboundedReceiver<Command>,
    clock: Arc<dyn Clock>,
    session: Session,
    codec: FrameCodec,
    read: BytesMut,
}

impl Lane {
    /// A lane that the server has just welcomed. The caller keeps the time.
    ///
    /// # Panics
    /// Never: a new session lets its first connection in.
    pub fn connected(clock: Arc<dyn Clock>, welcome: Welcome) -> Self {
        let (shared, commands) = Shared::new(Arc::clone(&clock));
        let common = Arc::new(SharedSession::default());
        common.enter(shared.commands()).expect("a new session is open");
        let options = SessionOptions {
            lease_ms: 0,
            outage_max: Duration::from_secs(5),
            request_timeout: Duration::from_secs(5),
        };
        let now = clock.now();
        let mut session = Session::new(options, common, Arc::downgrade(&shared), now);
        session.request();
        session.handle_welcome(welcome, now, now);
        let codec = FrameCodec { frame_len_max: FRAME_LEN_MAX };
        Self { shared, commands, clock, session, codec, read: BytesMut::new() }
    }

    /// Asks for a key alone, as [`Client::write`](crate::Client::write) does.
    pub fn write(&self, key: &[u8]) -> AcquireBuilder {
        AcquireBuilder::new(Ok(Arc::clone(&self.shared)), Wanted::Key { key: key.into(), shared: false })
    }

    /// Hands the commands of handles and guards to the session, and replaces `sent` by the bytes that it sends.
    pub fn transmit(&mut self, sent: &mut Vec<u8>) {
        let now = self.clock.now();
        while let Ok(command) = self.commands.try_recv() {
            self.session.handle_command(command, now);
        }
        if self.session.wants_to_transmit() {
            self.session.transmit(now);
        }
        sent.clear();
        std::mem::swap(&mut self.session.out, sent);
    }

    /// Hands bytes of the server to the session, frame by frame.
    ///
    /// # Errors
    /// If the connection is of no use any more.
    ///
    /// # Panics
    /// Never: the codec yields whole frames.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        self.read.extend_from_slice(bytes);
        let now = self.clock.now();
        while let Some(bytes) = self.codec.decode(&mut self.read)? {
            let frame = next_frame(&bytes, FRAME_LEN_MAX).ok().flatten();
            self.session.handle_frame(frame.expect("the codec yields whole frames"), now)?;
        }
        std::hint::black_box(self.session.next_timeout());
        Ok(())
    }
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Lane").finish_non_exhaustive()
    }
}
