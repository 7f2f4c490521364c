package restart

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/fuzzing"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// FuzzPlan: whatever is in a request and in the runtime, only a container of the pod that the request is
// about, and that the request names, is stopped. As long as the runtime stays as it is, what is recorded ends
// after a few rounds, and results that were reached stay. There is one state for each container.
func FuzzPlan(f *testing.F) {
	for _, seed := range []map[string]any{
		{"Request": request(ready("a-1")), "Containers": []runtime.Container{run("a", 1), run("b", 0)},
			"Inspected": map[string]any{"containerd://a-1": runtime.Status{Container: run("a", 1), StartedAt: epoch}}},
		{"Request": request(force, ignore, states(State{Name: "a", Phase: pending, Message: stopping + "containerd://a-0"})), "Containers": []runtime.Container{run("a", 0), end()}},
		{"Request": request(inOrder), "Containers": []runtime.Container{end()}, "Pod": map[string]any{"status": map[string]any{"phase": "Failed"}},
			"Inspected": map[string]any{"containerd://a-0": runtime.Status{ExitCode: 3}}},
	} {
		seed["Now"], seed["Seen"] = epoch, epoch
		f.Add(fuzzing.JSON(seed), []byte{})
		f.Add(fuzzing.JSON(seed), []byte("\x04\x02\x01\x03\x02\x01"))
		f.Add(fuzzing.JSON(seed), []byte("other states and containers"))
	}
	f.Fuzz(func(t *testing.T, text string, changes []byte) {
		text = fuzzing.Edit(text, changes, "Name", "ID", "Running", "Exited", "PodUID", "containerRecreateStates", "phase", "message",
			"isKilled", "statusContext", "containerID", "strategy", "forceRecreate", "orderedRecreate", "failurePolicy",
			"unreadyGracePeriodSeconds", "minStartedSeconds", "activeDeadlineSeconds", pub.RecreateActive, pub.RecreatePodUID)
		var s Snapshot
		if json.Unmarshal([]byte(text), &s) != nil || s.Request == nil || sameRuntime(s.Request) != nil {
			return
		}
		names := s.Request.Spec.Containers
		for round := 0; ; round++ {
			before := fuzzing.JSON(s.Request)
			plan := NewPlan(s)
			if after := fuzzing.JSON(s.Request); after != before {
				t.Fatalf("the request was changed by looking at it from %s to %s", before, after)
			}
			if stopped := plan.Stop; stopped != nil {
				if stopped.PodUID != s.Request.Labels[pub.RecreatePodUID] || stopped.PodName != s.Request.Spec.PodName || stopped.PodNamespace != s.Request.Namespace ||
					!slices.ContainsFunc(names, func(c appsv1beta1.ContainerRecreateRequestContainer) bool { return c.Name == stopped.Name }) ||
					!slices.ContainsFunc(s.Containers, func(c runtime.Container) bool { return fmt.Sprint(c) == fmt.Sprint(*stopped) }) {
					t.Errorf("%s: %+v is stopped", text, stopped)
				}
			}
			if !plan.Record {
				return
			}
			if len(plan.States) != len(names) {
				t.Errorf("%s: %d containers have the states %+v", text, len(names), plan.States)
			}
			for i, state := range plan.States {
				if was := s.recorded(names[i].Name); (was.Phase == succeeded || was.Phase == failed) && state.Phase != was.Phase {
					t.Errorf("%s: container %s was %s, and becomes %s", text, was.Name, was.Phase, state.Phase)
				}
			}
			if plan.Complete {
				return
			}
			if round > 4+4*len(names) {
				t.Fatalf("%s: there is no end of what is recorded, at last %+v", text, plan)
			}
			s.Request.Status.Phase, s.Request.Status.ContainerRecreateStates = plan.Phase, plan.States
		}
	})
}
