package sidecarset_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
)

// TestMissingPods: pods that are selected and were never injected are counted and named (SS-006, SS-W09).
// Those that are not older than the SidecarSet escaped the webhook: they are told apart, named first, and
// called for by a warning.
func TestMissingPods(t *testing.T) {
	created := metav1.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	set := sidecarsettest.Set(func(set *appsv1beta1.SidecarSet) { set.CreationTimestamp = created })
	sidecarsettest.Stamp(set)
	scoped := sidecarsettest.Set(func(set *appsv1beta1.SidecarSet) {
		set.Name, set.CreationTimestamp = "scoped", metav1.NewTime(created.Add(time.Hour))
		set.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	})
	bare := func(after time.Duration) func(pod *corev1.Pod) {
		return func(pod *corev1.Pod) {
			delete(pod.Annotations, pub.SidecarSetInjectedList)
			pod.CreationTimestamp = metav1.NewTime(created.Add(after))
		}
	}
	pods := []*corev1.Pod{sidecarsettest.Pod(set, "injected", sidecarsettest.Running), sidecarsettest.Pod(set, "bare", bare(-time.Second)),
		sidecarsettest.Pod(set, "done", bare(0),
			func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }),
		sidecarsettest.Pod(set, "alien", bare(0), sidecarsettest.Labelled("app", "other")), sidecarsettest.Pod(set, "elsewhere", bare(0),
			func(pod *corev1.Pod) { pod.Namespace = "elsewhere" })}
	count := func() map[string]sidecarset.Missing {
		return sidecarset.MissingPods([]*appsv1beta1.SidecarSet{set, scoped}, func(do func(*corev1.Pod) bool) {
			for _, pod := range pods {
				do(pod)
			}
		}, map[string]map[string]string{"elsewhere": {"team": "a"}}, "")
	}
	got := count()
	if diff := cmp.Diff(map[string]sidecarset.Missing{"mesh": {2, 1, []string{"elsewhere/elsewhere", "default/bare"}}, "scoped": {1, 0,
		[]string{"elsewhere/elsewhere"}}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	text := got["mesh"].String()
	if !strings.Contains(text, "2 pods ") {
		t.Errorf(`what is told of mesh: got %q, want it to contain %q`, text, "2 pods ")
	}
	if !strings.Contains(text, "(1 of them is not older than the SidecarSet)") {
		t.Errorf(`what is told of mesh: got %q, want it to contain %q`, text,
			"(1 of them is not older than the SidecarSet)")
	}
	if !strings.HasSuffix(text, "elsewhere/elsewhere, default/bare") {
		t.Errorf(`what is told of mesh: got %q, want it to end with %q`, text, "elsewhere/elsewhere, default/bare")
	}
	for n := range 20 {
		pods = append(pods, sidecarsettest.Pod(set, fmt.Sprintf("late-%02d", 19-n), bare(time.Minute)))
	}
	if got := count()["mesh"]; got.Pods != 22 {
		t.Errorf("pods: got %d, want 22\n%+v", got.Pods, got)
	} else if got.Escaped != 21 {
		t.Errorf("escaped: got %d, want 21\n%+v", got.Escaped, got)
	} else if len(got.Examples) != 10 {
		t.Errorf("number of examples: got %d, want 10\n%+v", len(got.Examples), got)
	} else if got.Examples[0] != "default/late-00" {
		t.Errorf("first example: got %q, want %q\n%+v", got.Examples[0], "default/late-00", got)
	} else if got.Examples[9] != "default/late-09" {
		t.Errorf("tenth example: got %q, want %q\n%+v", got.Examples[9], "default/late-09", got)
	}
	for _, test := range []struct {
		now, told sidecarset.Missing
		want      string
	}{
		{now: sidecarset.Missing{Pods: 2, Escaped: 1}, want: corev1.EventTypeWarning},
		{now: sidecarset.Missing{Pods: 2, Escaped: 1}, told: sidecarset.Missing{Pods: 2, Escaped: 1}},
		{now: sidecarset.Missing{Pods: 2, Escaped: 1}, told: sidecarset.Missing{Pods: 3}, want: corev1.EventTypeWarning},
		{now: sidecarset.Missing{Pods: 2}, told: sidecarset.Missing{Pods: 1}, want: corev1.EventTypeNormal},
		{now: sidecarset.Missing{Pods: 1}, told: sidecarset.Missing{Pods: 2, Escaped: 2}},
	} {
		if got := test.now.Worth(test.told); got != test.want {
			t.Errorf("%+v after %+v: %q", test.now, test.told, got)
		}
	}
}

// TestPodsOfACanary are not missing at its base, which is left out there (SS-175, SS-W09).
func TestPodsOfACanary(t *testing.T) {
	base, canary := sidecarsettest.Set(), sidecarsettest.Set(func(set *appsv1beta1.SidecarSet) {
		set.Name, set.Annotations = "canary", map[string]string{pub.SidecarSetCanary: "true", pub.SidecarSetBase: "mesh"}
	})
	sidecarsettest.Stamp(base)
	sidecarsettest.Stamp(canary)
	pods := []*corev1.Pod{sidecarsettest.Pod(base, "of-the-base", sidecarsettest.Running),
		sidecarsettest.Pod(canary, "of-the-canary", sidecarsettest.Running)}
	got := sidecarset.MissingPods([]*appsv1beta1.SidecarSet{base, canary}, func(do func(*corev1.Pod) bool) {
		for _, pod := range pods {
			do(pod)
		}
	}, nil, "")
	if diff := cmp.Diff(map[string]sidecarset.Missing{"mesh": {}, "canary": {1, 1, []string{"default/of-the-base"}}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestMissingPodsOfTheSystem: pods of namespaces that the webhook is never asked about are not missing,
// whatever a SidecarSet selects (SS-085, SS-W09).
func TestMissingPodsOfTheSystem(t *testing.T) {
	set := sidecarsettest.Set()
	sidecarsettest.Stamp(set)
	var pods []*corev1.Pod
	namespaces := map[string]map[string]string{"kube-system": {}, "install": {"control-plane": "openkruise"}, "own": {},
		"shop": {"control-plane": "other"}}
	for namespace := range namespaces {
		pods = append(pods, sidecarsettest.Pod(set, "p", func(pod *corev1.Pod) { pod.Namespace, pod.Annotations = namespace, nil }))
	}
	got := sidecarset.MissingPods([]*appsv1beta1.SidecarSet{set}, func(do func(*corev1.Pod) bool) {
		for _, pod := range pods {
			do(pod)
		}
	}, namespaces, "own")
	if diff := cmp.Diff(map[string]sidecarset.Missing{"mesh": {1, 1, []string{"shop/p"}}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
