package locks

import (
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

const waitMs = 8000

type stream = grpc.ServerStreamingClient[pb.LockEvent]

// connect returns a client over a connection of its own.
func connect(t *testing.T) pb.WaymakerServiceClient {
	t.Helper()
	connection, err := grpc.NewClient(addresses["grpc"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { connection.Close() })
	return pb.NewWaymakerServiceClient(connection)
}

// lock attempts to lock the test's own key.
func lock(t *testing.T, client pb.WaymakerServiceClient, request *pb.LockRequest) stream {
	t.Helper()
	request.Key = t.Name()
	events, err := client.Lock(ask(t), request)
	must(t, err)
	return events
}

// next returns the next event that is no heartbeat, which has to be of this type.
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
	events := lock(t, client, &pb.LockRequest{MaxLeasePeriod: 5000})
	acquired := next(t, events, pb.LockEventType_Acquired)
	want(t, "success", acquired.Success, true)
	want(t, "fence", acquired.FenceToken, 1)
	if lease := acquired.LeaseExpiresAt - acquired.AcquiredAt; lease < 4950 || lease > 5050 {
		t.Fatalf("a lease of %d ms", lease)
	}
	unlock(t, client, t.Name(), acquired.Id)
	end(t, events)
}

func TestATakenKeyQueuesAndIsGrantedWhenItIsReleased(t *testing.T) {
	holder, waiter := connect(t), connect(t)
	hold := next(t, lock(t, holder, &pb.LockRequest{}), pb.LockEventType_Acquired)
	events := lock(t, waiter, &pb.LockRequest{MaxWaitPeriod: waitMs})
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
		events, err := client.ReadLock(ask(t), &pb.LockRequest{Key: t.Name()})
		must(t, err)
		next(t, events, pb.LockEventType_Acquired)
	}
	next(t, lock(t, client, &pb.LockRequest{}), pb.LockEventType_Failed)
}

func TestTheEndOfALeaseIsTold(t *testing.T) {
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

func TestALockIsBoundAgainByItsRequestId(t *testing.T) {
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
	request := &pb.MultiLockRequest{Keys: []*pb.MultiLockKey{{Key: two, WriteLock: true}, {Key: one, WriteLock: true}}}
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
	hold := next(t, lock(t, client, &pb.LockRequest{MaxLeasePeriod: 5000}), pb.LockEventType_Acquired)
	request := &pb.ExtendLeaseRequest{Key: t.Name(), Id: hold.Id, LeaseTimeout: 60_000}
	extended, err := client.ExtendLease(ask(t), request)
	must(t, err)
	want(t, "result", extended.ResultCode, "ok")
	if left := extended.Lease.LeaseExpiresAt - time.Now().UnixMilli(); left < 58_000 || left > 60_500 {
		t.Fatalf("%d ms are left", left)
	}
	asked, err := client.LeaseStatus(ask(t), &pb.LeaseStatusRequest{Key: t.Name(), Id: hold.Id})
	must(t, err)
	want(t, "acquired", asked.Lease.Acquired, true)
	want(t, "fence", asked.Lease.FenceToken, hold.FenceToken)
}

func TestTheListHasWhatIsHeldAndNoWaiters(t *testing.T) {
	client := connect(t)
	hold := next(t, lock(t, client, &pb.LockRequest{}), pb.LockEventType_Acquired)
	next(t, lock(t, client, &pb.LockRequest{MaxWaitPeriod: waitMs}), pb.LockEventType_Waiting)
	listed, err := client.ListAcquiredLocks(ask(t), &pb.ListAcquiredLocksRequest{KeyPrefix: t.Name()})
	must(t, err)
	want(t, "locks", len(listed.Locks), 1)
	want(t, "id", listed.Locks[0].LockId, hold.Id)
}
