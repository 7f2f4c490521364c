package proxy

import (
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Wire is the network between one node and the API server. It sends connections on as they are, so that what runs on the node
// shows its own certificate.
type Wire struct {
	listener net.Listener
	upstream string
	injected injected

	mutex sync.Mutex
	open  map[*link]bool
}

// link is one connection, with both its ends.
type link struct{ node, server net.Conn }

func (l *link) close() {
	// Whoever closes it first is right.
	_ = l.node.Close()
	_ = l.server.Close()
}

// NewWire listens at an address of a node, and sends what comes on to another address, that of the API server.
func NewWire(address, upstream string) (*Wire, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for a node: %w", err)
	}
	w := &Wire{listener: listener, upstream: upstream, open: map[*link]bool{}}
	go w.accept()
	return w, nil
}

// Address is what the node connects to.
func (w *Wire) Address() string { return w.listener.Addr().String() }

// Close ends the wire and its connections.
func (w *Wire) Close() error {
	err := w.listener.Close()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for l := range w.open {
		l.close()
	}
	if err != nil {
		return fmt.Errorf("ending a wire: %w", err)
	}
	return nil
}

// Inject injects a fault until the returned function is called: Cut, Stall or Slow. Its hits are connections, and what was sent on them.
func (w *Wire) Inject(f *Fault) func() {
	end := w.injected.begin(f)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if f.Kind == Cut {
		for l := range w.open {
			f.hits.Add(1)
			l.close()
		}
	}
	return end
}

func (w *Wire) accept() {
	for {
		node, err := w.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			log.Printf("A wire took no connection: %v", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		go w.connect(node)
	}
}

// connect joins a connection of the node with one to the API server, unless the wire is cut.
func (w *Wire) connect(node net.Conn) {
	server, err := net.DialTimeout("tcp", w.upstream, 10*time.Second)
	if err != nil { // the API server is away
		_ = node.Close()
		return
	}
	l := &link{node: node, server: server}
	w.mutex.Lock()
	w.open[l] = true
	w.mutex.Unlock()
	// A cut that begins after this closes it itself.
	for _, f := range w.injected.all() {
		if f.Kind == Cut {
			f.hits.Add(1)
			l.close()
		}
	}

	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{node, server}, {server, node}} {
		both.Go(func() {
			defer l.close() // the other way ends, too
			w.carry(way[0], way[1])
		})
	}
	both.Wait()
	w.mutex.Lock()
	delete(w.open, l)
	w.mutex.Unlock()
}

// carry sends on what comes, until one of the ends is closed.
func (w *Wire) carry(from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			w.hold()
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// hold waits while the wire stalls, and for the delay of one that is slow.
func (w *Wire) hold() {
	for _, f := range w.injected.all() {
		switch f.Kind {
		case Stall:
			f.hits.Add(1)
			f.wait(nil, time.Hour)
		case Slow:
			f.hits.Add(1)
			f.wait(nil, rand.N(f.Delay))
		}
	}
}
