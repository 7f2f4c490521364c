package stop

import (
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
)

// A pod answers its hook with headers that do not end: the hook fails before they take the memory of the daemon, of which
// one namespace may have 32 under way.
func TestHeadersThatDoNotEndFailAHook(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = c.Close() }) // it stays open until then
		_, _ = c.Read(make([]byte, 4096))
		_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("x", 1000)+"\r\n", 1000)))
	}()
	events := record.NewFakeRecorder(10)
	stopper := &Stopper{Events: events, Clock: clock.RealClock{}, Stops: NewStops(), Requester: "crr"}
	q := request(&corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt(listener.Addr().(*net.TCPAddr).Port)}}, time.Hour)
	q.PodIP = "127.0.0.1"
	if !stopper.Start(t.Context(), &containers{}, q, func(error) {}) {
		t.Fatal("the container is not stopped")
	}
	limit := time.After(time.Minute)
	for {
		select {
		case event := <-events.Events:
			if strings.Contains(event, "header") {
				return
			}
		case <-limit:
			t.Fatal("no event says after a minute that the headers are too long")
		}
	}
}
