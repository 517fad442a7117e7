//! A route is found without decoding; it must match the decoded request.

use proptest::collection::vec;
use proptest::prelude::*;
use waymaker_protocol::{Heartbeat, Request, Route, route};

use crate::arbitrary::{config, request};
use crate::direction::{only_frame, patch_length};
use crate::hostile::request_bytes;

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_route_of_a_request_matches_its_decoded_message(request in request()) {
        let mut bytes = Vec::new();
        request.encode(1, &mut bytes);
        prop_assert_eq!(route(only_frame(&bytes)), decoded_route(&request));
    }

    #[test]
    fn the_route_of_arbitrary_bytes_matches_if_they_decode(bytes in request_bytes()) {
        let frame = only_frame(&bytes);
        if let Ok(request) = Request::decode(frame) {
            prop_assert_eq!(route(frame), decoded_route(&request));
        }
    }

    #[test]
    fn a_request_with_a_malformed_route_never_decodes(opcode: u8, body in vec(any::<u8>(), 0..24)) {
        let mut bytes = vec![0; 12];
        bytes[8] = opcode;
        bytes.extend(body);
        patch_length(&mut bytes);
        let frame = only_frame(&bytes);
        if route(frame) == Route::Malformed {
            prop_assert!(Request::decode(frame).is_err());
        }
    }
}

fn decoded_route<'a>(request: &Request<'a>) -> Route<'a> {
    match request {
        Request::Hello(_)
        | Request::KeepAlive(_)
        | Request::Goodbye(_)
        | Request::Pong(_)
        | Request::ServerStatus(_) => Route::Connection,
        Request::Acquire(acquire) => Route::Key(acquire.key),
        Request::Cancel(cancel) => Route::Key(cancel.key),
        Request::Inspect(inspect) => Route::Key(inspect.key),
        Request::Release(release) => Route::Claim(release.id),
        Request::Extend(extend) => Route::Claim(extend.id),
        Request::Status(status) => Route::Claim(status.id),
        Request::List(list) => Route::Cursor(list.cursor),
        Request::Holds(holds) => Route::Cursor(holds.cursor),
        Request::ListEntries(list) => Route::Cursor(list.cursor),
        Request::ListPools(list) => Route::Cursor(list.cursor),
        Request::AcquireSet(_) | Request::TreeStatistics(_) => Route::Namespace,
        Request::AcquireKeys(_) | Request::ThrottleAll(_) => Route::MultiKey,
        Request::AcquirePermits(acquire) => Route::Key(acquire.name),
        Request::DescribePool(describe) => Route::Key(describe.name),
        Request::SetCapacity(set) => Route::Key(set.name),
        Request::Throttle(throttle) => Route::Key(throttle.bucket.name),
        Request::Register(register) | Request::Heartbeat(Heartbeat(register)) => Route::Key(register.key),
        Request::Unregister(unregister) => Route::Key(unregister.key),
        Request::LookUp(look_up) => Route::Key(look_up.key),
        Request::Watch(watch) => Route::Key(watch.key),
        Request::Unwatch(unwatch) => Route::Key(unwatch.key),
        Request::Verify(verify) => Route::Key(verify.key),
        Request::ForceRelease(release) => Route::Claim(release.id),
        Request::Freeze(_) | Request::Namespaces(_) | Request::RemoveNamespace(_) => Route::Broadcast,
    }
}
