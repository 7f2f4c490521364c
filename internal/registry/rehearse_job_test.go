package registry

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/rehearsal"
)

// TestARehearsedJobCreatesItsPodsAndEnds shows what a BroadcastJob would do: its pods come as parallelism
// lets them, and end.
func TestARehearsedJobCreatesItsPodsAndEnds(t *testing.T) {
	s := rehearsal.New(start)
	for i := range 3 {
		s.Add("Node", parse[corev1.Node](t, fmt.Sprintf("metadata: {name: n%d}\nstatus: {allocatable: {pods: 5}}", i)))
	}
	job := parse[appsv1beta1.BroadcastJob](t, `
metadata: {namespace: ops, name: check}
spec:
  parallelism: 2
  completionPolicy: {type: Always}
  template: {spec: {restartPolicy: Never, containers: [{name: a, image: "a:1"}]}}`)
	s.Add("BroadcastJob", job)
	kind := kindNamed(t, "BroadcastJob")
	player, err := Rehearse(t.Context(), environment(t), kind, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	forecast, err := s.Play(t.Context(), player, s.KeyOf("BroadcastJob", job))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("1 after 0s: create create\n2 after 0s: create\n", told(forecast)); diff != "" || forecast.Cut != "" ||
		!strings.Contains(forecast.Last.Summary[0], "completed: 0 active, 3 succeeded, 0 failed of 3 nodes") {
		t.Errorf("%s %+v %+v", diff, forecast.Last, forecast)
	}
}
