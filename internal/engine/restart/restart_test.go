package restart

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
)

type (
	state    = appsv1beta1.ContainerRecreateRequestContainerRecreateState
	before   = appsv1beta1.ContainerRecreateRequestContainerContext
	snapshot = appsv1beta1.ContainerRecreateRequestContainerStatus
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func request(names ...string) *appsv1beta1.ContainerRecreateRequest {
	r := &appsv1beta1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r",
		CreationTimestamp: metav1.NewTime(noon),
		Labels:            map[string]string{pub.RecreatePodUID: "u"}}}
	for _, name := range names {
		r.Spec.Containers = append(r.Spec.Containers,
			appsv1beta1.ContainerRecreateRequestContainer{Name: name, StatusContext: &before{ContainerID: "old-" + name, RestartCount: 2}})
	}
	return r
}

func running(name, id string, restarts int32, since time.Time) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, ContainerID: id, RestartCount: restarts, Ready: true,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}}}
}

// CRR-003 (part), CRR-110 (part), CRR-081 (part): what is read from a request: whether it is completed, which
// phases are final, its pod and its entry.
func TestWhatARequestIs(t *testing.T) {
	r := request("a")
	if Completed(r) {
		t.Error("a request without a completion time is completed")
	}
	r.Status.CompletionTime = &metav1.Time{Time: noon}
	if !Completed(r) {
		t.Error("a request with a completion time is not completed")
	}
	if uid := PodUID(r); uid != "u" {
		t.Errorf("pod of the request: got %q, want \"u\"", uid)
	}
	want := readiness.Holder{UserAgent: pub.RecreateUserAgent, Key: "ns/r"}
	if got := Holder(r); got != want {
		t.Errorf("entry of the request: got %v, want %v", got, want)
	}
	for phase, want := range map[appsv1beta1.ContainerRecreateRequestPhase]bool{
		"": false, appsv1beta1.ContainerRecreateRequestPending: false, appsv1beta1.ContainerRecreateRequestRecreating: false,
		appsv1beta1.ContainerRecreateRequestSucceeded: true, appsv1beta1.ContainerRecreateRequestFailed: true} {
		if Terminal(phase) != want {
			t.Errorf("%q is terminal: %v", phase, !want)
		}
	}
}

// CRR-066 (part): a container that did not succeed when a request ends has failed for the reason of the
// request, unless it has its own.
func TestAbandon(t *testing.T) {
	r := request("new", "pending", "failed", "why", "done")
	r.Status.ContainerRecreateStates = []state{
		{Name: "pending", Phase: appsv1beta1.ContainerRecreateRequestRecreating, Message: "stopping"},
		{Name: "failed", Phase: appsv1beta1.ContainerRecreateRequestFailed},
		{Name: "why", Phase: appsv1beta1.ContainerRecreateRequestFailed, Message: "its own"},
		{Name: "done", Phase: appsv1beta1.ContainerRecreateRequestSucceeded},
		{Name: "not asked for", Phase: appsv1beta1.ContainerRecreateRequestPending},
	}
	want := []state{
		{Name: "new", Phase: appsv1beta1.ContainerRecreateRequestFailed, Message: MessagePodGone},
		{Name: "pending", Phase: appsv1beta1.ContainerRecreateRequestFailed, Message: MessagePodGone},
		{Name: "failed", Phase: appsv1beta1.ContainerRecreateRequestFailed, Message: MessagePodGone},
		{Name: "why", Phase: appsv1beta1.ContainerRecreateRequestFailed, Message: "its own"},
		{Name: "done", Phase: appsv1beta1.ContainerRecreateRequestSucceeded},
	}
	got := Abandon(r, MessagePodGone)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("containers of the abandoned request (-want +got):\n%s", diff)
	}
	r.Status.ContainerRecreateStates = got
	failures := []string{"new (pod has gone)", "pending (pod has gone)", "failed (pod has gone)",
		"why (its own)"}
	if failed := Failed(r); !slices.Equal(failed, failures) {
		t.Errorf("containers that failed: got %v, want %v", failed, failures)
	}
}

// CRR-114 (part), CRR-165 (part): another ID or a higher restart count means another container; an empty
// status does not.
func TestRecreated(t *testing.T) {
	was := &before{ContainerID: "c", RestartCount: 2}
	for name, tt := range map[string]struct {
		before   *before
		id       string
		restarts int32
		want     bool
	}{
		"the same":           {was, "c", 2, false},
		"another ID":         {was, "d", 2, true},
		"restarted":          {was, "c", 3, true},
		"fewer restarts":     {was, "c", 1, false},
		"another, restarted": {was, "d", 3, true},
		"none now":           {was, "", 3, false},
		"none known before":  {nil, "d", 3, false},
		"none ran before":    {&before{}, "d", 0, true},
	} {
		if got := Recreated(tt.before, tt.id, tt.restarts); got != tt.want {
			t.Errorf("%s: another container: got %t, want %t", name, got, tt.want)
		}
	}
}

// CRR-070 to 075 (part): the snapshot has the new containers that run, in the order of the request, init
// containers among them.
func TestSnapshot(t *testing.T) {
	r := request("b", "a", "side", "waits", "none", "timed")
	r.Spec.Containers[5].StatusContext = nil
	waits := running("waits", "new-waits", 3, noon)
	waits.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
	pod := &corev1.Pod{Status: corev1.PodStatus{
		ContainerStatuses: []corev1.ContainerStatus{running("a", "new-a", 3, noon), running("b", "new-b", 0, noon), waits,
			running("timed", "t", 1, noon), running("not asked for", "x", 9, noon)},
		InitContainerStatuses: []corev1.ContainerStatus{running("side", "new-side", 1, noon)},
	}}
	want := []snapshot{
		{Name: "b", Ready: true, ContainerID: "new-b"}, {Name: "a", Ready: true, RestartCount: 3, ContainerID: "new-a"},
		{Name: "side", Ready: true, RestartCount: 1, ContainerID: "new-side"},
		{Name: "timed", Ready: true, RestartCount: 1, ContainerID: "t"},
	}
	if diff := cmp.Diff(want, Snapshot(r, pod)); diff != "" {
		t.Errorf("containers of the snapshot (-want +got):\n%s", diff)
	}
	pod.Status.ContainerStatuses[3] = running("timed", "t", 1, noon.Add(-time.Second)) // it ran before the request was made
	if diff := cmp.Diff(want[:3], Snapshot(r, pod)); diff != "" {
		t.Errorf("containers of the snapshot, one older than the request (-want +got):\n%s", diff)
	}
	r.Status.ContainerStatusSnapshot = want
	if diff := cmp.Diff(want, Snapshot(r, &corev1.Pod{})); diff != "" {
		t.Error("the former snapshot is lost: ", diff)
	}
	if StatusOf(pod, "none") != nil {
		t.Error("a container without a status has one")
	}
}
