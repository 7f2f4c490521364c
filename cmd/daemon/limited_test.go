package main

import (
	"io"
	"net"
	"testing"
)

// from is a connection of a stranger.
type from struct {
	net.Conn
	addr string
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.addr)} }
func (f from) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.ParseIP("10.0.0.1")} }

// queue is a listener to which these connections come.
type queue struct {
	net.Listener
	waiting []net.Conn
}

func (q *queue) Accept() (net.Conn, error) {
	if len(q.waiting) == 0 {
		return nil, io.EOF
	}
	next := q.waiting[0]
	q.waiting = q.waiting[1:]
	return next, nil
}

// Strangers who take all the connections that they may have keep kubelet from nothing.
func TestStrangersDoNotKeepKubeletFromItsChecks(t *testing.T) {
	q := &queue{}
	come := func(addr string, n int) {
		for range n {
			here, _ := net.Pipe()
			q.waiting = append(q.waiting, from{here, addr})
		}
	}
	come("10.9.9.9", mostConnections+10)
	come("10.0.0.1", 1)
	l := &limited{Listener: q}
	var open []net.Conn
	for {
		c, err := l.Accept()
		if err != nil {
			break
		}
		open = append(open, c)
	}
	if len(open) != mostConnections+1 {
		t.Fatalf("open connections: got %d, want %d", len(open), mostConnections+1)
	}
	if from := host(open[mostConnections].RemoteAddr()); from != "10.0.0.1" {
		t.Fatalf("the last connection is from %s, want 10.0.0.1", from)
	}
	_ = open[0].Close()
	_ = open[0].Close()
	come("10.9.9.9", 2)
	if c, err := l.Accept(); err != nil {
		t.Errorf("one that has ended leaves its place: %v", err)
	} else if from := host(c.RemoteAddr()); from != "10.9.9.9" {
		t.Errorf("one that has ended leaves its place: to %s, want 10.9.9.9", from)
	}
	if _, err := l.Accept(); err == nil {
		t.Error("it leaves one place, and no more")
	}
}
