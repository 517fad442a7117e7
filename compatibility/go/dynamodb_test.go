package locks

import (
	"strings"
	"testing"
	"time"
)

const (
	grace  = 5 * time.Second
	forget = 48 * time.Hour
)

// row is what Clever's package stores of a lock: an SDK writes its members as attributes.
type row struct {
	Key         string    `dynamodbav:"key"`
	Owner       string    `dynamodbav:"owner"`
	LeasedUntil time.Time `dynamodbav:"leasedUntil"`
	CreatedAt   time.Time `dynamodbav:"createdAt"`
	TTL         time.Time `dynamodbav:"ttl"`
}

func newRow(key, owner string, lease time.Duration) row {
	now := time.Now().UTC()
	end := now.Add(lease)
	return row{key, owner, end, now, end.Add(forget)}
}

// dynamo is a client of one table, over one of the SDKs. Its methods send what Clever's package sends, and return false if the condition
// of the request does not hold.
type dynamo interface {
	createTable(t *testing.T)
	deleteTable(t *testing.T)
	tableExists(t *testing.T) bool
	acquire(t *testing.T, row row) bool
	heartbeat(t *testing.T, row row) bool
	release(t *testing.T, key, owner string) bool
	current(t *testing.T, key string) *row
}

// sdks has a client of a table for each SDK.
var sdks = map[string]func(t *testing.T, table string) dynamo{"v1": dynamoV1, "v2": dynamoV2}

// forEachSDK runs a test with a table of its own for each SDK.
func forEachSDK(t *testing.T, test func(t *testing.T, client dynamo)) {
	for name, connect := range sdks {
		t.Run(name, func(t *testing.T) {
			client := connect(t, strings.ReplaceAll(t.Name(), "/", "."))
			client.createTable(t)
			test(t, client)
		})
	}
}

func TestDynamoLocksAreAcquiredKeptAndReleased(t *testing.T) {
	forEachSDK(t, func(t *testing.T, client dynamo) {
		want(t, "heartbeat of nothing", client.heartbeat(t, newRow("k", "owner1", time.Minute)), false)
		want(t, "acquire", client.acquire(t, newRow("k", "owner1", time.Minute)), true)
		want(t, "acquire of another", client.acquire(t, newRow("k", "owner2", time.Minute)), false)
		want(t, "release of another", client.release(t, "k", "owner2"), false)
		kept := newRow("k", "owner1", 10*time.Minute)
		want(t, "heartbeat", client.heartbeat(t, kept), true)
		found := client.current(t, "k")
		if found == nil || found.Owner != "owner1" || !found.LeasedUntil.Equal(kept.LeasedUntil) || !found.TTL.Equal(kept.TTL) {
			t.Fatalf("got %v, want %v", found, kept)
		}
		want(t, "acquire again", client.acquire(t, newRow("k", "owner1", 2*time.Minute)), true)
		want(t, "release", client.release(t, "k", "owner1"), true)
		want(t, "release of nothing", client.release(t, "k", "owner1"), true)
		if found := client.current(t, "k"); found != nil {
			t.Fatalf("got %v, want nothing", found)
		}
	})
}

func TestDynamoLocksAreTakenOverAfterLeaseAndGrace(t *testing.T) {
	forEachSDK(t, func(t *testing.T, client dynamo) {
		want(t, "acquire", client.acquire(t, newRow("k", "owner1", -5*time.Minute)), true)
		want(t, "heartbeat after the end", client.heartbeat(t, newRow("k", "owner1", -5*time.Minute)), true)
		want(t, "acquire of another", client.acquire(t, newRow("k", "owner2", time.Minute)), true)
		want(t, "late heartbeat", client.heartbeat(t, newRow("k", "owner1", time.Minute)), false)
		want(t, "release", client.release(t, "k", "owner2"), true)
		want(t, "later heartbeat", client.heartbeat(t, newRow("k", "owner1", time.Minute)), false)
	})
}

// The package stores the end of a lease with the offset that its caller gave, and the zero time if it gave none.
func TestDynamoLeasesOfAnyZoneAndWithoutAnEnd(t *testing.T) {
	forEachSDK(t, func(t *testing.T, client dynamo) {
		east := newRow("k", "owner1", time.Minute)
		east.LeasedUntil = east.LeasedUntil.In(time.FixedZone("east", 9*3600))
		want(t, "acquire", client.acquire(t, east), true)
		want(t, "acquire of another", client.acquire(t, newRow("k", "owner2", time.Minute)), false)
		endless := newRow("other", "owner1", time.Minute)
		endless.LeasedUntil = time.Time{}
		want(t, "acquire without an end", client.acquire(t, endless), true)
		want(t, "acquire of another", client.acquire(t, newRow("other", "owner2", time.Minute)), true)
	})
}

func TestDynamoTablesAreFoundUntilTheyAreDeleted(t *testing.T) {
	forEachSDK(t, func(t *testing.T, client dynamo) {
		want(t, "table exists", client.tableExists(t), true)
		client.deleteTable(t)
		want(t, "table exists", client.tableExists(t), false)
	})
}
