package imagepull

import (
	"testing"
	"time"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// IMG-085, IMG-098: a node that dies while it pulls, or while it waits to, does not keep its slot for ever;
// one that comes back has it again.
func TestDeadNodesGiveTheirSlotsBack(t *testing.T) {
	for _, phase := range []appsv1beta1.ImagePullPhase{appsv1beta1.ImagePhasePulling, appsv1beta1.ImagePhaseWaiting} {
		s := JobSnapshot{Job: imagepulltest.Job(imagepulltest.Parallelism(1)), Now: imagepulltest.Noon.Add(time.Hour),
			Nodes: []*appsv1beta1.NodeImage{imagepulltest.Tagged("dead", imagepulltest.Result(phase, 2)), imagepulltest.Blank("next")}}
		s.NotReadySince = func(string) (time.Time, bool) { return time.Time{}, false }
		p := PlanJob(s)
		if len(p.Assign) != 0 {
			t.Errorf("alive: number assigned: got %d, want 0; %v, again in %s", len(p.Assign), p.Assign, p.After)
		}
		if p.After != time.Minute {
			t.Errorf("alive: time to the next pass: got %v, want %v; %v, again in %s", p.After, time.Minute, p.Assign,
				p.After)
		}
		s.NotReadySince = func(node string) (time.Time, bool) {
			return imagepulltest.Noon.Add(time.Hour - 50*time.Second), node == "dead"
		}
		if p := PlanJob(s); len(p.Assign) != 0 {
			t.Errorf("dead for 50 s: number assigned: got %d, want 0; %v, again in %s", len(p.Assign), p.Assign,
				p.After)
		} else if p.After != 10*time.Second {
			t.Errorf("dead for 50 s: time to the next pass: got %v, want %v; %v, again in %s", p.After,
				10*time.Second, p.Assign, p.After)
		}
		s.Now = s.Now.Add(10 * time.Second)
		if p := PlanJob(s); len(p.Assign) != 1 {
			t.Errorf("dead for a minute: number assigned: got %d, want 1\n%v\n%+v", len(p.Assign), p.Assign, p.Status)
		} else if p.Assign[0] != "next" {
			t.Errorf("dead for a minute: first assigned: got %q, want %q\n%v\n%+v", p.Assign[0], "next", p.Assign,
				p.Status)
		} else if p.Status.Active != 1 {
			t.Errorf("dead for a minute: active: got %d, want 1\n%v\n%+v", p.Status.Active, p.Assign, p.Status)
		}
	}
}
