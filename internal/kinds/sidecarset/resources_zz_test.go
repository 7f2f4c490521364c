package sidecarset

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// TestManyResizesThatWereOvertaken are remembered as such, and in bounded space: then all quantities are given (SS-231).
func TestManyResizesThatWereOvertaken(t *testing.T) {
	s := at(makeSet(sized("1")), makeSet(sized("1")), 1, given(list("cpu", "9"), nil))
	s.Features.Resize = true
	pod := s.Pods[0]
	for i := range 30 {
		set := makeSet(sized(fmt.Sprint(2 + i)))
		stamp(set)
		body, err := NoteResize(set, pod, planTime).JSON(pod)
		if err != nil {
			t.Fatal(err)
		}
		var patch struct{ Metadata metav1.ObjectMeta }
		if err := json.Unmarshal(body, &patch); err != nil {
			t.Fatal(err)
		}
		maps.Copy(pod.Annotations, patch.Metadata.Annotations)
	}
	v := Make(s).Verdicts[0]
	if n := len(pod.Annotations[pub.SidecarSetInPlaceUpdateState]); v.Action != Upgrade || n > 1000 {
		t.Fatal(v, n)
	}
	patches, err := v.Change(pod, planTime)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := patches[1].JSON(pod); err != nil || !strings.Contains(string(body), `"requests":{"cpu":"1"}`) {
		t.Errorf("%s, %v", body, err)
	}
}

// TestAResizeTakenBackLeavesWhatOthersGave: an upgrade changed memory and was taken back half way, while an autoscaler gives cpu:
// the former memory comes back, and the cpu stays (SS-231, SS-W02). The revision that it was taken back from is kept until then
// (SS-187).
func TestAResizeTakenBackLeavesWhatOthersGave(t *testing.T) {
	of := func(memory string) func(*appsv1beta1.SidecarSet) {
		return asks(list("cpu", "100m", "memory", memory), nil)
	}
	half := makeSet(of("2Gi"))
	stamp(half)
	s := at(makeSet(of("1Gi")), makeSet(of("1Gi")), 1, given(list("cpu", "500m", "memory", "2Gi"), nil),
		every(annotated(pub.SidecarSetInPlaceUpdateState,
			`{"mesh":{"resizing":["`+half.Annotations[pub.SidecarSetHash]+`"],"updateTimestamp":"2030-01-01T00:00:00Z"}}`)))
	s.Set.Spec.RevisionHistoryLimit = new(int32(1))
	s.Revisions = append(s.Revisions, revisionOf(half, "kruise-system"))
	s.Features.Resize = true
	plan := Make(s)
	v := plan.Verdicts[0]
	if v.Action != Upgrade || len(plan.History) > 0 {
		t.Fatal(plan)
	}
	patches, err := v.Change(v.Pod, planTime)
	if err != nil {
		t.Fatal(err)
	}
	body, err := patches[1].JSON(v.Pod)
	if want := `{"metadata":{"resourceVersion":"","uid":""},"spec":{"containers":[{"name":"proxy","resources":{"requests":{"memory":"1Gi"}}}]}}`; err != nil || string(body) != want {
		t.Errorf("%s, %v", body, err)
	}
}
