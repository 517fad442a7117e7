package locks

import (
	"errors"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

var errReleasedBeforeAcquired = errors.New("released before acquired")

type item struct {
	Type string   `json:"type"`
	Path []string `json:"path"`
}

type request struct {
	Action string `json:"action"`
	Items  []item `json:"resources"`
}

type message struct {
	ID     string `json:"id"`
	Action string `json:"action"`
	State  string `json:"state"`
}

// locktopus sends the same messages as the Go client of Locktopus, over the same WebSocket library. It skips an
// "acquired" that crosses its release. It never removes resources, so each lock repeats the earlier ones.
type locktopus struct {
	t        *testing.T
	socket   *websocket.Conn
	items    []item
	lock     message
	messages chan message
	released chan struct{}
}

func dial(t *testing.T, query string) *locktopus {
	t.Helper()
	socket, _, err := websocket.DefaultDialer.Dial("ws://"+addresses["http"]+"/v1?"+query, nil)
	must(t, err)
	client := &locktopus{t: t, socket: socket, messages: make(chan message, 8), released: make(chan struct{})}
	t.Cleanup(func() { socket.Close() })
	go client.read()
	return client
}

func (c *locktopus) read() {
	defer close(c.messages)
	for {
		var received message
		if c.socket.ReadJSON(&received) != nil {
			return
		}
		c.messages <- received
	}
}

func (c *locktopus) next() message {
	c.t.Helper()
	select {
	case received, open := <-c.messages:
		if !open {
			c.t.Fatal("the connection was closed")
		}
		return received
	case <-time.After(watchdog):
		c.t.Fatal("no message")
	}
	return message{}
}

// write locks one path together with all earlier ones, and returns whether they are acquired at once.
func (c *locktopus) write(path ...string) bool {
	c.t.Helper()
	c.items = append(c.items, item{Type: "write", Path: path})
	return c.again()
}

// again locks the same resources as the lock before.
func (c *locktopus) again() bool {
	c.t.Helper()
	must(c.t, c.socket.WriteJSON(request{Action: "lock", Items: c.items}))
	c.lock = c.next()
	want(c.t, "action", c.lock.Action, "lock")
	return c.lock.State == "acquired"
}

// acquire waits until an enqueued lock is acquired or released.
func (c *locktopus) acquire() error {
	if c.lock.State == "acquired" {
		return nil
	}
	select {
	case received, open := <-c.messages:
		if !open || received != (message{ID: c.lock.ID, Action: "lock", State: "acquired"}) {
			return errors.New("unexpected: " + received.Action + " " + received.State)
		}
		c.lock = received
		return nil
	case <-c.released:
		return errReleasedBeforeAcquired
	case <-time.After(watchdog):
		return errors.New("not acquired")
	}
}

func (c *locktopus) release() {
	c.t.Helper()
	must(c.t, c.socket.WriteJSON(request{Action: "release"}))
	received := c.next()
	if received == (message{ID: c.lock.ID, Action: "lock", State: "acquired"}) {
		received = c.next()
	}
	want(c.t, "answer", received, message{ID: c.lock.ID, Action: "release", State: "ready"})
}

func (c *locktopus) close() {
	c.t.Helper()
	frame := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "close")
	must(c.t, c.socket.WriteControl(websocket.CloseMessage, frame, time.Now().Add(watchdog)))
	must(c.t, c.socket.Close())
}
