package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// waitingEvents lets time pass, with every pass that the last one asked for, and returns what was told of
// waiting.
func waitingEvents(s *simulated, during time.Duration) []string {
	s.Recorded, s.Quiet = nil, false
	for end := s.Now().Add(during); s.Now().Before(end); s.Pass(time.Second) {
		s.Round()
	}
	var told []string
	for _, event := range s.Recorded {
		if strings.Contains(event, waiting.EventReason) {
			told = append(told, event)
		}
	}
	return told
}

// OPS-099: a rollout to an image that does not exist said nothing for as long as one liked. It is told after
// 30 s, with the pods and their own reasons, and every ten minutes.
func TestARolloutToAnImageThatDoesNotExistIsTold(t *testing.T) {
	s := atRest(t, clonesettest.Set(3), cloneset.Features{})
	s.Node.Digests["nginx:bad"] = ""
	s.Edit(clonesettest.Image("nginx:bad"))
	told := waitingEvents(s, 25*time.Minute)
	if len(told) != 3 {
		t.Errorf("number told: got %d, want 3; %d times in 25 minutes: %q", len(told), len(told), told)
	} else if !strings.HasPrefix(told[0], "Warning RolloutWaiting UpdatedPodsUnavailable: ") {
		t.Errorf("told first: got %q, want it to begin with %q; %d times in 25 minutes: %q", told[0],
			"Warning RolloutWaiting UpdatedPodsUnavailable: ", len(told), told)
	} else if !strings.Contains(told[0], "ErrImagePull") {
		t.Errorf("told first: got %q, want it to contain %q; %d times in 25 minutes: %q", told[0], "ErrImagePull",
			len(told), told)
	} else if strings.Count(told[0], "pod web-") != 1 {
		t.Errorf(`number of pods told of: got %d, want 1; %d times in 25 minutes: %q`, strings.Count(told[0],
			"pod web-"),
			len(told), told)
	}
	s.Edit(clonesettest.Image("nginx:2"))
	if told := waitingEvents(s, time.Hour); len(told) > 0 {
		t.Errorf("told of a rollout that goes on: %q", told)
	}
}

// OPS-099: a single pod whose new image does not exist waits for nobody, and is told likewise. One that
// crashes when all is done is no rollout.
func TestASetOfOnePodIsTold(t *testing.T) {
	s := atRest(t, clonesettest.Set(1), cloneset.Features{})
	s.Node.Digests["nginx:bad"] = ""
	unready := func(o client.Object) {
		for i, c := range o.(*corev1.Pod).Status.Conditions {
			if c.Type == corev1.PodReady {
				o.(*corev1.Pod).Status.Conditions[i].Status = corev1.ConditionFalse
			}
		}
	}
	s.Change(podKey(s.active()[0].Name), unready)
	if told := waitingEvents(s, time.Hour); len(told) > 0 {
		t.Errorf("told of a pod that is down long after its rollout: %q", told)
	}
	s.Edit(clonesettest.Image("nginx:bad"))
	if told := waitingEvents(s, time.Minute); len(told) != 1 {
		t.Errorf("number told: got %d, want 1\n%q", len(told), told)
	} else if !strings.Contains(told[0], "PodsNotReady: 1 of 1 pod waited for") {
		t.Errorf("told first: got %q, want it to contain %q\n%q", told[0], "PodsNotReady: 1 of 1 pod waited for",
			told)
	} else if !strings.Contains(told[0], "ErrImagePull") {
		t.Errorf("told first: got %q, want it to contain %q\n%q", told[0], "ErrImagePull", told)
	}
}

// OPS-099: what the user asked for is no news: Paused, Partition, OnDelete, grace and minReadySeconds. What
// the user's operators do not do is.
func TestOnlyWhatNobodyAskedForIsTold(t *testing.T) {
	hooked := func(set *appsv1beta1.CloneSet) {
		set.Spec.Lifecycle = &pub.Lifecycle{InPlaceUpdate: &pub.LifecycleHook{LabelsHandler: map[string]string{"hook": "on"}}}
		clonesettest.SetTemplate(set, `{"metadata":{"labels":{"app":"web","hook":"on"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1"}]}}`)
	}
	imageOnly := func(set *appsv1beta1.CloneSet) {
		clonesettest.SetTemplate(set, `{"metadata":{"labels":{"app":"web","hook":"on"}},"spec":{"containers":[{"name":"nginx","image":"nginx:2"}]}}`)
	}
	for name, test := range map[string]struct {
		set    *appsv1beta1.CloneSet
		change func(*appsv1beta1.CloneSet)
		want   string
	}{
		"paused": {clonesettest.Set(3), clonesettest.Both(clonesettest.Image("nginx:2"),
			clonesettest.Rolling(func(r *appsv1beta1.RollingUpdateCloneSetStrategy) { r.Paused = true })),
			""},
		"partition": {clonesettest.Set(3, clonesettest.Partition(3)), clonesettest.Image("nginx:2"), ""},
		"on delete": {clonesettest.Set(3), clonesettest.Both(clonesettest.Image("nginx:2"), func(set *appsv1beta1.CloneSet) {
			set.Spec.UpdateStrategy.Type = appsv1beta1.OnDeleteCloneSetUpdateStrategyType
		}), ""},
		"minReadySeconds": {clonesettest.Set(2, func(set *appsv1beta1.CloneSet) { set.Spec.MinReadySeconds = 300 }),
			clonesettest.Image("nginx:2"), ""},
		"grace": {clonesettest.Set(2, clonesettest.Rolling(func(r *appsv1beta1.RollingUpdateCloneSetStrategy) {
			r.InPlaceUpdateStrategy = &pub.InPlaceUpdateStrategy{GracePeriodSeconds: 300}
		})), clonesettest.Image("nginx:2"), ""},
		"hook": {clonesettest.Set(2, hooked), imageOnly, "UpdatedPodsUnavailable"},
		"refused": {clonesettest.Set(2, clonesettest.Policy(appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy)), clonesettest.Env("x"),
			"FailedUpdate"},
	} {
		t.Run(name, func(t *testing.T) {
			s := atRest(t, test.set, cloneset.Features{})
			s.Edit(test.change)
			told := waitingEvents(s, 9*time.Minute)
			if test.want == "" && len(told) > 0 || test.want != "" &&
				(len(told) != 1 || !strings.Contains(told[0], "RolloutWaiting "+test.want)) {
				t.Errorf("want %q, told %q", test.want, told)
			}
		})
	}
}

// OPS-099: pods that cannot be created are told, although each attempt has other names.
func TestPodsThatCannotBeCreatedAreTold(t *testing.T) {
	s := atRest(t, clonesettest.Set(1), cloneset.Features{})
	s.Refused = func(w simulation.Write) bool { return w.Key.Kind == "Pod" && w.Verb == "create" }
	s.Edit(clonesettest.Replicas(3))
	if told := waitingEvents(s, 9*time.Minute); len(told) != 1 {
		t.Errorf("told in nine minutes: number told: got %d, want 1\n%q", len(told), told)
	} else if !strings.Contains(told[0], "RolloutWaiting FailedScale: ") {
		t.Errorf("told in nine minutes: told first: got %q, want it to contain %q\n%q", told[0],
			"RolloutWaiting FailedScale: ", told)
	}
}
