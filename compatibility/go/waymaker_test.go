package locks

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	pb "example/locks/waymaker"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// The server shows the time of day within 100 ms of the machine's clock. A thread of the server that
// is not scheduled may show the time of its last clock reading.
const shownWithinMs = 500

// stream is the stream of one attempt. It lasts as long as the test.
type stream struct {
	grpc.ServerStreamingClient[pb.LockEvent]
	cancel context.CancelFunc
}

// acquire is the method Lock or ReadLock of a client.
type acquire = func(context.Context, *pb.LockRequest, ...grpc.CallOption) (
	grpc.ServerStreamingClient[pb.LockEvent], error)

// connect returns a client over a connection of its own.
func connect(t *testing.T) pb.WaymakerServiceClient {
	t.Helper()
	connection, err := grpc.NewClient(addresses["grpc"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { connection.Close() })
	return pb.NewWaymakerServiceClient(connection)
}

// lock attempts to lock a key that only this test uses. By default the lease is longer than the test.
func lock(t *testing.T, client pb.WaymakerServiceClient, request *pb.LockRequest) stream {
	t.Helper()
	return attempt(t, client.Lock, request)
}

func attempt(t *testing.T, acquire acquire, request *pb.LockRequest) stream {
	t.Helper()
	request.Key = t.Name()
	if request.MaxLeasePeriod == 0 {
		request.MaxLeasePeriod = hourMs
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	events, err := acquire(ctx, request)
	must(t, err)
	return stream{events, cancel}
}

// Recv waits for the next event until the watchdog ends the stream.
func (s stream) Recv() (*pb.LockEvent, error) {
	timer := time.AfterFunc(watchdog, s.cancel)
	defer timer.Stop()
	return s.ServerStreamingClient.Recv()
}

// next returns the next event other than a heartbeat, which must have this type.
func next(t *testing.T, events stream, wanted pb.LockEventType) *pb.LockEvent {
	t.Helper()
	for {
		event, err := events.Recv()
		must(t, err)
		if event.EventType == pb.LockEventType_Heartbeat {
			continue
		}
		want(t, "event "+event.Message, event.EventType, wanted)
		want(t, "key", event.Key, t.Name())
		return event
	}
}

// end checks that the stream ends here, with status OK.
func end(t *testing.T, events stream) {
	t.Helper()
	if event, err := events.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("no end of the stream, but %v %v", event, err)
	}
}

func unlock(t *testing.T, client pb.WaymakerServiceClient, key, id string) {
	t.Helper()
	response, err := client.UnLock(ask(t), &pb.UnLockRequest{Key: key, Id: id})
	must(t, err)
	want(t, "result", response.ResultCode, "ok")
}

func TestAFreeKeyIsGrantedAtOnce(t *testing.T) {
	client := connect(t)
	events := lock(t, client, &pb.LockRequest{MaxLeasePeriod: hourMs})
	acquired := next(t, events, pb.LockEventType_Acquired)
	want(t, "success", acquired.Success, true)
	want(t, "fence", acquired.FenceToken, 1)
	if lease := acquired.LeaseExpiresAt - acquired.AcquiredAt; lease < hourMs-50 || lease > hourMs+50 {
		t.Fatalf("a lease of %d ms", lease)
	}
	unlock(t, client, t.Name(), acquired.Id)
	end(t, events)
}

func TestAnAttemptForAHeldKeyIsGrantedAfterTheRelease(t *testing.T) {
	holder, waiter := connect(t), connect(t)
	hold := next(t, lock(t, holder, &pb.LockRequest{}), pb.LockEventType_Acquired)
	events := lock(t, waiter, &pb.LockRequest{MaxWaitPeriod: hourMs})
	waiting := next(t, events, pb.LockEventType_Waiting)
	unlock(t, holder, t.Name(), hold.Id)
	acquired := next(t, events, pb.LockEventType_Acquired)
	want(t, "id", acquired.Id, waiting.Id)
	want(t, "fence", acquired.FenceToken, hold.FenceToken+1)
}

func TestATryFailsAtOnce(t *testing.T) {
	client := connect(t)
	next(t, lock(t, client, &pb.LockRequest{}), pb.LockEventType_Acquired)
	events := lock(t, client, &pb.LockRequest{})
	failed := next(t, events, pb.LockEventType_Failed)
	want(t, "success", failed.Success, false)
	end(t, events)
}

func TestReadersShareAndKeepAWriterOut(t *testing.T) {
	client := connect(t)
	for range 2 {
		next(t, attempt(t, client.ReadLock, &pb.LockRequest{}), pb.LockEventType_Acquired)
	}
	next(t, lock(t, client, &pb.LockRequest{}), pb.LockEventType_Failed)
}

func TestAnExpiredLeaseIsReported(t *testing.T) {
	client := connect(t)
	events := lock(t, client, &pb.LockRequest{MaxLeasePeriod: 200})
	acquired := next(t, events, pb.LockEventType_Acquired)
	expired := next(t, events, pb.LockEventType_Expired)
	want(t, "id", expired.Id, acquired.Id)
	end(t, events)
	response, err := client.UnLock(ask(t), &pb.UnLockRequest{Key: t.Name(), Id: acquired.Id})
	must(t, err)
	want(t, "result", response.ResultCode, "not_found")
}

func TestALockIsFoundByItsRequestId(t *testing.T) {
	first, second := connect(t), connect(t)
	events := lock(t, first, &pb.LockRequest{RequestId: "r"})
	hold := next(t, events, pb.LockEventType_Acquired)
	again := next(t, lock(t, second, &pb.LockRequest{RequestId: "r"}), pb.LockEventType_Acquired)
	want(t, "id", again.Id, hold.Id)
	want(t, "fence", again.FenceToken, hold.FenceToken)
	for {
		if _, err := events.Recv(); err != nil {
			want(t, "status", status.Code(err), codes.Aborted)
			return
		}
	}
}

func TestSeveralKeysAreLockedTogetherOrNotAtAll(t *testing.T) {
	client := connect(t)
	one, two := t.Name()+"/1", t.Name()+"/2"
	keys := []*pb.MultiLockKey{{Key: two, WriteLock: true}, {Key: one, WriteLock: true}}
	request := &pb.MultiLockRequest{Keys: keys, MaxLeasePeriod: hourMs}
	granted, err := client.MultiLock(ask(t), request)
	must(t, err)
	want(t, "result", granted.ResultCode, "ok")
	want(t, "leases", len(granted.Leases), 2)
	want(t, "first key", granted.Leases[0].Key, one)
	unlock(t, client, one, granted.Leases[0].Id)
	refused, err := client.MultiLock(ask(t), request)
	must(t, err)
	want(t, "result", refused.ResultCode, "timeout")
	want(t, "leases", len(refused.Leases), 0)
	unlock(t, client, two, granted.Leases[1].Id)
	granted, err = client.MultiLock(ask(t), request)
	must(t, err)
	want(t, "fence", granted.Leases[0].FenceToken, 2)
}

func TestALeaseIsExtendedFromNow(t *testing.T) {
	client := connect(t)
	hold := next(t, lock(t, client, &pb.LockRequest{MaxLeasePeriod: hourMs}), pb.LockEventType_Acquired)
	request := &pb.ExtendLeaseRequest{Key: t.Name(), Id: hold.Id, LeaseTimeout: 2 * hourMs}
	before := time.Now().UnixMilli()
	extended, err := client.ExtendLease(ask(t), request)
	must(t, err)
	after := time.Now().UnixMilli()
	want(t, "result", extended.ResultCode, "ok")
	if from := extended.Lease.LeaseExpiresAt - 2*hourMs; from < before-shownWithinMs || from > after+shownWithinMs {
		t.Fatalf("extended from %d, not from between %d and %d", from, before, after)
	}
	asked, err := client.LeaseStatus(ask(t), &pb.LeaseStatusRequest{Key: t.Name(), Id: hold.Id})
	must(t, err)
	want(t, "acquired", asked.Lease.Acquired, true)
	want(t, "fence", asked.Lease.FenceToken, hold.FenceToken)
}

func TestTheListHasHoldsAndNoWaiters(t *testing.T) {
	client := connect(t)
	hold := next(t, lock(t, client, &pb.LockRequest{}), pb.LockEventType_Acquired)
	next(t, lock(t, client, &pb.LockRequest{MaxWaitPeriod: hourMs}), pb.LockEventType_Waiting)
	listed, err := client.ListAcquiredLocks(ask(t), &pb.ListAcquiredLocksRequest{KeyPrefix: t.Name()})
	must(t, err)
	want(t, "locks", len(listed.Locks), 1)
	want(t, "id", listed.Locks[0].LockId, hold.Id)
}
