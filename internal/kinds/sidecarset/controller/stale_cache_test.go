package controller

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
)

// TestAPodOfTheNewSidecarSetIsNotTakenBack: a pod is created from the SidecarSet as it was just changed, and
// the manager sees it before it sees the change. The sidecar is not restarted with the former image, and once
// more with the new one (SS-193, SS-210).
func TestAPodOfTheNewSidecarSetIsNotTakenBack(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(sidecarsettest.AllAtOnce), 2)
	if err := s.Settle(50); err != nil {
		t.Fatal(err)
	}
	former := s.Cached(setKey)
	s.change(sidecarsettest.Image("proxy", "proxy:2"))
	s.inject("new")
	for range 10 {
		s.Node.Step("new")
	}
	s.Events(1 << 20)
	s.Show(setKey, former)
	for range 20 {
		s.Manage()
		s.Pass(time.Second)
		for _, pod := range s.AllPods() {
			if pod.Name == "new" && sidecarset.ImageOf(pod, "proxy") != "proxy:2" {
				t.Fatal("the new pod gets the former image", s.describe())
			}
		}
	}
	s.Show(setKey, s.set()) // at last
	s.Queue.Add()
	if err := s.Settle(100); err != nil {
		t.Errorf("coming to rest: unexpected error: %v\n%+v", err, s.set().Status)
	} else if got := s.set().Status.UpdatedReadyPods; got != 3 {
		t.Errorf("updated and ready pods: got %d, want 3\n%v\n%+v", got, err, s.set().Status)
	}
}

// TestARollbackIsNotTakenBack: a bad image is taken back, and a pod that is created then, with the good one,
// is seen before the manager sees the rollback. It does not get the bad one, though the manager knows the
// good one's revision from before (SS-193).
func TestARollbackIsNotTakenBack(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(sidecarsettest.AllAtOnce), 2)
	if err := s.Settle(50); err != nil {
		t.Fatal(err)
	}
	s.change(sidecarsettest.Image("proxy", "proxy:bad"))
	if err := s.Settle(50); err != nil {
		t.Fatal(err)
	}
	former := s.Cached(setKey)
	s.change(sidecarsettest.Image("proxy", "proxy:1"))
	s.inject("new")
	for range 10 {
		s.Node.Step("new")
	}
	s.Events(1 << 20)
	s.Show(setKey, former)
	for range 20 {
		s.Manage()
		s.Pass(time.Second)
		for _, pod := range s.AllPods() {
			if pod.Name == "new" && sidecarset.ImageOf(pod, "proxy") != "proxy:1" {
				t.Fatal("the new pod gets the bad image", s.describe())
			}
		}
	}
	s.Show(setKey, s.set()) // at last
	s.Queue.Add()
	if err := s.Settle(100); err != nil {
		t.Errorf("coming to rest: unexpected error: %v\n%+v", err, s.set().Status)
	} else if got := s.set().Status.UpdatedReadyPods; got != 3 {
		t.Errorf("updated and ready pods: got %d, want 3\n%v\n%+v", got, err, s.set().Status)
	}
}

// TestAnImageThatWasOvertakenTwice: three images follow one another before kubelet acts, and the first of
// them comes up for a moment. The upgrade is not taken for complete, and the next pod not begun (SS-215,
// SS-231).
func TestAnImageThatWasOvertakenTwice(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(), 1)
	if err := s.Settle(50); err != nil {
		t.Fatal(err)
	}
	s.Node.Frozen = map[string]bool{"web-0": true}
	is := func(image string, up bool) {
		s.Change(podKey("web-0"), func(o client.Object) {
			pod := o.(*corev1.Pod)
			status := &pod.Status.ContainerStatuses[0]
			if status.Image != image {
				status.Image, status.ImageID, status.ContainerID = image, "sha256:"+image, "containerd://"+image
			}
			status.Ready, pod.Status.ObservedGeneration = up, 0
			sidecarsettest.Ready(pod, up)
		})
	}
	is("proxy:1", false) // it crashes, so that each image is rolled over the one before
	for _, image := range []string{"proxy:2", "proxy:3", "proxy:4"} {
		s.change(sidecarsettest.Image("proxy", image))
		if err := s.Settle(50); err != nil {
			t.Fatalf("coming to rest: unexpected error: %v\n%s", err, s.describe())
		} else if got := sidecarset.ImageOf(s.AllPods()[0], "proxy"); got != image {
			t.Fatalf("image of proxy: got %q, want %q\n%v\n%s", got, image, err, s.describe())
		}
	}
	for _, step := range []struct {
		image string
		done  int32
	}{{"proxy:2", 0}, {"proxy:3", 0}, {"proxy:4", 1}} {
		image, done := step.image, step.done
		is(image, true)
		if err := s.Settle(50); err != nil {
			t.Errorf("coming to rest: unexpected error: %v; it runs %s: %+v, %v", err, image, s.set().Status, err)
		} else if got := s.set().Status.UpdatedReadyPods; got != done {
			t.Errorf("updated and ready pods: got %d, want %d; it runs %s: %+v, %v", got, done, image, s.set().Status,
				err)
		}
	}
	// A hundred images later the record has not grown.
	is("proxy:1", false)
	for i := range 100 {
		s.change(sidecarsettest.Image("proxy", fmt.Sprintf("proxy:%d", 10+i)))
		if err := s.Settle(50); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.AllPods()[0].Annotations[pub.SidecarSetInPlaceUpdateState]); n > 1000 {
		t.Errorf("%d bytes", n)
	}
}
