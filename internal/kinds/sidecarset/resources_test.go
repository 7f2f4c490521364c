package sidecarset_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
)

// TestManyResizesThatWereOvertaken are remembered as such, and in bounded space: then all quantities are
// given (SS-231).
func TestManyResizesThatWereOvertaken(t *testing.T) {
	s := sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Sized("1")), sidecarsettest.Set(sidecarsettest.Sized("1")), 1,
		sidecarsettest.Given(sidecarsettest.Resources("cpu", "9"), nil))
	s.Features.Resize = true
	pod := s.Pods[0]
	for i := range 30 {
		set := sidecarsettest.Set(sidecarsettest.Sized(fmt.Sprint(2 + i)))
		sidecarsettest.Stamp(set)
		body, err := sidecarset.NoteResize(set, pod, sidecarsettest.Now).JSON(pod)
		if err != nil {
			t.Fatal(err)
		}
		var patch struct{ Metadata metav1.ObjectMeta }
		if err := json.Unmarshal(body, &patch); err != nil {
			t.Fatal(err)
		}
		maps.Copy(pod.Annotations, patch.Metadata.Annotations)
	}
	v := sidecarset.Make(s).Verdicts[0]
	n := len(pod.Annotations[pub.SidecarSetInPlaceUpdateState])
	if v.Action != sidecarset.Upgrade {
		t.Fatalf("action: got %q, want %q\n%+v", v.Action, sidecarset.Upgrade, v)
	}
	if n > 1000 {
		t.Fatalf("length of the annotation with the state of the update: got %d, want at most 1000\n%+v", n, v)
	}
	patches, err := v.Change(pod, sidecarsettest.Now)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := patches[1].JSON(pod); err != nil {
		t.Errorf("unexpected error: %v\n%s", err, body)
	} else if !strings.Contains(string(body), `"requests":{"cpu":"1"}`) {
		t.Errorf("second patch: got %q, want it to contain %q\n%s\n%v", string(body), `"requests":{"cpu":"1"}`,
			body, err)
	}
}

// TestAResizeTakenBackLeavesWhatOthersGave: an upgrade changed memory and was taken back half way, while an
// autoscaler gives cpu: the former memory comes back, and the cpu stays (SS-231, SS-W02). The revision that
// it was taken back from is kept until then (SS-187).
func TestAResizeTakenBackLeavesWhatOthersGave(t *testing.T) {
	of := func(memory string) func(*appsv1beta1.SidecarSet) {
		return sidecarsettest.Asks(sidecarsettest.Resources("cpu", "100m", "memory", memory), nil)
	}
	half := sidecarsettest.Set(of("2Gi"))
	sidecarsettest.Stamp(half)
	s := sidecarsettest.Snapshot(sidecarsettest.Set(of("1Gi")), sidecarsettest.Set(of("1Gi")), 1,
		sidecarsettest.Given(sidecarsettest.Resources("cpu", "500m", "memory", "2Gi"), nil),
		sidecarsettest.Every(sidecarsettest.Annotated(pub.SidecarSetInPlaceUpdateState,
			`{"mesh":{"resizing":["`+half.Annotations[pub.SidecarSetHash]+`"],"updateTimestamp":"2030-01-01T00:00:00Z"}}`)))
	s.Set.Spec.RevisionHistoryLimit = new(int32(1))
	s.Revisions = append(s.Revisions, sidecarsettest.Revision(half, "kruise-system"))
	s.Features.Resize = true
	plan := sidecarset.Make(s)
	v := plan.Verdicts[0]
	if v.Action != sidecarset.Upgrade {
		t.Fatalf("action: got %q, want %q\n%v", v.Action, sidecarset.Upgrade, plan)
	}
	if len(plan.History) > 0 {
		t.Fatalf("revisions that go: got %v, want none\n%v", plan.History, plan)
	}
	patches, err := v.Change(v.Pod, sidecarsettest.Now)
	if err != nil {
		t.Fatal(err)
	}
	body, err := patches[1].JSON(v.Pod)
	if want := `{"metadata":{"resourceVersion":"","uid":""},"spec":{"containers":[{"name":"proxy","resources":{"requests":{"memory":"1Gi"}}}]}}`; err != nil {
		t.Errorf("unexpected error: %v\n%s", err, body)
	} else if string(body) != want {
		t.Errorf("body: got %q, want %q\n%v", string(body), want, err)
	}
}

// TestAResizeThatWasRefusedBefore: the node could not give the pod what it was asked for, and it is asked for
// less now. What kubelet said of the former size is no reason to call the pod one that cannot be upgraded
// (SS-W02).
func TestAResizeThatWasRefusedBefore(t *testing.T) {
	s := sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Sized("2")), sidecarsettest.Set(sidecarsettest.Sized("2")), 1,
		sidecarsettest.Every(func(pod *corev1.Pod) {
			pod.Generation = 7
			pod.Annotations[pub.SidecarSetInPlaceUpdateState] = `{"mesh":{"revision":"x","updateTimestamp":"2030-01-01T00:00:00Z"}}`
			pod.Status.ContainerStatuses[0].Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: pub.SidecarSetUpgradable,
				Status: corev1.ConditionTrue, Message: `{"mesh":true}`},
				corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible,
					ObservedGeneration: 6})
		}))
	s.Features.Resize = true
	v := sidecarset.Make(s).Verdicts[0]
	if v.Reason != sidecarset.ReasonUpgrading {
		t.Errorf("reason: got %q, want %q\n%+v", v.Reason, sidecarset.ReasonUpgrading, v)
	}
	if v.Upgradable != nil {
		t.Errorf("upgradable: got a value, want nil\n%+v", v)
	}
	s.Pods[0].Status.Conditions[2].ObservedGeneration = 7
	v = sidecarset.Make(s).Verdicts[0]
	if v.Reason != sidecarset.ReasonResizeInfeasible {
		t.Errorf("reason: got %s, want %s: %+v", v.Reason, sidecarset.ReasonResizeInfeasible, v)
	}
	if v.Upgradable == nil {
		t.Errorf("whether the pod can be upgraded is not told: %+v", v)
	} else if *v.Upgradable {
		t.Errorf("the pod can be upgraded, want that it cannot: %+v", v)
	}
}
