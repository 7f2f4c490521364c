package protection

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/internal/admission/pod"
)

// DP-040 (part), PUB-112 (part): a tenant gives the controller of one of its pods another kind again and again, of a
// megabyte each, and asks for a deletion that its own budget refuses. A thousand series are kept: each must be small, or
// a thousand of them fill the memory of the manager.
func TestNamesInCountersAreShort(t *testing.T) {
	const refusals, length = 20, 1 << 20
	w := newWorld(t, allGates)
	for i := range refusals {
		of := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "example.com/v1", Kind: fmt.Sprint(i, strings.Repeat("x", length)), Name: "x", UID: "x", Controller: new(true)}}}}
		w.teller.Disruption(&pod.Disruption{Pod: of, By: "DELETE", User: "alice"}, "no more")
	}
	series := counts(t, w.teller)
	if len(series) != refusals {
		t.Errorf("series: got %d, want %d", len(series), refusals)
	}
	for name := range series {
		if len(name) > 1100 {
			t.Errorf("a series has labels of %d KiB, want 1 KiB at most; up to %d series are kept", len(name)>>10, mostSeries)
		}
	}
}

// PUB-093 (part), DP-040 (part): one tenant asks for deletions that are refused, again and again. Another tenant still gets the event that says who was
// refused, and why.
func TestRefusalsOfOneTenantLeaveEventsToOthers(t *testing.T) {
	w := newWorld(t, allGates)
	in := func(namespace string) *pod.Disruption {
		return &pod.Disruption{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}, By: "DELETE", User: "alice"}
	}
	for range 100 {
		w.teller.Disruption(in("hostile"), "no more")
	}
	w.teller.Disruption(in("shop"), "no more")
	for _, about := range w.events.about {
		if strings.Contains(about, "shop/") {
			return
		}
	}
	t.Errorf("after 100 refusals in another namespace the pod of shop gets no event: %d events, all of the other", len(w.events.about))
}

// DP-040 (part): the events of all namespaces are limited together, too; and so are the limiters, of which those go first
// whose namespace has made up for its events.
func TestEventsOfManyNamespacesAreBounded(t *testing.T) {
	l, now := newLimiters(), time.Unix(0, 0)
	events := 0
	for i := range mostNamespaces {
		if l.allow(fmt.Sprint(i), now) {
			events++
		}
	}
	if want := busyNamespaces * eventsAtOnce; events != want {
		t.Errorf("events of %d namespaces in the same second: got %d, want %d", mostNamespaces, events, want)
	}
	if now = now.Add(time.Second); !l.allow("shop", now) {
		t.Error("an event of one more namespace is not allowed a second later")
	}
	if got := len(l.of); got != 1 {
		t.Errorf("limiters: got %d, want 1", got)
	}
}
