//! `LimiterService`.

use super::{assert_bad_input, server};
use waymaker_proto::v1::limiter_service_client::LimiterServiceClient;
use waymaker_proto::v1::{Bucket, ThrottleRequest};

/// A bucket of three tokens, of which one comes back in an hour.
fn bucket(name: &str) -> Bucket {
    Bucket { name: name.to_owned(), rate: 1, period_ns: 3_600_000_000_000, burst: 3, cost: None }
}

fn take(buckets: &[Bucket]) -> ThrottleRequest {
    ThrottleRequest { buckets: buckets.to_vec(), ..ThrottleRequest::default() }
}

#[tokio::test]
async fn tokens_are_taken_until_the_bucket_is_empty_and_can_be_refunded() {
    let (_server, channel) = server().await;
    let mut limiter = LimiterServiceClient::new(channel);
    for remaining in [2, 1, 0] {
        let answer = limiter.throttle(take(&[bucket("mails")])).await.unwrap().into_inner();
        assert!(answer.allowed);
        assert_eq!((answer.remaining, answer.retry_after_ns), (remaining, 0));
    }
    let answer = limiter.throttle(take(&[bucket("mails")])).await.unwrap().into_inner();
    assert!(!answer.allowed);
    assert!((1..=3_600_000_000_000).contains(&answer.retry_after_ns));
    let too_many = Bucket { cost: Some(4), ..bucket("mails") };
    let answer = limiter.throttle(take(&[too_many])).await.unwrap().into_inner();
    assert_eq!((answer.allowed, answer.retry_after_ns), (false, u64::MAX));
    let refund = ThrottleRequest { refund: true, ..take(&[bucket("mails")]) };
    assert_eq!(limiter.throttle(refund).await.unwrap().into_inner().remaining, 1);
    let look = Bucket { cost: Some(0), ..bucket("mails") };
    assert_eq!(limiter.throttle(take(&[look])).await.unwrap().into_inner().remaining, 1);
}

#[tokio::test]
async fn several_buckets_all_give_tokens_or_none_does() {
    let (_server, channel) = server().await;
    let mut limiter = LimiterServiceClient::new(channel);
    let tight = Bucket { burst: 1, ..bucket("tight") };
    let both = take(&[bucket("wide"), tight]);
    assert!(limiter.throttle(both.clone()).await.unwrap().into_inner().allowed);
    assert!(!limiter.throttle(both).await.unwrap().into_inner().allowed);
    let look = Bucket { cost: Some(0), ..bucket("wide") };
    assert_eq!(limiter.throttle(take(&[look])).await.unwrap().into_inner().remaining, 2);
}

#[tokio::test]
async fn an_invalid_request_is_rejected_by_field_and_limit() {
    let (_server, channel) = server().await;
    let mut limiter = LimiterServiceClient::new(channel);
    assert_bad_input(limiter.throttle(take(&[])).await, "count", 0);
    assert_bad_input(limiter.throttle(take(&vec![bucket("b"); 65])).await, "count", 64);
    assert_bad_input(limiter.throttle(take(&[bucket("")])).await, "name", 0);
    assert_bad_input(limiter.throttle(take(&[Bucket { rate: 0, ..bucket("b") }])).await, "rate", 0);
    assert_bad_input(limiter.throttle(take(&[Bucket { burst: 0, ..bucket("b") }])).await, "burst", 0);
    assert_bad_input(limiter.throttle(take(&[Bucket { period_ns: 0, ..bucket("b") }])).await, "period_ns", 0);
    assert_bad_input(limiter.throttle(take(&[bucket(&"b".repeat(1025))])).await, "name", 1024);
}
