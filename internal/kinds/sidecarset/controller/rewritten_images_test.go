package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestImagesThatAWebhookRewrites: where somebody's webhook gives containers other names of their images, a
// pair at rest is neither reset again and again nor taken for a hot upgrade, and one that was upgraded comes
// to rest (SS-216, SS-242).
func TestImagesThatAWebhookRewrites(t *testing.T) {
	rewrite := func(pod *corev1.Pod) {
		for i := range pod.Spec.Containers {
			if c := &pod.Spec.Containers[i]; !strings.HasPrefix(c.Image, "mirror/") {
				c.Image = "mirror/" + c.Image
			}
		}
	}
	s := simulate(1, sidecarsettest.Set(sidecarsettest.Containers(sidecarsettest.Hot("proxy", "proxy:1"))), 2, rewrite)
	s.AfterWrite = func(w simulation.Write) {
		if w.Key.Kind == "Pod" {
			s.Change(w.Key, func(o client.Object) { rewrite(o.(*corev1.Pod)) })
		}
	}
	if err := s.Settle(200); err != nil {
		t.Fatal(err)
	}
	for _, w := range s.Writes {
		if w.Key.Kind == "Pod" {
			t.Errorf("written at rest: %v", w)
		}
	}
	if got := s.set().Status.ReadyPods; got != 2 {
		t.Errorf("ready pods: got %d, want 2\n%+v", got, s.set().Status)
	}
	s.change(sidecarsettest.Image("proxy", "proxy:2"))
	if err := s.Settle(500); err != nil {
		t.Fatal(err)
	}
	for _, pod := range s.AllPods() {
		if got := sidecarset.ImageOf(pod, "proxy-1"); got != "mirror/empty:1" {
			t.Errorf("image of proxy-1: got %q, want %q\n%s", got, "mirror/empty:1", s.describe())
		}
		if got := sidecarset.ImageOf(pod, "proxy-2"); got != "mirror/proxy:2" {
			t.Errorf("image of proxy-2: got %q, want %q\n%s", got, "mirror/proxy:2", s.describe())
		}
	}
	if got := s.set().Status.UpdatedReadyPods; got != 2 {
		t.Errorf("updated and ready pods: got %d, want 2\n%+v", got, s.set().Status)
	}
}
