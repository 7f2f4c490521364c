package controller

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
)

// TestPodsThatLackContainers: pods that were injected and are not counted any more are told of (SS-200,
// SS-203, SS-W01b, SS-W09).
func TestPodsThatLackContainers(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(), 3)
	s.change(sidecarsettest.Inits(sidecarsettest.NativeSidecar("net:1")))
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	const want = "Warning PodsNotMatched Pods that have its containers are not upgraded any more, because they are not matched. Why, by number of pods: 3: it has no native sidecar net"
	n := strings.Count(strings.Join(s.Recorded, "\n"), want)
	if n != 1 {
		t.Errorf(`number of events: got %d, want 1; told %d times: %q %+v`, n, n, s.Recorded, s.set().Status)
	}
	if got := s.set().Status.MatchedPods; got != 0 {
		t.Errorf("matched pods: got %d, want 0; told %d times: %q %+v", got, n, s.Recorded, s.set().Status)
	}
}

// TestEventsDoNotDependOnOrder: caches give pods in any order; what is told stays the same, and is told once
// (SS-262).
func TestEventsDoNotDependOnOrder(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(), 3, sidecarsettest.Annotated(pub.SidecarSetHash, "{"))
	s.Round()
	snapshot, err := s.kube.Snapshot(context.Background(), s.set())
	if err != nil {
		t.Fatal(err)
	}
	snapshot.Now, snapshot.Features = s.Now(), s.features
	s.Recorded = nil
	session, err := s.pass.Begin(t.Context(), client.ObjectKeyFromObject(s.set()), s.set().UID)
	if err != nil || session == nil {
		t.Fatalf("beginning a pass: got %v, %v", session, err)
	}
	logged := map[string]bool{}
	for range 4 {
		snapshot.Pods = append(snapshot.Pods[1:], snapshot.Pods[0])
		slices.Reverse(snapshot.Pods)
		plan := sidecarset.Make(*snapshot)
		announce(session, plan)
		logged[plan.Headline()] = true
	}
	if len(logged) != 1 {
		t.Errorf("number logged: got %d, want 1; %d logs, events %q", len(logged), len(logged), s.Recorded)
	}
	if len(s.Recorded) > 1 {
		t.Errorf("number of events: got %d, want at most 1; %d logs, events %q", len(s.Recorded), len(logged),
			s.Recorded)
	}
}

// TestAnnotationThatCannotBeMerged: the pod waits, and is upgraded soon after somebody mends the annotation,
// of which no event tells (SS-152, SS-190).
func TestAnnotationThatCannotBeMerged(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(sidecarsettest.AllAtOnce, func(set *appsv1beta1.SidecarSet) {
		set.Spec.PatchPodMetadata = []appsv1beta1.SidecarSetPatchPodMetadata{
			{PatchPolicy: appsv1beta1.SidecarSetMergePatchJSONPatchPolicy, Annotations: map[string]string{"k": `{"a":1}`}}}
	}), 1, sidecarsettest.Annotated("k", "{"))
	s.change(sidecarsettest.Image("proxy", "proxy:2"))
	for range 20 {
		s.Round()
	}
	if !strings.Contains(strings.Join(s.Recorded, "\n"), "PodNotUpgraded") {
		t.Errorf("events: got %q, want it to contain %q", strings.Join(s.Recorded, "\n"), "PodNotUpgraded")
	}
	s.Change(podKey("web-0"), func(o client.Object) { o.SetAnnotations(mended(o.GetAnnotations())) })
	s.Deliver(99) // the manager is told of nothing
	if !s.Queue.Wait() {
		t.Fatal("the manager does not come back")
	}
	if err := s.Settle(100); err != nil {
		t.Errorf("coming to rest: unexpected error: %v\n%s", err, s.describe())
	} else if got := sidecarset.ImageOf(s.AllPods()[0], "proxy"); got != "proxy:2" {
		t.Errorf("image of proxy: got %q, want %q\n%v\n%s", got, "proxy:2", err, s.describe())
	}
}

func mended(annotations map[string]string) map[string]string {
	annotations["k"] = "{}"
	return annotations
}

// TestNamespaceThatComesLate: pods may be known before their namespace is (SS-191, SS-200).
func TestNamespaceThatComesLate(t *testing.T) {
	if !namespaceEvents.Create(event.CreateEvent{Object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}}) {
		t.Error("nobody looks at its pods again")
	}
}
