package locks

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// pair returns two connections to a namespace that only this test uses; the first has an abandon timeout.
func pair(t *testing.T, abandonTimeoutMs string) (*locktopus, *locktopus) {
	t.Helper()
	namespace := "namespace=" + t.Name()
	return dial(t, namespace+"&abandon-timeout-ms="+abandonTimeoutMs), dial(t, namespace)
}

func TestConnectingWithAndWithoutAnAbandonTimeout(t *testing.T) {
	first, second := pair(t, "1000")
	first.close()
	second.close()
}

func TestParametersInAnyOrderAndUnknownOnes(t *testing.T) {
	dial(t, "abandon-timeout-ms=10&other=x&namespace="+t.Name()).close()
}

func TestTheFirstLockIsAcquiredAtOnceAndHasAnId(t *testing.T) {
	client, _ := pair(t, "0")
	want(t, "acquired", client.write("a"), true)
	want(t, "id", client.lock.ID, "1")
}

func TestAWaiterAcquiresTheLockAfterTheRelease(t *testing.T) {
	locker, waiter := pair(t, "0")
	want(t, "acquired", locker.write("a"), true)
	want(t, "acquired", waiter.write("a"), false)
	locker.release()
	must(t, waiter.acquire())
}

func TestAReusedClientRepeatsItsResources(t *testing.T) {
	client, other := pair(t, "0")
	for range 5 {
		want(t, "acquired", client.write("a"), true)
		client.release()
	}
	want(t, "acquired", client.write("b"), true)
	want(t, "acquired", other.write("a"), false)
	client.release()
	must(t, other.acquire())
}

func TestAReleaseWhileAcquireWaits(t *testing.T) {
	locker, waiter := pair(t, "0")
	locker.write("a")
	want(t, "acquired", waiter.write("a"), false)
	acquired := make(chan error)
	go func() { acquired <- waiter.acquire() }()
	waiter.released <- struct{}{}
	if err := <-acquired; !errors.Is(err, errReleasedBeforeAcquired) {
		t.Fatal(err)
	}
	waiter.release()
	locker.release()
	want(t, "acquired", waiter.again(), true)
}

func TestAReleaseBeforeAcquireIsCalled(t *testing.T) {
	locker, waiter := pair(t, "0")
	locker.write("a")
	want(t, "acquired", waiter.write("a"), false)
	waiter.release()
	locker.release()
	// The next message is the response to the next lock.
	want(t, "acquired", waiter.again(), true)
	want(t, "id", waiter.lock.ID, "3")
}

func TestAfterReleaseAndCloseTheLockIsFree(t *testing.T) {
	locker, waiter := pair(t, strconv.Itoa(hourMs))
	locker.write("a")
	locker.release()
	locker.close()
	want(t, "acquired at once", waiter.write("a"), true)
}

func TestAfterACloseWithoutReleaseAWaiterWaitsForTheTimeout(t *testing.T) {
	locker, waiter := pair(t, "100")
	locker.write("a")
	want(t, "acquired", waiter.write("a"), false)
	started := time.Now()
	locker.close()
	must(t, waiter.acquire())
	want(t, "waited", time.Since(started) >= 100*time.Millisecond, true)
}

func TestAfterReleaseAndCloseNoTimeoutRuns(t *testing.T) {
	locker, waiter := pair(t, "100")
	locker.write("a")
	locker.release()
	locker.close()
	want(t, "acquired", waiter.write("a"), true)
}

func TestStatisticsAreNotFoundBeforeTheFirstConnection(t *testing.T) {
	url := "http://" + addresses["http"] + "/stats_v1?namespace=" + t.Name()
	client := http.Client{Timeout: watchdog}
	response, err := client.Get(url)
	must(t, err)
	response.Body.Close()
	want(t, "status", response.StatusCode, http.StatusNotFound)
	dial(t, "namespace="+t.Name())
	response, err = client.Get(url)
	must(t, err)
	defer response.Body.Close()
	want(t, "status", response.StatusCode, http.StatusOK)
	var statistics map[string]int
	must(t, json.NewDecoder(response.Body).Decode(&statistics))
	want(t, "members", len(statistics), 9)
}
