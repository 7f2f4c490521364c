package sidecarset

import (
	"testing"
	"time"
)

// TestAPodOfTheNewSidecarSetIsNotTakenBack: a pod is created from the SidecarSet as it was just changed, and the manager sees it before it sees the change.
// The sidecar is not restarted with the former image, and once more with the new one (SS-193, SS-210).
func TestAPodOfTheNewSidecarSetIsNotTakenBack(t *testing.T) {
	s := simulate(1, makeSet(allAtOnce), 2)
	if err := s.settle(50); err != nil {
		t.Fatal(err)
	}
	former := s.Cached(setKey)
	s.change(imageNow("proxy", "proxy:2"))
	s.inject("new")
	for range 10 {
		s.node.Step("new")
	}
	s.deliver(1 << 20)
	s.Show(setKey, former)
	for range 20 {
		s.manage()
		s.Pass(time.Second)
		for _, pod := range s.pods() {
			if pod.Name == "new" && imageOf(pod, "proxy") != "proxy:2" {
				t.Fatal("the new pod gets the former image", s.describe())
			}
		}
	}
	s.Show(setKey, s.set()) // at last
	s.queue.Add()
	if err := s.settle(100); err != nil || s.set().Status.UpdatedReadyPods != 3 {
		t.Error(err, s.set().Status)
	}
}
